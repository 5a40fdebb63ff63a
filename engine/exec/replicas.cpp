// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/exec/replicas.h"

#include "engine/comm/reduce.h"
#include "engine/exec/elements.h"
#include "engine/plan/shard.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>

namespace rankyard::exec {

namespace {

using plan::OpKind;

/// Zeroed memory, aligned to 64 as arenas are.
class Block
{
public:
    explicit Block(std::int64_t bytes = 0) : m_bytes(bytes), m_words(static_cast<std::size_t>(bytes + 64)) {}
    std::byte *data()
    {
        const auto address = reinterpret_cast<std::uintptr_t>(m_words.data());
        return m_words.data() + (64 - address % 64) % 64;
    }
    void clear() { std::memset(data(), 0, static_cast<std::size_t>(m_bytes)); }

private:
    std::int64_t m_bytes;
    std::vector<std::byte> m_words;
};

/// A bucket of one rank of the layout.
struct Part {
    int rank = 0;
    std::int32_t bucket = plan::none;
    Block gradients, sum;
    std::vector<std::unique_ptr<BoundOp>> ops; ///< Encode, then after all of the group's Decode
};

class ReplicaDevice : public Device
{
public:
    ReplicaDevice(std::unique_ptr<Device> inner, const plan::Plan &layout)
        : m_inner(std::move(inner)),
          m_layout(layout),
          m_converts(layout.job.precision.reduce != layout.job.precision.grad)
    {}

    std::string name() const override { return m_inner->name(); }
    void setThreads(int threads) override { m_inner->setThreads(threads); }
    std::vector<std::pair<std::string, std::int64_t>> libraryWorkspace() const override
    {
        return m_inner->libraryWorkspace();
    }
    Result<std::unique_ptr<BoundOp>> bind(const BindContext &context, const plan::Op &op) override;
    void exchange(StepState &state);

private:
    /// Gradients of one replica. A tied embedding on two stages has a gradient on each.
    struct Replica {
        Block whole, head;
    };

    Status prepare(const BindContext &context);
    Status bindBuckets();
    Result<std::unique_ptr<BoundOp>> bindBackward(const BindContext &context, const plan::Op &op);
    bool compressed(const plan::StepProgram &program, std::int32_t bucket) const
    {
        return std::any_of(program.ops.begin(), program.ops.end(), [&](const plan::Op &op) {
            return op.kind == OpKind::Encode && op.chunk == bucket;
        });
    }
    const plan::Tensor &tensorOf(const std::string &name) const;
    std::byte *gradientOf(Block &block, const plan::Tensor &tensor, std::int64_t element);
    void sumExactly();
    void sumConverted();
    void sumConverted(const plan::Tensor &tensor);
    std::vector<std::byte> reduced(const std::vector<std::vector<std::byte>> &contributions,
                                   std::int64_t count) const;
    std::vector<std::byte> converted(DType from, const std::byte *values, DType to, std::int64_t count) const;
    /// Replica by replica, each micro-batch apart where each is reduced by itself.
    std::int64_t apart() const
    {
        const spec::JobSpec &job = m_layout.job;
        return m_converts && job.zero.stage >= 2 ? job.microBatches() : 1;
    }
    void move(Part &part, bool in);

    std::unique_ptr<Device> m_inner;
    const plan::Plan &m_layout;
    const plan::StepProgram *m_program = nullptr; ///< of the one rank
    std::vector<std::byte *> m_address;           ///< its buffers
    std::int64_t m_bytes = 0;                     ///< of all gradients
    DType m_type = DType::F32;
    bool m_converts = false; ///< gradients are summed in another type
    bool m_apart = false;    ///< a tied embedding's two gradients
    std::vector<Replica> m_replicas;
    std::deque<plan::Op> m_ops; ///< as they are bound
    std::vector<Part> m_parts;
    std::map<std::pair<int, std::int32_t>, Block> m_codes;  ///< by a group's first rank and bucket
    std::map<std::pair<int, std::int32_t>, Block> m_errors; ///< by rank and bucket
};

/// The first gradient norm of a step: what stands before it has made every gradient.
class FirstNorm : public BoundOp
{
public:
    FirstNorm(ReplicaDevice &device, std::unique_ptr<BoundOp> norm)
        : m_device(device),
          m_norm(std::move(norm))
    {}
    void run(StepState &state) override
    {
        m_device.exchange(state);
        m_norm->run(state);
    }

private:
    ReplicaDevice &m_device;
    std::unique_ptr<BoundOp> m_norm;
};

Result<std::unique_ptr<BoundOp>> ReplicaDevice::bind(const BindContext &context, const plan::Op &op)
{
    if (context.program->kind != plan::ProgramKind::Train)
        return m_inner->bind(context, op);
    if (!m_program)
        RY_TRY(prepare(context));
    if (op.microbatch != plan::none)
        return bindBackward(context, op);
    RY_ASSIGN(std::unique_ptr<BoundOp> bound, m_inner->bind(context, op));
    if (op.kind != OpKind::GradNorm || op.chunk != 0)
        return bound;
    return std::unique_ptr<BoundOp>(std::make_unique<FirstNorm>(*this, std::move(bound)));
}

Status ReplicaDevice::prepare(const BindContext &context)
{
    m_program = context.program;
    m_address.assign(context.address.begin(), context.address.end());
    for (const plan::Arena &arena : m_program->arenas) {
        if (arena.kind == plan::MemoryKind::Grads)
            m_bytes = arena.bytes;
    }
    m_type = m_program->buffer(m_program->buckets.front().grad).dtype;
    for (int rank = 0; rank < m_layout.grid.world() && !m_apart; ++rank) {
        for (const plan::Tensor &tensor : m_layout.program(plan::ProgramKind::Train, rank).tensors)
            m_apart = m_apart || !tensor.counted;
    }
    for (std::int64_t i = 0; i < m_layout.job.layout.dp * apart(); ++i)
        m_replicas.push_back({Block(m_bytes), Block(m_apart ? m_bytes : 0)});
    return bindBuckets();
}

/// Every rank's codec, at work on what that rank would have.
Status ReplicaDevice::bindBuckets()
{
    const auto bind = [&](Part &part, OpKind kind) -> Status {
        const plan::StepProgram &program = m_layout.program(plan::ProgramKind::Train, part.rank);
        const plan::Bucket &bucket = program.buckets[static_cast<std::size_t>(part.bucket)];
        const plan::Group &group = program.groups[static_cast<std::size_t>(bucket.group)];
        const int first = m_layout.grid.members(part.rank, group).front();
        const int place = m_layout.grid.indexIn(part.rank, group);
        for (const plan::Op &op : program.ops) {
            if (op.kind != kind || op.chunk != part.bucket)
                continue;
            std::vector<std::byte *> address(program.buffers.size(), nullptr);
            const auto at = [&](plan::BufferId id) -> std::byte *& {
                return address[static_cast<std::size_t>(id)];
            };
            at(bucket.grad) = part.gradients.data();
            if (bucket.error != plan::none)
                at(bucket.error) =
                    m_errors.try_emplace({part.rank, part.bucket}, program.buffer(bucket.error).bytes)
                        .first->second.data();
            if (kind == OpKind::Encode) {
                const std::int64_t bytes = program.buffer(op.writes[0]).bytes;
                Block &codes = m_codes.try_emplace({first, part.bucket}, bytes * group.size).first->second;
                at(op.writes[0]) = codes.data() + place * bytes;
            } else {
                at(op.reads[0]) = m_codes.at({first, part.bucket}).data();
                at(bucket.gradSlice) = part.sum.data();
            }
            RY_ASSIGN(auto bound, m_inner->bind({&m_layout, &program, address, part.rank}, op));
            part.ops.push_back(std::move(bound));
        }
        return {};
    };
    for (int rank = 0; rank < m_layout.grid.world(); ++rank) {
        const plan::StepProgram &program = m_layout.program(plan::ProgramKind::Train, rank);
        for (std::size_t i = 0; i < program.buckets.size(); ++i) {
            const plan::Bucket &bucket = program.buckets[i];
            if (!compressed(program, static_cast<std::int32_t>(i)))
                continue;
            Part part;
            part.rank = rank;
            part.bucket = static_cast<std::int32_t>(i);
            part.gradients = Block(program.buffer(bucket.grad).bytes);
            part.sum = Block(program.buffer(bucket.gradSlice).bytes);
            m_parts.push_back(std::move(part));
        }
    }
    for (const OpKind kind : {OpKind::Encode, OpKind::Decode}) {
        for (Part &part : m_parts)
            RY_TRY(bind(part, kind));
    }
    return {};
}

/// The op with the gradients of its replica, to which it adds: they are zero before the replica's first micro-batch.
Result<std::unique_ptr<BoundOp>> ReplicaDevice::bindBackward(const BindContext &context, const plan::Op &op)
{
    std::vector<std::byte *> address(context.address.begin(), context.address.end());
    const auto replica = static_cast<std::size_t>(op.microbatch / (m_layout.job.microBatches() / apart()));
    m_ops.push_back(op);
    for (const plan::BufferId id : op.writes) {
        const plan::Buffer &buffer = context.program->buffer(id);
        if (buffer.kind != plan::MemoryKind::Grads)
            continue;
        const plan::Tensor &tensor = context.program->tensors[static_cast<std::size_t>(buffer.tensor)];
        const bool head = m_apart && tensor.name == "wte.weight" && op.unit.kind == plan::UnitKind::Head;
        Block &block = head ? m_replicas.at(replica).head : m_replicas.at(replica).whole;
        address[static_cast<std::size_t>(id)] = gradientOf(block, tensor, 0);
        m_ops.back().accumulate = true;
    }
    BindContext moved = context;
    moved.address = address;
    return m_inner->bind(moved, m_ops.back());
}

const plan::Tensor &ReplicaDevice::tensorOf(const std::string &name) const
{
    return *std::find_if(m_program->tensors.begin(), m_program->tensors.end(),
                         [&](const plan::Tensor &tensor) { return tensor.name == name; });
}

/// Gradients lie in a block as in the arena of the one rank.
std::byte *ReplicaDevice::gradientOf(Block &block, const plan::Tensor &tensor, std::int64_t element)
{
    return block.data() + plan::offsetOf(*m_program, tensor.grad, 0)
        + element * static_cast<std::int64_t>(bytesOf(m_type));
}

// ----------------------------------------------------------------------------------------------------- step

/// The gradients as the sum of all replicas', without any codec.
void ReplicaDevice::sumExactly()
{
    for (const plan::Tensor &tensor : m_program->tensors) {
        std::vector<double> sum(static_cast<std::size_t>(tensor.numel), 0.0), values(sum.size());
        for (Replica &replica : m_replicas) {
            for (Block *block : {&replica.whole, &replica.head}) {
                if (block == &replica.head && !m_apart)
                    continue;
                loadElements(m_type, gradientOf(*block, tensor, 0), 0, values.data(), tensor.numel);
                for (std::size_t i = 0; i < sum.size(); ++i)
                    sum[i] += values[i];
            }
        }
        storeElements(m_type, m_address[static_cast<std::size_t>(tensor.grad)], 0, sum.data(), tensor.numel);
    }
}

std::vector<std::byte> ReplicaDevice::converted(DType from, const std::byte *values, DType to,
                                                std::int64_t count) const
{
    std::vector<double> wide(static_cast<std::size_t>(count));
    std::vector<std::byte> result(wide.size() * bytesOf(to));
    loadElements(from, values, 0, wide.data(), count);
    storeElements(to, result.data(), 0, wide.data(), count);
    return result;
}

/// As a communicator sums: in the ranks' order, rounded once. One contribution is its own sum.
std::vector<std::byte> ReplicaDevice::reduced(const std::vector<std::vector<std::byte>> &contributions,
                                              std::int64_t count) const
{
    std::vector<std::byte> sum(contributions.front().size());
    std::vector<const void *> inputs;
    for (const std::vector<std::byte> &each : contributions)
        inputs.push_back(each.data());
    comm::reduce(m_layout.job.precision.reduce, comm::ReduceOp::Sum, inputs.data(),
                 static_cast<int>(inputs.size()), sum.data(), count);
    return sum;
}

/// In precision.reduce over the replicas of a block, over blocks, over the copies of a tied embedding; micro-batches' sums add up in
/// precision.grad before blocks are summed.
void ReplicaDevice::sumConverted(const plan::Tensor &tensor)
{
    const spec::JobSpec &job = m_layout.job;
    const DType type = job.precision.reduce;
    const std::int64_t count = tensor.numel, dp = job.layout.dp, times = apart();
    const std::int64_t block = plan::shardRanks(job) > 0 ? plan::shardRanks(job) : dp;
    std::vector<std::vector<std::byte>> copies; // of a tied embedding: one on each end
    for (Block Replica::*copy : {&Replica::whole, &Replica::head}) {
        if (copy == &Replica::head && !(m_apart && tensor.name == "wte.weight"))
            continue;
        std::vector<std::vector<std::byte>> blocks;
        for (std::int64_t first = 0; first < dp; first += block) {
            std::vector<double> sum(static_cast<std::size_t>(count), 0.0), values(sum.size());
            for (std::int64_t time = 0; time < times; ++time) {
                std::vector<std::vector<std::byte>> contributions;
                for (std::int64_t replica = first; replica < first + block; ++replica) {
                    Replica &own = m_replicas[static_cast<std::size_t>(replica * times + time)];
                    contributions.push_back(converted(m_type, gradientOf(own.*copy, tensor, 0), type, count));
                }
                const std::vector<std::byte> one = reduced(contributions, count);
                loadElements(type, one.data(), 0, values.data(), count);
                for (std::size_t i = 0; i < sum.size(); ++i)
                    sum[i] += values[i];
                std::vector<std::byte> rounded(sum.size() * bytesOf(m_type));
                storeElements(m_type, rounded.data(), 0, sum.data(), count);
                loadElements(m_type, rounded.data(), 0, sum.data(), count);
            }
            if (times > 1 && block == dp) { // no second sum: as they have added up
                storeElements(m_type, m_address[static_cast<std::size_t>(tensor.grad)], 0, sum.data(), count);
                return;
            }
            std::vector<std::byte> back(sum.size() * bytesOf(type));
            storeElements(type, back.data(), 0, sum.data(), count);
            blocks.push_back(std::move(back));
        }
        copies.push_back(reduced(blocks, count));
    }
    const std::vector<std::byte> sum = converted(type, reduced(copies, count).data(), m_type, count);
    std::memcpy(m_address[static_cast<std::size_t>(tensor.grad)], sum.data(), sum.size());
}

/// What no other rank has is not converted.
void ReplicaDevice::sumConverted()
{
    for (const plan::Tensor &tensor : m_program->tensors) {
        if (m_layout.job.layout.dp > 1 || (m_apart && tensor.name == "wte.weight"))
            sumConverted(tensor);
    }
}

/// Between the one rank's gradients and a rank's bucket: its replica's in, or the decoded sum out, where copies of a tied
/// embedding add up.
void ReplicaDevice::move(Part &part, bool in)
{
    const plan::StepProgram &program = m_layout.program(plan::ProgramKind::Train, part.rank);
    const auto replica = static_cast<std::size_t>(m_layout.grid.coordinate(part.rank, "dp"));
    const auto ranges = in ? plan::wholeOf(program, m_layout.grid, part.rank, part.bucket)
                           : plan::shardOf(program, m_layout.grid, part.rank, part.bucket);
    const bool sliced = program.buckets[static_cast<std::size_t>(part.bucket)].slices > 1;
    std::vector<double> values, before;
    for (const plan::ShardRange &range : ranges) {
        const plan::Tensor &theirs = program.tensors[static_cast<std::size_t>(range.tensor)];
        const plan::Tensor &own = tensorOf(theirs.name);
        const std::int64_t count = range.end - range.begin;
        values.resize(static_cast<std::size_t>(count));
        before.resize(values.size());
        if (in) {
            Block &block = theirs.counted ? m_replicas[replica].whole : m_replicas[replica].head;
            loadElements(m_type, gradientOf(block, own, range.begin), 0, values.data(), count);
            storeElements(m_type, part.gradients.data(), range.at, values.data(), count);
        } else if (sliced || replica == 0) {
            std::byte *to = m_address[static_cast<std::size_t>(own.grad)];
            loadElements(m_type, part.sum.data(), range.at, values.data(), count);
            loadElements(m_type, to, range.begin, before.data(), count);
            for (std::size_t i = 0; i < values.size(); ++i)
                values[i] += before[i];
            storeElements(m_type, to, range.begin, values.data(), count);
        }
    }
}

void ReplicaDevice::exchange(StepState &state)
{
    sumExactly();
    if (m_converts)
        sumConverted();
    for (const Part &part : m_parts) {
        const plan::StepProgram &program = m_layout.program(plan::ProgramKind::Train, part.rank);
        for (const plan::TensorId id : program.buckets[static_cast<std::size_t>(part.bucket)].tensors) {
            const plan::Tensor &own = tensorOf(program.tensors[static_cast<std::size_t>(id)].name);
            std::memset(m_address[static_cast<std::size_t>(own.grad)], 0,
                        static_cast<std::size_t>(m_program->buffer(own.grad).bytes));
        }
    }
    for (Part &part : m_parts) {
        move(part, true);
        part.ops.at(0)->run(state);
    }
    for (Part &part : m_parts) {
        part.ops.at(1)->run(state);
        move(part, false);
    }
    for (Replica &replica : m_replicas) {
        replica.whole.clear();
        replica.head.clear();
    }
}

} // namespace

std::unique_ptr<Device> makeReplicaDevice(std::unique_ptr<Device> inner, const plan::Plan &layout)
{
    return std::make_unique<ReplicaDevice>(std::move(inner), layout);
}

} // namespace rankyard::exec
