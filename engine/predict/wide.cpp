// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/predict/wide.h"

#include "engine/spec/job_table.h"

#include <algorithm>

namespace rankyard::predict {

namespace {

using spec::jobError;
using spec::WideJob;

std::string text(std::int64_t value) { return std::to_string(value); }

/// A GPT or a Llama with experts or latent attention in place of its own.
Status widen(const spec::PlanOnly &wide, Shape &shape)
{
    if (wide.activation) {
        shape.gated = *wide.activation == "swiglu";
        if (*wide.activation == "relu2")
            shape.name += ", squared ReLU";
    }
    Experts &e = shape.experts;
    if (wide.experts && !shape.sparse())
        e = {0, 1, 0, shape.ffn, 0};
    e.count = wide.experts.value_or(e.count);
    if (shape.sparse()) {
        e.topK = wide.topK.value_or(e.topK);
        e.shared = wide.sharedExperts.value_or(e.shared);
        e.ffn = wide.expertFfn.value_or(e.ffn);
        e.denseLayers = wide.denseLayers.value_or(e.denseLayers);
    } else {
        e = {};
        const std::pair<const char *, bool> parts[] = {
            {"plan_only.top_k", wide.topK.has_value()},
            {"plan_only.shared_experts", wide.sharedExperts.has_value()},
            {"plan_only.expert_ffn", wide.expertFfn.has_value()},
            {"plan_only.dense_layers", wide.denseLayers.has_value()}};
        for (const auto &[path, given] : parts) {
            if (given)
                return jobError(path, "there are no experts", "", "plan_only.experts 8, or null");
        }
    }
    const bool latent = wide.keyRank || wide.nopeDim || wide.ropeDim || wide.valueDim || wide.queryRank;
    if (latent) {
        const std::pair<const char *, std::optional<std::int64_t>> needed[] = {
            {"plan_only.key_rank", wide.keyRank},
            {"plan_only.nope_dim", wide.nopeDim},
            {"plan_only.rope_dim", wide.ropeDim},
            {"plan_only.value_dim", wide.valueDim}};
        for (const auto &[path, value] : needed) {
            if (value.value_or(0) < 1)
                return jobError(
                    path, "latent attention needs it", value ? text(*value) : "null",
                    "a number above 0, as DeepSeek-V3's key_rank 512, nope_dim 128, rope_dim 64, value_dim 128");
        }
        shape.latent =
            Latent{wide.queryRank.value_or(0), *wide.keyRank, *wide.nopeDim, *wide.ropeDim, *wide.valueDim};
    }
    return {};
}

Status checkLayout(const WideJob &job, const Shape &shape)
{
    const spec::Layout &l = job.job.layout;
    const Experts &e = shape.experts;
    if (shape.heads % l.tp != 0)
        return jobError("layout.tp", "does not divide the model's " + text(shape.heads) + " heads",
                        text(l.tp), text(spec::nearestDivisor(shape.heads, l.tp)));
    const std::int64_t stages = l.pp * l.virtualStages;
    if (stages > shape.layers)
        return jobError("layout.pp", "more stages than the model's " + text(shape.layers) + " layers",
                        text(l.pp), text(std::max<std::int64_t>(1, shape.layers / l.virtualStages)));
    if (shape.sparse() && (e.topK < 1 || e.topK > e.count))
        return jobError("plan_only.top_k", "a token goes to some of the " + text(e.count) + " experts",
                        text(e.topK), text(std::clamp<std::int64_t>(e.topK, 1, e.count)));
    if (shape.sparse() && e.denseLayers > shape.layers)
        return jobError("plan_only.dense_layers", "more than the model's layers", text(e.denseLayers),
                        text(shape.layers));
    const std::int64_t ep = job.wide.ep;
    if (ep < 1 || (ep > 1 && !shape.sparse()))
        return jobError("plan_only.ep", ep < 1 ? "out of range" : "there are no experts", text(ep), "1");
    if (shape.sparse() && e.count % ep != 0)
        return jobError("plan_only.ep", "does not divide the " + text(e.count) + " experts", text(ep),
                        text(spec::nearestDivisor(e.count, ep)));
    const std::int64_t replicas = l.dp * l.cp;
    if (replicas % ep != 0)
        return jobError("plan_only.ep", "does not divide layout.dp · layout.cp = " + text(replicas), text(ep),
                        text(spec::nearestDivisor(replicas, ep)));
    if (job.wide.compute && job.job.precision.compute != DType::BF16)
        return jobError("precision.compute",
                        "weights and activations are bf16 where products are " + *job.wide.compute,
                        nameOf(job.job.precision.compute), "\"bf16\"");
    return {};
}

/// Layers of each stage, as even as they go, the first ones longer.
std::vector<double> evenStages(std::int64_t layers, std::int64_t stages)
{
    std::vector<double> list;
    for (std::int64_t s = 0; s < stages; ++s)
        list.push_back(static_cast<double>(layers / stages + (s < layers % stages ? 1 : 0)));
    return list;
}

/// Parameters, gradients and optimizer on one rank: experts are divided by their groups, their states over the replicas of those.
void addStates(ClosedMemory &bytes, const WideJob &job, const UnitTimes &unit, double dense, double experts)
{
    const StateBytes state(job.job);
    const double replicas = static_cast<double>(job.job.layout.dp * job.job.layout.cp);
    const std::int64_t zero = job.job.zero.stage;
    const auto held = [&](std::int64_t from) {
        return zero >= from ? dense / replicas + experts / std::max(1.0, replicas / unit.ep)
                            : dense + experts;
    };
    bytes.params = state.param * held(3);
    bytes.grads = state.grad * held(2);
    bytes.optimizer = state.optimizer * held(1);
    if (zero >= 3) // the unit in work and the next
        bytes.gathered = 2 * state.param * unit.layerParams;
}

std::vector<ClosedMemory> stagesOf(const WideJob &job, const Run &run, const UnitTimes &unit)
{
    const Shape &shape = run.shape;
    const std::vector<double> layers = evenStages(shape.layers, run.layout.pp);
    const double kept = unit.tokens * keptBytes(shape, run.micro, run.recompute);
    const double whole = unit.tokens * keptBytes(shape, run.micro, Recompute::None);
    std::vector<ClosedMemory> stages;
    for (int s = 0; s < run.layout.pp; ++s) {
        const double here = layers[static_cast<std::size_t>(s)];
        const bool last = s + 1 == run.layout.pp;
        double dense = here * (unit.layerParams - unit.expertParams);
        if (s == 0)
            dense += unit.embeddingParams;
        if (last)
            dense += run.layout.pp > 1 ? unit.lastParams : unit.headParams;
        ClosedMemory bytes;
        addStates(bytes, job, unit, dense, here * unit.expertParams);
        const double flight = inFlight(run.layout, s);
        bytes.activations = flight * here * kept + (run.recompute == Recompute::None ? 0 : whole - kept);
        if (last) // logits in fp32 and their gradient in 16 bits
            bytes.workspace = 6 * unit.tokens * static_cast<double>(shape.vocab) / unit.tp;
        stages.push_back(bytes);
    }
    return stages;
}

/// What published runs of such models have, and constants know.
std::vector<std::string> traitsOf(const Shape &shape, const Micro &micro, const Machine &machine)
{
    std::vector<std::string> traits;
    if (machine.family != "V100" && machine.family != "A100")
        traits.emplace_back("new attention kernels");
    if (shape.sparse())
        traits.emplace_back("experts");
    if (shape.latent)
        traits.emplace_back("latent attention");
    if (!shape.sparse() && (micro.precision == Precision::Fp8 || micro.precision == Precision::Fp4))
        traits.emplace_back("low precision");
    return traits;
}

Result<Run> runOf(const WideJob &job, const Machine &machine)
{
    Run run;
    RY_ASSIGN(run.shape, shapeOf(job));
    RY_TRY(checkLayout(job, run.shape));
    run.machine = machine;
    run.micro = microOf(job.job);
    run.micro.ours = false;
    run.micro.ep = job.wide.ep;
    if (job.wide.compute)
        run.micro.precision = *job.wide.compute == "fp8" ? Precision::Fp8 : Precision::Fp4;
    if (machine.peak[static_cast<std::size_t>(run.micro.precision)] <= 0) {
        return Error::make(Code::NotHere, "this device does not compute in this type",
                           job.wide.compute ? "plan_only.compute" : "precision.compute")
            .withFound(nameOf(run.micro.precision));
    }
    run.layout = layoutOf(job.job);
    run.layout.scatterEach = false;
    run.layout.reuse = 0;
    run.layout.paramBytes = 2;
    run.recompute = recomputeOf(job.job.recompute.mode);
    run.devices = static_cast<double>(job.job.layout.world());
    run.globalBatch = static_cast<double>(job.job.batch.global);
    run.what = run.shape.sparse() ? RunClass::Experts
        : job.wide.compute        ? RunClass::LowPrecision
                                  : RunClass::Dense;
    run.traits = traitsOf(run.shape, run.micro, machine);
    return run;
}

} // namespace

double WidePlan::peak() const
{
    double most = 0;
    for (const ClosedMemory &stage : stages)
        most = std::max(most, stage.peak());
    return most;
}

Result<Shape> shapeOf(const WideJob &job)
{
    Shape shape = shapeOf(job.job.model);
    if (job.wide.model) {
        const Shape *known = findModel(*job.wide.model);
        if (!known)
            return jobError(
                "plan_only.model", "the planner's catalogue has no such model", *job.wide.model,
                "a name as DeepSeek-V3, Mixtral 8x7B, Llama 3 70B, or the sizes in model and plan_only");
        shape = *known;
        shape.seq = job.job.model.seq;
    }
    RY_TRY(widen(job.wide, shape));
    return shape;
}

double keptBytes(const Shape &shape, const Micro &micro, Recompute recompute)
{
    const auto tp = static_cast<double>(micro.tp);
    const double rows = micro.sequenceParallel ? tp : 1; // what is outside of tensor-parallel products
    const auto h = static_cast<double>(shape.hidden);
    constexpr double half = 2; // bytes
    const auto heads = static_cast<double>(shape.heads);
    if (recompute == Recompute::Full)
        return half * h / rows; // the input of a layer
    const bool lean = recompute != Recompute::None;
    // Norm's input, products' input; q, k, v and what attention makes of them, with 4 bytes a head of its sums.
    double attention = half * h / rows * (lean ? 1 : 2);
    if (shape.latent) {
        const Latent &l = *shape.latent;
        const double ranks = static_cast<double>(l.queryRank + l.keyRank + l.rope);
        attention +=
            half * ranks + half * heads / tp * static_cast<double>(2 * (l.nope + l.rope) + 2 * l.value);
    } else {
        attention += half / tp * static_cast<double>(2 * shape.queryWidth() + 2 * shape.keyWidth());
    }
    attention += 4 * heads / tp;
    // Each matrix' output but the last's, and their product or activation.
    const double widths =
        lean ? static_cast<double>(shape.mlpMatrices() - 1) : static_cast<double>(shape.mlpMatrices());
    const double input = half * h / rows * (lean ? 1 : 2);
    const double dense = input + half * widths * static_cast<double>(shape.ffn) / tp;
    if (!shape.sparse())
        return attention + dense;
    // Rows are sent to their experts, and what comes back is weighed.
    const Experts &e = shape.experts;
    const double f = static_cast<double>(e.ffn);
    const double routed = static_cast<double>(e.topK) * (half * h * 2 + half * widths * f) / tp;
    const double shared = static_cast<double>(e.shared) * half * widths * f / tp;
    const double router = 4 * static_cast<double>(e.count) / rows;
    const double share =
        static_cast<double>(shape.layers - e.denseLayers) / static_cast<double>(shape.layers);
    return attention + (1 - share) * dense + share * (input + router + routed + shared);
}

Result<WidePlan> planWide(const WideJob &job, const cluster::Cluster &cluster)
{
    const std::int64_t world = job.job.layout.world();
    if (cluster.gpus() > 0 && world > cluster.gpus()) {
        return Error::make(Code::DoesNotFit, "the cluster has fewer devices than the layout has ranks",
                           cluster.name)
            .withFound(text(cluster.gpus()))
            .withExpected(text(world));
    }
    RY_ASSIGN(const CostModel cost, costModelOf(cluster, ranksOf(job.job)));
    if (cost.machine().cooperative) {
        return Error::make(Code::NotHere, "such models are priced as published runs on GPUs are",
                           cluster.name)
            .withHint("--cluster dgx-h100x32, or another with GPUs");
    }
    WidePlan plan;
    RY_ASSIGN(plan.run, runOf(job, cost.machine()));
    const Run &run = plan.run;
    plan.step = predictRun(run, fittedCalibrations());
    plan.params = static_cast<double>(paramsOf(run.shape));
    plan.activeParams = static_cast<double>(activeParams(run.shape));
    plan.flops = stepFlops(run.shape, run.globalBatch, Convention::Model3);
    plan.mfu = utilisation(plan.flops, plan.step.seconds, run.devices,
                           run.machine.peak[static_cast<std::size_t>(run.micro.precision)]);
    plan.tflopsPerDevice = plan.flops / plan.step.seconds / run.devices / 1e12;
    plan.capacity = capacityOf(run.machine);
    plan.stages = stagesOf(job, run, unitSizes(run.shape, run.micro));
    return plan;
}

} // namespace rankyard::predict
