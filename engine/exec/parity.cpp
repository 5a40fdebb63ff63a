// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/exec/parity.h"

#include "engine/exec/init.h"
#include "engine/exec/replicas.h"
#include "engine/exec/scaler.h"
#include "engine/plan/shard.h"
#include "engine/plan/units.h"

#include <algorithm>
#include <cmath>

namespace rankyard::exec {

namespace {

using Gradients = std::map<std::string, std::vector<double>>;

/// One layout of the job, stepped from outside.
class Side
{
public:
    Side(plan::Plan plan, ThreadRanks::DeviceFactory makeDevice, const ParityOptions &options)
        : m_plan(std::move(plan)),
          m_makeDevice(std::move(makeDevice)),
          m_options(options),
          m_scaler(m_plan.job.precision)
    {}

    Status start()
    {
        for (int rank = 0; rank < m_plan.grid.world(); ++rank) {
            RY_ASSIGN(m_data.emplace_back(), m_options.makeData(m_plan.job));
        }
        RY_ASSIGN(m_ranks, ThreadRanks::make(m_plan, m_makeDevice, [this](int rank) {
                      return m_data[static_cast<std::size_t>(rank)].get();
                  }));
        return m_ranks->each(
            [this](ThreadRank &rank) { return initialiseParameters(m_plan, *rank.arenas, rank.rank); });
    }

    /// What rank 0 saw of step `step`, from 1. `skips`: without an update, as after an overflow.
    Result<StepState> train(std::int64_t step, bool skips = false)
    {
        StepState seen;
        const spec::JobSpec &job = m_plan.job;
        const Status run = m_ranks->each([&](ThreadRank &rank) -> Status {
            StepState &state = rank.executor->state();
            state.step = step;
            state.lr = spec::learningRate(job, step);
            state.lossScale = skips ? INFINITY : m_scaler.scale();
            state.lossWeight =
                1.0 / (static_cast<double>(job.batch.global) * static_cast<double>(job.model.seq));
            RY_TRY(rank.executor->run(plan::ProgramKind::Train, step - 1));
            if (rank.rank == 0) {
                seen.loss = state.loss;
                seen.gradNorm = state.gradNorm;
                seen.overflow = state.overflow;
                seen.lossScale = state.lossScale;
            }
            return {};
        });
        RY_TRY(run);
        if (!skips)
            RY_TRY(m_scaler.update(seen.overflow));
        return seen;
    }

    Result<Gradients> gradients() { return gatherGradients(m_plan, *m_ranks); }

private:
    plan::Plan m_plan;
    ThreadRanks::DeviceFactory m_makeDevice;
    const ParityOptions &m_options;
    LossScaler m_scaler;
    std::vector<std::unique_ptr<DataSource>> m_data;
    std::unique_ptr<ThreadRanks> m_ranks;
};

double normOf(const std::vector<double> &values)
{
    double squares = 0;
    for (const double value : values)
        squares += value * value;
    return std::sqrt(squares);
}

double errorOf(const std::vector<double> &got, const std::vector<double> &wanted, double least)
{
    if (got.size() != wanted.size())
        return INFINITY;
    double squares = 0;
    for (std::size_t i = 0; i < got.size(); ++i)
        squares += (got[i] - wanted[i]) * (got[i] - wanted[i]);
    return std::sqrt(squares) / std::max(normOf(wanted), least);
}

void compareGradients(const Gradients &got, const Gradients &wanted, std::int64_t step, ParityWorst &worst)
{
    double squares = 0, count = 0;
    for (const auto &[name, values] : wanted) {
        squares += normOf(values) * normOf(values);
        count += static_cast<double>(values.size());
    }
    for (const auto &[name, values] : wanted) {
        const auto found = got.find(name);
        const double least =
            1e-6 * std::sqrt(squares) * std::sqrt(static_cast<double>(values.size()) / count);
        const double error = found == got.end() ? INFINITY : errorOf(found->second, values, least);
        if (!(error <= worst.relativeError) || worst.parameter.empty())
            worst = {name, {}, step, error};
    }
}

std::string unitOf(const spec::JobSpec &job, const std::string &parameter)
{
    for (const plan::TensorSpec &tensor : plan::modelTensors(job)) {
        if (tensor.name == parameter)
            return plan::placeName(tensor.unit, plan::Segment::None);
    }
    return {};
}

} // namespace

bool ParityReport::follows() const
{
    const bool alike = std::all_of(steps.begin(), steps.end(), [](const ParityStep &step) {
        return step.overflow == step.referenceOverflow && step.lossScale == step.referenceLossScale;
    });
    return alike && !steps.empty() && worstLoss <= lossLimit && worstExact <= exactLimit;
}

bool ParityReport::ok() const { return follows() && worst.relativeError <= gradientLimit; }

spec::JobSpec oneRankJob(const spec::JobSpec &job)
{
    spec::JobSpec one = job;
    one.layout = spec::Layout();
    one.zero = spec::Zero();
    one.comm = spec::Comm();
    one.recompute = spec::Recompute();
    one.offload = spec::Offload();
    one.compression = spec::Compression();
    one.precision.reduce = one.precision.grad;
    return one;
}

namespace {

/// The job on one rank in fp64.
Result<std::unique_ptr<Side>> exactSide(const spec::JobSpec &job, const ParityOptions &options)
{
    spec::JobSpec exact = oneRankJob(job);
    exact.precision.compute = exact.precision.grad = exact.precision.master = exact.precision.reduce =
        DType::F64;
    RY_ASSIGN(plan::Plan plan, plan::makePlan(exact));
    auto side = std::make_unique<Side>(
        std::move(plan), options.makeReference ? options.makeReference : options.makeDevice, options);
    RY_TRY(side->start());
    return side;
}

double relative(double value, double wanted) { return std::abs(value - wanted) / std::abs(wanted); }

} // namespace

Result<ParityReport> checkParity(const spec::JobSpec &job, const ParityOptions &options)
{
    RY_ASSIGN(const plan::Plan plan, plan::makePlan(job));
    return checkParity(plan, options);
}

Result<ParityReport> checkParity(const plan::Plan &plan, const ParityOptions &options)
{
    RY_ASSIGN(plan::Plan alone, plan::makePlan(oneRankJob(plan.job)));
    const bool converts = plan.job.precision.reduce != plan.job.precision.grad;
    const bool lossy = plan.job.compression.mode != "none" || converts;
    if (lossy && plan.job.layout.cp > 1)
        return Error::make(Code::BadJob,
                           "parity of lossy reductions is checked without context parallelism: what each of "
                           "its ranks adds to a gradient cannot be told apart on one rank",
                           "layout.cp")
            .withFound(std::to_string(plan.job.layout.cp))
            .withExpected("1, or compression.mode none and precision.reduce as precision.grad");
    if (converts && plan.job.layout.sequenceParallel)
        return Error::make(Code::BadJob,
                           "parity of sums in another type is checked without sequence parallelism: what "
                           "each rank's rows add to a gradient cannot be told apart on one rank",
                           "layout.sequence_parallel")
            .withFound("true")
            .withExpected("false, or precision.reduce as precision.grad");
    const ThreadRanks::DeviceFactory &makeOne =
        options.makeReference ? options.makeReference : options.makeDevice;
    const auto makeReplicas = [&] { return makeReplicaDevice(makeOne(), plan); };
    Side layout(plan, options.makeDevice, options);
    Side reference(std::move(alone), lossy ? ThreadRanks::DeviceFactory(makeReplicas) : makeOne, options);
    RY_TRY(layout.start());
    RY_TRY(reference.start());
    ParityReport report;
    const DType compute = plan.job.precision.compute;
    // What a codec leaves out is not the type's error.
    std::unique_ptr<Side> exact;
    if ((compute == DType::BF16 || compute == DType::F16) && plan.job.compression.mode == "none") {
        RY_ASSIGN(exact, exactSide(plan.job, options));
        report.exactLimit = 1e-2;
    }
    report.lossLimit = compute == DType::F64 ? 1e-10 : compute == DType::F32 ? 1e-5 : 1e-2;
    report.gradientLimit = compute == DType::F64 ? 1e-9 : compute == DType::F32 ? 1e-3 : 1e-1;
    for (std::int64_t step = 1; step <= options.steps; ++step) {
        RY_ASSIGN(const StepState got, layout.train(step));
        RY_ASSIGN(const StepState wanted, reference.train(step));
        report.steps.push_back({got.loss, wanted.loss, got.gradNorm, wanted.gradNorm, got.overflow,
                                wanted.overflow, got.lossScale, wanted.lossScale});
        if (const double error = relative(got.loss, wanted.loss); !(error <= report.worstLoss))
            report.worstLoss = error;
        if (exact) {
            RY_ASSIGN(const StepState truth, exact->train(step, got.overflow));
            report.steps.back().exactLoss = truth.loss;
            if (const double error = relative(got.loss, truth.loss); !(error <= report.worstExact))
                report.worstExact = error;
        }
        if (!got.overflow && !wanted.overflow) {
            RY_ASSIGN(const Gradients mine, layout.gradients());
            RY_ASSIGN(const Gradients theirs, reference.gradients());
            compareGradients(mine, theirs, step, report.worst);
        }
        if (options.progress)
            options.progress(step);
    }
    report.worst.unit = unitOf(plan.job, report.worst.parameter);
    return report;
}

Result<Gradients> gatherGradients(const plan::Plan &plan, ThreadRanks &ranks)
{
    Gradients gradients;
    std::map<std::string, std::int64_t> covered;
    for (int rank = 0; rank < plan.grid.world(); ++rank) {
        const plan::StepProgram &program = plan.program(plan::ProgramKind::Train, rank);
        for (const plan::ShardRange &range : plan::shardOf(program, plan.grid, rank)) {
            if (!range.owned)
                continue;
            const plan::Tensor &tensor = program.tensors[static_cast<std::size_t>(range.tensor)];
            const plan::BufferId id = program.buckets[static_cast<std::size_t>(range.bucket)].gradSlice;
            auto [place, added] = gradients.try_emplace(tensor.name);
            if (added) // NaN where nobody writes
                place->second.resize(static_cast<std::size_t>(plan::numelOf(tensor.global)), NAN);
            RY_TRY(ranks.arenas(rank).readElements(program, id, range.at, place->second.data() + range.begin,
                                                   range.end - range.begin));
            covered[tensor.name] += range.end - range.begin;
        }
    }
    for (const auto &[name, values] : gradients) {
        if (covered[name] != static_cast<std::int64_t>(values.size()))
            return Error::make(Code::Internal, "the ranks do not own each element of a parameter once", name)
                .withFound(std::to_string(covered[name]))
                .withExpected(std::to_string(values.size()));
    }
    return gradients;
}

} // namespace rankyard::exec
