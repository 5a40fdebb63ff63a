// SPDX-License-Identifier: GPL-3.0-or-later
#include "tests/engine/exec/toy.h"

#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <numeric>

namespace rankyard::exec::test {

using namespace plan;

spec::JobSpec tinyJob(int dp)
{
    spec::JobSpec job;
    job.model.layers = 2;
    job.model.hidden = 16;
    job.model.heads = 2;
    job.model.seq = 8;
    job.model.vocab = 37;
    job.batch.global = 30 * dp / std::gcd(30, dp);
    job.batch.micro = 1;
    job.layout.dp = dp;
    job.zero.stage = 1;
    job.zero.bucketBytes = 4096;
    job.precision.compute = job.precision.grad = job.precision.master = job.precision.reduce = DType::F64;
    job.data.train = "none";
    return job;
}

namespace {

constexpr std::int64_t bucketNumel[] = {6, 5};

/// Builds buffers and ops of the toy one after the other.
struct Builder {
    StepProgram program;
    std::int64_t offsets[5] = {};

    BufferId add(std::string name, ArenaId arena, DType type, std::int64_t count)
    {
        Buffer buffer;
        buffer.id = static_cast<BufferId>(program.buffers.size());
        buffer.name = std::move(name);
        buffer.arena = arena;
        buffer.kind = program.arenas[static_cast<std::size_t>(arena)].kind;
        buffer.dtype = type;
        buffer.shape = {count};
        buffer.bytes = count * static_cast<std::int64_t>(bytesOf(type));
        buffer.offset = offsets[arena];
        buffer.shared = program.arenas[static_cast<std::size_t>(arena)].shared;
        buffer.persistent = true;
        offsets[arena] += (buffer.bytes + 63) / 64 * 64;
        program.buffers.push_back(buffer);
        return buffer.id;
    }
    BufferId view(BufferId parent, std::string name, std::int64_t count, GroupId sliceGroup)
    {
        Buffer buffer = program.buffer(parent);
        buffer.id = static_cast<BufferId>(program.buffers.size());
        buffer.name = std::move(name);
        buffer.parent = parent;
        buffer.shape = {count};
        buffer.bytes = count * 8;
        buffer.sliceGroup = sliceGroup;
        program.buffers.push_back(buffer);
        return buffer.id;
    }
    OpId op(OpKind kind, Stream stream, GroupId group, std::int32_t chunk, std::vector<BufferId> reads,
            std::vector<BufferId> writes, std::vector<OpId> waits)
    {
        Op op;
        op.id = static_cast<OpId>(program.ops.size());
        op.kind = kind;
        op.stream = stream;
        op.group = group;
        op.chunk = chunk;
        op.reads = std::move(reads);
        op.writes = std::move(writes);
        op.waits = std::move(waits);
        if (isCollective(kind))
            op.payload = program.buffer(op.writes[0]).bytes;
        if (kind == OpKind::LoadBatch)
            op.microbatch = 0;
        program.ops.push_back(op);
        return op.id;
    }
};

} // namespace

Plan toyPlan(int dp)
{
    spec::JobSpec job;
    job.layout.dp = dp;
    job.model.seq = toyNumel;
    job.batch.micro = 12 / dp;
    job.batch.global = 12;
    job.optimizer.clip = 0.75;
    Builder b;
    if (dp > 1) {
        b.program.groups = {{0, "dp", {"dp"}, dp}, {1, "world", {"tp", "cp", "dp", "pp"}, dp}};
    }
    b.program.arenas = {{0, MemoryKind::Params, 0, dp > 1},
                        {1, MemoryKind::Activations, 0, false},
                        {2, MemoryKind::Workspace, 0, false},
                        {3, MemoryKind::Grads, 0, dp > 1},
                        {4, MemoryKind::Optimizer, 0, false}};
    for (std::size_t i = 0; i < 2; ++i) {
        Bucket bucket;
        bucket.numel = bucketNumel[i];
        bucket.slices = dp;
        bucket.group = dp > 1 ? 0 : none;
        bucket.padded = (bucket.numel + dp - 1) / dp * dp;
        bucket.tensors = {static_cast<TensorId>(i)};
        bucket.param = bucket.paramSlice = b.add("params", 0, DType::F64, bucket.padded);
        bucket.grad = bucket.gradSlice = b.add("grads", 3, DType::F64, bucket.padded);
        if (dp > 1) {
            bucket.paramSlice = b.view(bucket.param, "params.slice", bucket.padded / dp, 0);
            bucket.gradSlice = b.view(bucket.grad, "grads.slice", bucket.padded / dp, 0);
        }
        bucket.exp1 = b.add("exp1", 4, DType::F64, bucket.padded / dp);
        bucket.exp2 = b.add("exp2", 4, DType::F64, bucket.padded / dp);
        Tensor tensor;
        tensor.id = static_cast<TensorId>(i);
        tensor.index = static_cast<std::int32_t>(i);
        tensor.name = "w" + std::to_string(i);
        tensor.shape = {bucket.numel};
        tensor.numel = bucket.numel;
        tensor.bucket = static_cast<std::int32_t>(i);
        tensor.param = b.view(bucket.param, tensor.name, bucket.numel, none);
        tensor.grad = b.view(bucket.grad, "grad:" + tensor.name, bucket.numel, none);
        b.program.buckets.push_back(bucket);
        b.program.tensors.push_back(tensor);
    }
    const std::int64_t tokens = job.batch.micro * toyNumel;
    const BufferId in = b.add("tokens", 1, DType::I32, tokens);
    const BufferId labels = b.add("labels", 1, DType::I32, tokens);
    const BufferId stats = b.program.stats = b.add("stats", 2, DType::F64, 2 + statsSlots);
    const auto &buckets = b.program.buckets;
    const auto &tensors = b.program.tensors;
    std::vector<OpId> gathers, reductions;
    for (std::int32_t i = 1; dp > 1 && i >= 0; --i)
        gathers.push_back(
            b.op(OpKind::AllGather, Stream::Data, 0, i, {buckets[i].paramSlice}, {buckets[i].param}, {}));
    b.op(OpKind::LoadBatch, Stream::Compute, none, none, {}, {in, labels}, {});
    const OpId loss =
        b.op(OpKind::Forward, Stream::Compute, none, none, {in, tensors[0].param, tensors[1].param},
             {stats, tensors[0].grad, tensors[1].grad}, gathers);
    for (std::int32_t i = 0; dp > 1 && i < 2; ++i)
        reductions.push_back(
            b.op(OpKind::ReduceScatter, Stream::Data, 0, i, {buckets[i].grad}, {buckets[i].grad}, {loss}));
    OpId norm = none;
    for (std::int32_t i = 0; i < 2; ++i)
        norm =
            b.op(OpKind::GradNorm, Stream::Compute, none, i, {buckets[i].gradSlice}, {stats},
                 dp > 1 ? std::vector<OpId>{reductions[static_cast<std::size_t>(i)]} : std::vector<OpId>{});
    std::vector<OpId> reduced;
    if (dp > 1)
        reduced.push_back(b.op(OpKind::AllReduce, Stream::Data, 1, none, {stats}, {stats}, {norm}));
    b.op(OpKind::StepScalars, Stream::Compute, none, none, {stats}, {}, reduced);
    for (std::int32_t i = 0; i < 2; ++i)
        b.op(OpKind::Optimizer, Stream::Compute, none, i, {buckets[i].gradSlice},
             {buckets[i].paramSlice, buckets[i].exp1, buckets[i].exp2}, {});
    for (std::size_t arena = 0; arena < 5; ++arena)
        b.program.arenas[arena].bytes = b.offsets[arena];
    b.program.digest = digestOf(b.program);
    return Plan{job, RankGrid(job.layout), {std::move(b.program)}};
}

// --------------------------------------------------------------------------------------------------- kernels

namespace {

class ToyOp : public BoundOp
{
public:
    ToyOp(const BindContext &context, const Op &op)
        : m_program(*context.program),
          m_op(op),
          m_dpRank(context.indexIn(m_program.buckets[0].group))
    {
        m_address.assign(context.address.begin(), context.address.end());
    }

    void run(StepState &state) override
    {
        switch (m_op.kind) {
        case OpKind::Forward:
            loss(state);
            break;
        case OpKind::GradNorm:
            norm();
            break;
        default:
            update(state);
            break;
        }
    }

private:
    double *at(BufferId id) const
    {
        return reinterpret_cast<double *>(m_address[static_cast<std::size_t>(id)]);
    }
    const Bucket &bucket() const { return m_program.buckets[static_cast<std::size_t>(m_op.chunk)]; }

    void loss(StepState &state) const
    {
        const auto *tokens =
            reinterpret_cast<const std::int32_t *>(m_address[static_cast<std::size_t>(m_op.reads[0])]);
        const std::int64_t samples = numelOf(m_program.buffer(m_op.reads[0]).shape) / toyNumel;
        for (std::size_t b = 0; b < 2; ++b)
            std::fill_n(at(m_op.writes[1 + b]), m_program.buckets[b].padded, 0.0);
        for (std::int64_t s = 0; s < samples; ++s) {
            for (std::int64_t i = 0; i < toyNumel; ++i) {
                const std::size_t b = i < bucketNumel[0] ? 0 : 1;
                const std::int64_t place = i - (b ? bucketNumel[0] : 0);
                const double difference = at(m_op.reads[1 + b])[place] - tokens[s * toyNumel + i];
                at(m_op.writes[0])[2 + StatsLoss] += difference * difference / 2;
                at(m_op.writes[1 + b])[place] += difference * state.lossScale * state.lossWeight;
            }
            state.poll();
        }
    }
    void norm() const
    {
        double &sum = at(m_op.writes[0])[m_op.chunk];
        double &bad = at(m_op.writes[0])[2 + StatsNonFinite];
        for (std::int64_t i = 0; i < bucket().padded / bucket().slices; ++i) {
            const double g = at(m_op.reads[0])[i];
            sum += g * g;
            bad += std::isfinite(g) ? 0 : 1;
        }
    }
    void update(const StepState &state) const
    {
        for (std::int64_t i = 0; i < bucket().padded / bucket().slices; ++i)
            at(m_op.writes[0])[i] -= state.lr * state.gradFactor * at(m_op.reads[0])[i];
    }

    const StepProgram &m_program;
    const Op &m_op;
    int m_dpRank;
    std::vector<std::byte *> m_address;
};

class ToyDevice : public Device
{
public:
    std::string name() const override { return "toy"; }
    void setThreads(int) override {}
    Result<std::unique_ptr<BoundOp>> bind(const BindContext &context, const Op &op) override
    {
        return std::unique_ptr<BoundOp>(new ToyOp(context, op));
    }
    std::vector<std::pair<std::string, std::int64_t>> libraryWorkspace() const override { return {}; }
};

} // namespace

std::unique_ptr<Device> toyDevice() { return std::make_unique<ToyDevice>(); }

Status ToyData::fill(ProgramKind, std::int64_t batch, std::int64_t replica, std::int64_t,
                     std::int32_t *tokens, std::int32_t *labels)
{
    for (std::int64_t s = 0; s < share; ++s) {
        for (std::int64_t i = 0; i < toyNumel; ++i) {
            const std::int64_t j = replica * share + s;
            tokens[s * toyNumel + i] = static_cast<std::int32_t>((batch * 7 + j * 5 + i * 3) % 17);
            labels[s * toyNumel + i] = 0;
        }
    }
    return {};
}

// --------------------------------------------------------------------------------------------------- threads

void onThreadRanks(const Plan &plan, const std::function<std::unique_ptr<Device>()> &makeDevice,
                   DataSource &data, const std::function<void(ThreadRank &)> &body)
{
    auto ranks = ThreadRanks::make(plan, makeDevice, [&](int) { return &data; });
    if (!ranks) {
        ADD_FAILURE() << ranks.error().text();
        return;
    }
    const Status status = (*ranks)->each([&](ThreadRank &rank) -> Status {
        body(rank);
        return {};
    });
    EXPECT_TRUE(status.ok()) << status.error().text();
}

} // namespace rankyard::exec::test
