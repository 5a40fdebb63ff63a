// SPDX-License-Identifier: GPL-3.0-or-later
// The ops of a context-parallel attention (the table in engine/plan/units.h), rank by rank with the messages copied by hand,
// against the plain attention over the whole sequences.
#include "engine/kernels/cpu_device.h"
#include "engine/plan/units.h"
#include "tests/engine/kernels/storage.h"

#include <deque>

using namespace rankyard;
using namespace rankyard::kernels;
using namespace rankyard::kernels::test;
using plan::OpKind;
using plan::Segment;

namespace {

/// One context rank's op table, memory and device.
class Rank
{
public:
    Rank(const spec::JobSpec &job, int rank) : m_plan{job, plan::RankGrid(job.layout), {}}, m_rank(rank)
    {
        m_program.kind = plan::ProgramKind::Train;
    }

    plan::BufferId add(std::int64_t rows, std::int64_t width)
    {
        plan::Buffer buffer;
        buffer.id = static_cast<plan::BufferId>(m_program.buffers.size());
        buffer.dtype = DType::F64;
        buffer.shape = {rows, width};
        buffer.bytes = rows * width * 8;
        m_program.buffers.push_back(buffer);
        m_memory.emplace_back(DType::F64, Values(static_cast<std::size_t>(rows * width), NAN));
        return buffer.id;
    }
    Storage &at(plan::BufferId id) { return m_memory[static_cast<std::size_t>(id)]; }

    void run(OpKind kind, Segment segment, int chunk, bool accumulate, std::vector<plan::BufferId> reads,
             std::vector<plan::BufferId> writes)
    {
        plan::Op op;
        op.kind = kind;
        op.unit = {plan::UnitKind::Attention, 1};
        op.segment = segment;
        op.microbatch = 0;
        op.chunk = chunk;
        op.accumulate = accumulate;
        op.reads = std::move(reads);
        op.writes = std::move(writes);
        std::vector<std::byte *> address;
        for (Storage &storage : m_memory)
            address.push_back(static_cast<std::byte *>(storage.data()));
        exec::BindContext context;
        context.plan = &m_plan;
        context.program = &m_program;
        context.address = address;
        context.rank = m_rank;
        auto bound = m_device.bind(context, op);
        ASSERT_TRUE(bound.ok()) << bound.error().text();
        exec::StepState state;
        state.batch = 3;
        (*bound)->run(state);
    }

private:
    plan::Plan m_plan;
    plan::StepProgram m_program;
    std::deque<Storage> m_memory;
    CpuDevice m_device{2, detectIsa()};
    int m_rank;
};

struct Buffers {
    plan::BufferId qkv, o, lse, dO, dqkv;
    std::vector<plan::BufferId> kv, dkv; ///< by step of the ring
};

void expectRing(const spec::JobSpec &job)
{
    const plan::Split split(job);
    const auto ranks = static_cast<int>(job.layout.cp);
    const std::int64_t seq = job.model.seq, rows = split.tokens, local = seq / ranks,
                       samples = job.batch.micro;
    const reference::AttentionShape shape{seq, split.heads, split.keyHeads, split.headSize};
    const Values qkv = randomValues(static_cast<std::size_t>(samples * seq * shape.width()), 1);
    const Values dO = randomValues(static_cast<std::size_t>(samples * seq * split.qWidth()), 2);
    /// Calls f(place on the rank, place in the whole) for every element of rows of `width`.
    const auto forLocal = [&](int rank, std::int64_t width, auto f) {
        for (std::int64_t row = 0; row < rows; ++row) {
            const std::int64_t whole = row / local * seq + plan::positionOf(row % local, seq, rank, ranks);
            for (std::int64_t i = 0; i < width; ++i)
                f(static_cast<std::size_t>(row * width + i), static_cast<std::size_t>(whole * width + i));
        }
    };
    std::deque<Rank> all;
    std::vector<Buffers> buffers;
    for (int r = 0; r < ranks; ++r) {
        Rank &rank = all.emplace_back(job, r);
        Buffers b{rank.add(rows, shape.width()),
                  rank.add(rows, split.qWidth()),
                  rank.add(split.heads, rows),
                  rank.add(rows, split.qWidth()),
                  rank.add(rows, shape.width()),
                  {},
                  {}};
        for (int k = 0; k < ranks; ++k) {
            b.kv.push_back(rank.add(rows, split.kvWidth()));
            b.dkv.push_back(rank.add(rows, split.kvWidth()));
        }
        forLocal(r, shape.width(),
                 [&](std::size_t mine, std::size_t whole) { rank.at(b.qkv).set(mine, qkv[whole]); });
        forLocal(r, split.qWidth(),
                 [&](std::size_t mine, std::size_t whole) { rank.at(b.dO).set(mine, dO[whole]); });
        rank.run(OpKind::Forward, Segment::Kv, plan::none, false, {b.qkv}, {b.kv[0]});
        buffers.push_back(b);
    }
    const auto at = [&](int r) { return static_cast<std::size_t>((r + ranks) % ranks); };
    const auto step = [](int k) { return static_cast<std::size_t>(k); };
    for (int k = 0; k < ranks; ++k) {
        for (int r = 0; r < ranks; ++r) {
            Buffers &b = buffers[at(r)];
            if (k > 0)
                all[at(r)].at(b.kv[step(k)]) = all[at(r - 1)].at(buffers[at(r - 1)].kv[step(k - 1)]);
            all[at(r)].run(OpKind::Forward, Segment::Core, k, false, {b.qkv, b.kv[step(k)]}, {b.o, b.lse});
        }
    }
    // Gradients of keys travel with them: block k of rank r adds to what rank r − 1 gave for its block k − 1.
    for (int k = 0; k < ranks; ++k) {
        for (int r = 0; r < ranks; ++r) {
            Buffers &b = buffers[at(r)];
            if (k > 0)
                all[at(r)].at(b.dkv[step(k)]) = all[at(r - 1)].at(buffers[at(r - 1)].dkv[step(k - 1)]);
            all[at(r)].run(OpKind::BackwardInput, Segment::Core, k, k > 0,
                           {b.dO, b.qkv, b.kv[step(k)], b.o, b.lse}, {b.dqkv, b.dkv[step(k)]});
        }
    }
    for (int r = 0; r < ranks; ++r) { // home again
        Buffers &b = buffers[at(r)];
        const plan::BufferId home = all[at(r)].add(rows, split.kvWidth());
        all[at(r)].at(home) = all[at(r - 1)].at(buffers[at(r - 1)].dkv.back());
        all[at(r)].run(OpKind::BackwardInput, Segment::Kv, plan::none, false, {home}, {b.dqkv});
    }
    reference::Factor factor;
    Dropout dropout;
    if (job.model.dropout > 0) {
        dropout.key[0] = static_cast<std::uint32_t>(job.init.seed);
        dropout.key[1] = static_cast<std::uint32_t>(job.init.seed >> 32) ^ 4; // 3·layer + 1
        dropout.purpose = 2;
        dropout.threshold = static_cast<std::uint32_t>(std::ceil(job.model.dropout * 0x1p32));
        dropout.scale = 1 / (1 - job.model.dropout);
        factor = [&](std::int64_t token, std::int64_t head, std::int64_t key) {
            return reference::dropFactor(dropout,
                                         static_cast<std::uint32_t>(3 * job.batch.global + token / seq),
                                         static_cast<std::uint32_t>(token % seq),
                                         static_cast<std::uint32_t>(head), static_cast<std::uint32_t>(key));
        };
    }
    const auto wanted = reference::attention(qkv, shape, factor);
    const Values gradients = reference::attentionGradients(dO, qkv, shape, factor);
    Values o(wanted.o.size()), dqkv(gradients.size());
    for (int r = 0; r < ranks; ++r) {
        forLocal(r, split.qWidth(), [&](std::size_t mine, std::size_t whole) {
            o[whole] = all[at(r)].at(buffers[at(r)].o).get(mine);
        });
        forLocal(r, shape.width(), [&](std::size_t mine, std::size_t whole) {
            dqkv[whole] = all[at(r)].at(buffers[at(r)].dqkv).get(mine);
        });
    }
    expectClose(o, wanted.o, 1e-13, "o");
    expectClose(dqkv, gradients, 1e-13, "dqkv");
}

} // namespace

TEST(Ring, GivesWhatWholeSequencesGive)
{
    for (const int ranks : {2, 3, 5}) {
        for (const double dropout : {0.0, 0.2}) {
            SCOPED_TRACE(std::to_string(ranks) + " ranks, dropout " + std::to_string(dropout));
            spec::JobSpec job;
            job.model.family = "llama";
            job.model.heads = 4;
            job.model.kvHeads = 2;
            job.model.headDim = 6;
            job.model.seq = 2 * ranks * 7;
            job.model.dropout = dropout;
            job.batch.micro = job.batch.global = 2;
            job.layout.cp = ranks;
            job.precision.compute = DType::F64;
            expectRing(job);
        }
    }
}
