// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/probe/trial.h"

#include "engine/exec/init.h"
#include "engine/exec/thread_ranks.h"
#include "engine/probe/crew.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace rankyard::probe {

namespace {

using plan::Op;
using plan::StepProgram;

/// Tokens without meaning, other ones in each micro-batch.
class Noise : public exec::DataSource
{
public:
    explicit Noise(const spec::JobSpec &job)
        : m_count(job.batch.micro * job.model.seq),
          m_vocab(job.model.vocab)
    {}
    Status fill(plan::ProgramKind, std::int64_t batch, std::int64_t replica, std::int64_t microBatch,
                std::int32_t *tokens, std::int32_t *labels) override
    {
        auto state = static_cast<std::uint64_t>(1 + batch * 1031 + replica * 31 + microBatch);
        for (std::int64_t i = 0; i < m_count; ++i) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            tokens[i] = static_cast<std::int32_t>((state >> 33) % static_cast<std::uint64_t>(m_vocab));
            labels[i] = static_cast<std::int32_t>((state >> 13) % static_cast<std::uint64_t>(m_vocab));
        }
        return {};
    }
    std::int64_t evalBatches() const override { return 0; }

private:
    std::int64_t m_count, m_vocab;
};

/// Ops with equal keys do the same work.
using Key = std::tuple<plan::OpKind, plan::UnitKind, plan::Segment, std::int64_t, std::int64_t>;

Key keyOf(const StepProgram &program, const Op &op)
{
    std::int64_t bytes = 0;
    for (const auto *list : {&op.reads, &op.writes}) {
        for (const plan::BufferId id : *list)
            bytes = bytes * 31 + program.buffer(id).bytes;
    }
    return {op.kind, op.unit.kind, op.segment, op.rowEnd - op.rowBegin, bytes};
}

bool computes(const Op &op)
{
    return !plan::isTransfer(op.kind) && op.kind != plan::OpKind::LoadBatch
        && op.kind != plan::OpKind::StepScalars;
}

struct Seen {
    plan::OpId op = plan::none;
    std::vector<std::int64_t> durations;
};

} // namespace

Result<Trial> runTrial(const spec::JobSpec &job, const DeviceFactory &makeDevice, int steps)
{
    Trial trial;
    trial.job = job;
    RY_ASSIGN(plan::Plan made, plan::makePlan(job, plan::PlanDepth::Placed));
    trial.plan = std::make_unique<plan::Plan>(std::move(made));
    std::vector<std::unique_ptr<Noise>> data;
    const auto dataOf = [&](int) {
        data.push_back(std::make_unique<Noise>(job));
        return data.back().get();
    };
    RY_ASSIGN(const auto ranks, exec::ThreadRanks::make(*trial.plan, makeDevice, dataOf));
    const StepProgram &program = trial.plan->program(plan::ProgramKind::Train, 0);
    std::vector<std::map<Key, Seen>> seen(static_cast<std::size_t>(trial.plan->grid.world()));
    const Status run = ranks->each([&](exec::ThreadRank &rank) -> Status {
        bindToCores(rank.rank, trial.plan->grid.world());
        RY_TRY(exec::initialiseParameters(*trial.plan, *rank.arenas, rank.rank));
        for (int step = 1; step <= steps + 1; ++step) {
            exec::StepState &state = rank.executor->state();
            state.step = step;
            state.lossScale = 1;
            state.lossWeight = 1.0 / static_cast<double>(job.batch.global * job.model.seq);
            state.lr = 1e-4;
            RY_TRY(rank.executor->run(plan::ProgramKind::Train, step - 1));
            const exec::Execution &execution = *rank.executor->recent(0);
            for (const Op &op : program.ops) {
                if (step == 1 || !computes(op))
                    continue;
                const auto id = static_cast<std::size_t>(op.id);
                Seen &kind = seen[static_cast<std::size_t>(rank.rank)][keyOf(program, op)];
                kind.op = op.id;
                kind.durations.push_back(execution.opEnd[id] - execution.opBegin[id]);
            }
        }
        return {};
    });
    RY_TRY(run);
    std::map<Key, Seen> all;
    for (const auto &mine : seen) {
        for (const auto &[key, kind] : mine) {
            Seen &whole = all[key];
            whole.op = kind.op;
            whole.durations.insert(whole.durations.end(), kind.durations.begin(), kind.durations.end());
        }
    }
    for (auto &[key, kind] : all) {
        auto &durations = kind.durations;
        const auto middle = durations.begin() + static_cast<std::ptrdiff_t>(durations.size() / 2);
        std::nth_element(durations.begin(), middle, durations.end());
        trial.samples.push_back(
            {&program, kind.op, static_cast<int>(durations.size()), static_cast<double>(*middle) * 1e-9});
    }
    return trial;
}

std::vector<spec::JobSpec> trialJobs(int ranks, DType type)
{
    struct Size {
        const char *family;
        std::int64_t layers, hidden, heads, keyHeads, ffn, seq, vocab, micro;
    };
    static constexpr Size sizes[] = {
        {"gpt2", 2, 128, 4, 4, 512, 128, 512, 2},
        {"gpt2", 2, 384, 6, 6, 1536, 256, 4096, 4},
        {"gpt2", 1, 768, 12, 12, 3072, 512, 8192, 1},
        {"llama", 1, 512, 4, 2, 1408, 1024, 2048, 1},
    };
    std::vector<spec::JobSpec> jobs;
    for (const Size &size : sizes) {
        spec::JobSpec job;
        job.name = "probe";
        job.model.family = size.family;
        job.model.layers = size.layers;
        job.model.hidden = size.hidden;
        job.model.heads = size.heads;
        job.model.kvHeads = size.keyHeads;
        job.model.ffn = size.ffn;
        job.model.seq = size.seq;
        job.model.vocab = size.vocab;
        job.model.tied = job.model.family == "gpt2";
        job.data.train = "noise";
        job.batch.micro = size.micro;
        job.batch.global = 2 * size.micro * ranks;
        job.layout.dp = ranks;
        job.comm.overlapGrads = false;
        job.precision.compute = type;
        jobs.push_back(std::move(job));
    }
    return jobs;
}

} // namespace rankyard::probe
