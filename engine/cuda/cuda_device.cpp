// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/cuda/cuda_device.h"

#include "engine/cuda/failure.h"
#include "engine/plan/codec.h"
#include "engine/plan/units.h"

#include <algorithm>
#include <functional>

namespace rankyard::cuda {

namespace {

using BindResult = Result<std::unique_ptr<exec::BoundOp>>;

constexpr std::int64_t widestHead = 256;  ///< kernels/attention.h
constexpr std::int64_t stripes = 64;      ///< kernels/sums.h
constexpr std::int64_t squareParts = 512; ///< kernels/gradients.h

/// Work that is started on a stream.
class Started : public exec::BoundOp
{
public:
    using Start = std::function<Status(Stream)>;
    explicit Started(Start start) : m_start(std::move(start)) {}
    void run(exec::StepState &) override { noteFailure(m_start(currentQueue().stream)); }

private:
    Start m_start;
};

bool isOnHost(const plan::StepProgram &program, const plan::Op &op)
{
    const auto host = [&](plan::BufferId id) {
        const plan::Buffer &buffer = program.buffer(id);
        return buffer.disk
            || program.arenas[static_cast<std::size_t>(buffer.arena)].kind == plan::MemoryKind::Host;
    };
    return !op.writes.empty() && std::all_of(op.reads.begin(), op.reads.end(), host)
        && std::all_of(op.writes.begin(), op.writes.end(), host);
}

CodecShape shapeOf(const spec::Compression &compression, std::int64_t count)
{
    return {count, compression.block, plan::codeHeaderBytes, static_cast<std::uint32_t>(plan::CodeForm::Half),
            static_cast<std::uint32_t>(plan::CodeForm::Byte)};
}

Error notHere(const char *what, const plan::Op &op)
{
    return Error::make(Code::NotHere, what, plan::opName(op));
}

} // namespace

/// An op of the GPU: what it calls goes to its lane.
class CudaDevice::OnLane : public exec::BoundOp
{
public:
    OnLane(CudaDevice &device, CudaLane &lane, std::unique_ptr<exec::BoundOp> inner)
        : m_device(device),
          m_lane(lane),
          m_inner(std::move(inner))
    {}
    void run(exec::StepState &state) override
    {
        m_device.m_lane = &m_lane;
        const QueueScope scope(
            {m_device.m_gpu.get(), m_lane.stream, m_lane.partials.get(), m_lane.partialBytes});
        m_inner->run(state);
    }

private:
    CudaDevice &m_device;
    CudaLane &m_lane;
    std::unique_ptr<exec::BoundOp> m_inner;
};

/// An op of the CPU among them.
class CudaDevice::OnHost : public exec::BoundOp
{
public:
    OnHost(exec::DeviceQueue &queue, const plan::Op &op, std::unique_ptr<exec::BoundOp> inner)
        : m_queue(queue),
          m_op(op),
          m_inner(std::move(inner))
    {}
    void run(exec::StepState &state) override
    {
        const Status there = m_queue.await(&m_op, state.poll);
        noteFailure(there);
        if (!there.ok())
            return;
        m_inner->run(state);
        m_inner->finish();
    }

private:
    exec::DeviceQueue &m_queue;
    const plan::Op &m_op;
    std::unique_ptr<exec::BoundOp> m_inner;
};

CudaDevice::CudaDevice(std::shared_ptr<Gpu> gpu, int threads)
    : m_gpu(std::move(gpu)),
      m_memory(m_gpu),
      m_queue(m_gpu, m_memory),
      m_host(threads, kernels::detectIsa())
{}

// ---------------------------------------------------------------------------------------------------- binding

Result<std::unique_ptr<exec::BoundOp>> CudaDevice::bind(const exec::BindContext &context, const plan::Op &op)
{
    RY_ASSIGN(m_lane, m_queue.prepare(op));
    CudaLane &lane = *m_lane;
    if (isOnHost(*context.program, op)) {
        RY_ASSIGN(auto inner, m_host.bind(context, op));
        return std::unique_ptr<exec::BoundOp>(std::make_unique<OnHost>(m_queue, op, std::move(inner)));
    }
    if ((op.kind == plan::OpKind::Encode || op.kind == plan::OpKind::Decode)
        && context.plan->job.compression.mode == "topk")
        return notHere("compression.mode topk is not made on a GPU; fp16, int8 and adaptive are", op);
    if (op.segment == plan::Segment::Core && plan::Split(context.plan->job).headSize > widestHead)
        return notHere("no attention of heads wider than 256 on a GPU", op);
    RY_TRY(reservePartials(context, op));
    RY_ASSIGN(auto inner,
              op.kind == plan::OpKind::LoadBatch ? bindBatch(context, op)
                  : plan::isTransfer(op.kind)    ? bindTransfer(context, op)
                                                 : bindKernel(context, op));
    RY_TRY(m_reserved);
    return std::unique_ptr<exec::BoundOp>(std::make_unique<OnLane>(*this, lane, std::move(inner)));
}

BindResult CudaDevice::bindBatch(const exec::BindContext &context, const plan::Op &op)
{
    RY_TRY(m_queue.prepareBatch(context, op));
    const exec::HostBatch batch = m_queue.batchOf(context, op);
    const auto at = [&](std::size_t i) { return context.address[static_cast<std::size_t>(op.writes[i])]; };
    const auto bytes = [&](std::size_t i) { return context.program->buffer(op.writes[i]).bytes; };
    return std::unique_ptr<exec::BoundOp>(
        std::make_unique<Started>([gpu = m_gpu.get(), batch, tokens = at(0), labels = at(1),
                                   tokenBytes = bytes(0), labelBytes = bytes(1)](Stream stream) -> Status {
            RY_TRY(gpu->copy(tokens, batch.tokens, tokenBytes, stream));
            return gpu->copy(labels, batch.labels, labelBytes, stream);
        }));
}

/// What Transfers does on the CPU.
BindResult CudaDevice::bindTransfer(const exec::BindContext &context, const plan::Op &op)
{
    const plan::Group &group = context.program->groups[static_cast<std::size_t>(op.group)];
    const int own = context.indexIn(op.group), size = group.size;
    const auto peer = [&](int offset) { return ((own + offset) % size + size) % size; };
    const auto at = [&](const std::vector<plan::BufferId> &ids) {
        return ids.empty() ? nullptr : context.address[static_cast<std::size_t>(ids[0])];
    };
    const auto buffer = [&](const std::vector<plan::BufferId> &ids) -> const plan::Buffer & {
        return context.program->buffer(ids.at(0));
    };
    std::byte *from = at(op.reads), *to = at(op.writes);
    const int channel = std::max(0, op.channel);
    Link *link = op.kind == plan::OpKind::Send ? m_queue.linkOf(group.name, channel, own, peer(op.peer))
        : op.kind == plan::OpKind::Recv        ? m_queue.linkOf(group.name, channel, peer(op.peer), own)
                                               : m_queue.linkOf(group.name);
    if (!link)
        return Error::make(Code::Internal, "there is no link for a transfer of the program",
                           plan::opName(op));
    const auto started = [](Started::Start start) {
        return std::unique_ptr<exec::BoundOp>(std::make_unique<Started>(std::move(start)));
    };
    switch (op.kind) {
    case plan::OpKind::AllReduce: {
        const plan::Buffer &all = buffer(op.writes);
        const std::int64_t count = all.bytes / static_cast<std::int64_t>(bytesOf(all.dtype));
        return started(
            [=, type = all.dtype](Stream stream) { return link->allReduce(to, count, type, stream); });
    }
    case plan::OpKind::AllGather: {
        const plan::Buffer &all = buffer(op.writes);
        const std::int64_t slice = all.bytes / size,
                           count = slice / static_cast<std::int64_t>(bytesOf(all.dtype));
        if (op.reads[0] == op.writes[0])
            from = to + own * slice;
        return started(
            [=, type = all.dtype](Stream stream) { return link->allGather(from, to, count, type, stream); });
    }
    case plan::OpKind::ReduceScatter: {
        const plan::Buffer &all = buffer(op.reads);
        const std::int64_t slice = all.bytes / size,
                           count = slice / static_cast<std::int64_t>(bytesOf(all.dtype));
        std::byte *place = from + own * slice;
        const bool accumulate = op.accumulate && op.reads[0] != op.writes[0];
        std::byte *out = accumulate || op.reads[0] == op.writes[0] ? place : to;
        return started([=, this, type = all.dtype](Stream stream) -> Status {
            RY_TRY(link->reduceScatter(from, out, count, type, stream));
            if (accumulate)
                add(type, place, to, count);
            return {};
        });
    }
    case plan::OpKind::Send:
        return started([=, bytes = buffer(op.reads).bytes](Stream stream) {
            return link->send(from, bytes, 1, stream);
        });
    case plan::OpKind::Recv:
        return started([=, bytes = buffer(op.writes).bytes](Stream stream) {
            return link->receive(to, bytes, 0, stream);
        });
    default: // Shift
        return started([=, bytes = buffer(op.reads).bytes, next = peer(op.peer), before = peer(-op.peer)](
                           Stream stream) { return link->exchange(from, to, bytes, next, before, stream); });
    }
}

/// Enough for the sums over blocks of any kernel that the op may call.
Status CudaDevice::reservePartials(const exec::BindContext &context, const plan::Op &op)
{
    const plan::Split split(context.plan->job);
    const std::int64_t widest = std::max({split.hidden, split.qkvWidth(), 2 * split.ffn});
    std::int64_t bytes = std::max(2 * stripes * widest * 8, (2 * squareParts + 2) * 8);
    bytes = std::max(bytes, 8 * std::max(op.rowEnd - op.rowBegin, split.tokens));
    if (bytes <= m_lane->partialBytes)
        return {};
    RY_ASSIGN(m_lane->partials, m_memory.allocate(bytes, false));
    m_lane->partialBytes = bytes;
    return {};
}

void CudaDevice::reserve(std::int64_t bytes)
{
    if (bytes <= m_lane->scratchBytes)
        return;
    auto memory = m_memory.allocate(bytes, false);
    if (memory.ok()) {
        m_lane->scratch = *memory;
        m_lane->scratchBytes = bytes;
    } else {
        m_reserved = memory.error();
    }
}

std::byte *CudaDevice::scratch(int) const { return m_lane->scratch.get(); }

const void *CudaDevice::keep(const void *data, std::int64_t bytes)
{
    auto memory = m_memory.allocate(std::max<std::int64_t>(bytes, 1), false);
    if (!memory.ok()) {
        m_reserved = memory.error();
        return nullptr;
    }
    m_kept.push_back(*memory);
    if (const Status copied = m_memory.copy(m_kept.back().get(), data, bytes); !copied.ok())
        m_reserved = copied;
    return m_kept.back().get();
}

std::vector<std::pair<std::string, std::int64_t>> CudaDevice::libraryWorkspace() const
{
    auto bytes = m_gpu->libraryBytes();
    bytes.emplace_back("kernel scratch", m_queue.scratchBytes());
    bytes.emplace_back("position tables", tableBytes());
    for (const auto &[name, host] : m_host.libraryWorkspace())
        bytes.emplace_back("host " + name, host);
    return bytes;
}

// ---------------------------------------------------------------------------------------------------- on the queue

void CudaDevice::fill(void *at, std::int64_t bytes)
{
    noteFailure(m_gpu->fill(at, bytes, currentQueue().stream));
}

void CudaDevice::copy(void *to, const void *from, std::int64_t bytes)
{
    noteFailure(m_gpu->copy(to, from, bytes, currentQueue().stream));
}

void CudaDevice::fillRows(void *at, std::int64_t stride, std::int64_t bytes, std::int64_t rows)
{
    noteFailure(m_gpu->fillRows(at, stride, bytes, rows, currentQueue().stream));
}

void CudaDevice::copyRows(void *to, std::int64_t toStride, const void *from, std::int64_t fromStride,
                          std::int64_t bytes, std::int64_t rows)
{
    noteFailure(m_gpu->copyRows(to, toStride, from, fromStride, bytes, rows, currentQueue().stream));
}

void CudaDevice::add(DType type, const void *from, void *to, std::int64_t count)
{
    const Number number = type == DType::F32 ? Number::F32
        : type == DType::F64                 ? Number::F64
        : type == DType::BF16                ? Number::Bf16
                                             : Number::Half;
    m_gpu->tables().add[static_cast<int>(number)](from, to, count);
}

void CudaDevice::encode(const kernels::Encoding &e)
{
    EncodeCall call;
    call.shape = shapeOf(*e.compression, e.count);
    call.shape.halfUnits = plan::usedUnits(plan::CodeForm::Half, *e.compression, e.type, e.count);
    call.shape.byteUnits = plan::usedUnits(plan::CodeForm::Byte, *e.compression, e.type, e.count);
    call.adaptive = e.compression->mode == "adaptive";
    call.form = e.compression->mode == "int8" ? call.shape.byte : call.shape.half;
    call.lossScale = e.lossScale;
    call.threshold = e.compression->threshold;
    call.gradient = e.gradient;
    call.error = e.error;
    call.code = e.code;
    call.scratch = e.scratch;
    m_gpu->tables().encode[e.type == DType::F64 ? 1 : 0](call);
}

void CudaDevice::decode(const kernels::Decoding &d)
{
    DecodeCall call;
    call.shape = shapeOf(*d.compression, d.all);
    call.codes = d.codes;
    call.stride = d.stride;
    call.ranks = d.ranks;
    call.begin = d.begin;
    call.count = d.count;
    call.out = d.out;
    call.accumulate = d.accumulate;
    m_gpu->tables().decode[d.type == DType::F64 ? 1 : 0](call);
}

Result<std::unique_ptr<exec::BoundOp>> CudaDevice::bindFileCopy(const kernels::Transfer &)
{
    return std::unique_ptr<exec::BoundOp>();
}

} // namespace rankyard::cuda
