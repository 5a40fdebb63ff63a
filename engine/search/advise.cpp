// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/search/advise.h"

#include "engine/base/units.h"
#include "engine/search/space.h"
#include "engine/search/weigh.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <tuple>

namespace rankyard::search {

namespace {

struct Rule {
    std::string text;
    std::string trigger;
    Choice asked; ///< microBatches 1: as many as the batch makes
    std::optional<DType> precision{};
    std::vector<std::string> notes{};
};

std::string trimmed(double value) { return formatNumber(value, 3); }

/// By size of the model (Narayanan et al. 2021's practice, as tutorials quote it).
Rule bySize(const spec::JobSpec &job, const predict::Machine &machine, int devices)
{
    const auto params = static_cast<double>(predict::paramsOf(predict::shapeOf(job.model)));
    Rule rule;
    rule.trigger = trimmed(params / 1e9) + " B parameters";
    rule.asked.micro = static_cast<std::int32_t>(job.batch.micro);
    if (params < 10e9) {
        rule.text = "Below 10 B parameters: data parallel only";
        rule.asked.dp = devices;
    } else if (params <= 100e9) {
        rule.text =
            "10 to 100 B parameters: tensor parallel up to the GPUs of a node, the rest data parallel";
        rule.asked.tp = std::min(devices, machine.island);
        rule.asked.dp = devices / rule.asked.tp;
    } else {
        rule.text =
            "Above 100 B parameters: tensor parallel 8, pipeline across nodes, the rest data parallel";
        rule.asked.tp = std::min(devices, 8);
        const double bytes = 18 * params;
        const double stages = bytes / (rule.asked.tp * 0.5 * machine.memoryBytes);
        rule.asked.pp = 1;
        while (rule.asked.pp < stages && rule.asked.tp * rule.asked.pp * 2 <= devices)
            rule.asked.pp *= 2;
        rule.asked.dp = devices / (rule.asked.tp * rule.asked.pp);
        rule.notes.push_back(
            "as many stages as bring the states of 18 bytes a parameter below half of the memory");
    }
    return rule;
}

/// By memory and network: the defaults of tutorials.
Rule byHardware(const spec::JobSpec &job, const predict::Machine &machine, int devices)
{
    Rule rule;
    rule.asked.micro = static_cast<std::int32_t>(job.batch.micro);
    const double network = machine.networkBandwidth * 8 / 1e9;
    if (machine.memoryBytes < 32e9) {
        rule.text = "Less than 32 GB of memory: ZeRO 3, bf16, pp 4, tp 2";
        rule.trigger = formatBytes(machine.memoryBytes) + " of memory";
        rule.asked.zero = 3;
        rule.asked.pp = 4;
        rule.asked.tp = 2;
        rule.asked.dp = std::max(1, devices / 8);
        rule.precision = DType::BF16;
    } else if (network > 100) {
        rule.text = "A network faster than 100 Gb/s: ZeRO 2, fp16, dp 8";
        rule.trigger = trimmed(network) + " Gb/s a device";
        rule.asked.zero = 2;
        rule.asked.dp = 8;
        rule.precision = DType::F16;
    } else {
        rule.text = "Otherwise: ZeRO 1, fp32, 4 micro-batches accumulated";
        rule.trigger =
            trimmed(network) + " Gb/s a device, " + formatBytes(machine.memoryBytes) + " of memory";
        rule.asked.zero = 1;
        rule.asked.dp = devices;
        rule.asked.microBatches = 4;
        rule.precision = DType::F32;
    }
    return rule;
}

/// Why the choice is not one of the space; empty when it is.
std::string refusalOf(const spec::JobSpec &job, const Choice &choice, int devices)
{
    const std::int64_t batch = static_cast<std::int64_t>(choice.dp) * choice.micro * choice.microBatches;
    if (choice.microBatches > 1 && batch != job.batch.global)
        return std::to_string(choice.microBatches) + " micro-batches of " + std::to_string(choice.micro)
            + " on " + std::to_string(choice.dp) + " replicas make a batch of " + std::to_string(batch)
            + ", the job's is " + std::to_string(job.batch.global);
    const std::int64_t world = static_cast<std::int64_t>(choice.dp) * choice.tp * choice.pp * choice.cp;
    if (world != devices)
        return "it takes " + std::to_string(world) + " of " + std::to_string(devices) + " devices";
    if (choice.zero >= 2 && choice.pp > 1)
        return "ZeRO " + std::to_string(choice.zero) + " with pipeline stages would "
            + (choice.zero == 2 ? "reduce" : "gather") + " each stage again for every micro-batch";
    if (job.model.heads % choice.tp != 0)
        return "tp " + std::to_string(choice.tp) + " does not divide " + std::to_string(job.model.heads)
            + " heads";
    if (job.model.ffnSize() % choice.tp != 0)
        return "tp " + std::to_string(choice.tp) + " does not divide the MLP's width "
            + std::to_string(job.model.ffnSize());
    if (choice.pp > job.model.layers + 1)
        return std::to_string(choice.pp) + " stages are more than " + std::to_string(job.model.layers)
            + " layers";
    const std::int64_t replica = static_cast<std::int64_t>(choice.dp) * choice.micro;
    if (job.batch.global % replica != 0)
        return "dp · micro-batch = " + std::to_string(replica) + " does not divide a batch of "
            + std::to_string(job.batch.global);
    return {};
}

/// How far a layout is from the one asked for: in doublings of each axis, then ZeRO's stage.
double distance(const Choice &a, const Choice &b)
{
    const auto doublings = [](double x, double y) { return std::abs(std::log2(x / y)); };
    return doublings(a.tp, b.tp) + doublings(a.pp, b.pp) + doublings(a.dp, b.dp) + doublings(a.cp, b.cp)
        + 0.5 * std::abs(a.zero - b.zero) + 0.25 * doublings(a.micro, b.micro)
        + (b.microBatches > 1 ? doublings(a.microBatches, b.microBatches) : 0);
}

/// The legal layout with the least distance: of those the first in the order of the space.
std::optional<Choice> nearestTo(const spec::JobSpec &job, const Choice &asked, int devices)
{
    Rejections rejected;
    std::optional<Choice> best;
    double least = HUGE_VAL;
    for (const Cut &cut : cutsOf(job, devices, rejected)) {
        if (cut.cp != 1 || cut.recompute != asked.recompute || cut.sequenceParallel != asked.sequenceParallel)
            continue;
        forEachLayout(job, devices, cut, rejected, [&](const Choice &choice) {
            if (choice.schedule != predict::Schedule::OneFOneB || choice.offloadOptimizer)
                return;
            if (const double far = distance(choice, asked); far < least) {
                least = far;
                best = choice;
            }
        });
    }
    return best;
}

} // namespace

namespace {

/// The job as the rule has it.
spec::JobSpec jobOf(const spec::JobSpec &job, const Advice &advice)
{
    spec::JobSpec other = jobOf(job, advice.nearest);
    other.precision.compute = advice.precision;
    if (other.precision.reduce != other.precision.grad && advice.precision != job.precision.compute)
        other.precision.reduce = other.precision.grad; // not every type of sums goes with every other
    return other;
}

Result<Advice> adviceOf(const Rule &rule, const spec::JobSpec &job, const predict::CostModel &cost,
                        int devices, bool price)
{
    Advice advice;
    advice.rule = rule.text;
    advice.trigger = rule.trigger;
    advice.asked = rule.asked;
    advice.precision = rule.precision.value_or(job.precision.compute);
    advice.notes = rule.notes;
    advice.illegal = refusalOf(job, rule.asked, devices);
    if (cost.peak(predict::precisionOf(advice.precision)) <= 0) {
        advice.illegal += std::string(advice.illegal.empty() ? "" : "; ") + "this device does not compute in "
            + nameOf(advice.precision);
        advice.precision = job.precision.compute;
    }
    advice.nearest = rule.asked;
    if (!advice.illegal.empty()) {
        const auto nearest = nearestTo(job, rule.asked, devices);
        advice.possible = nearest.has_value();
        advice.nearest = nearest.value_or(Choice{});
    } else {
        advice.nearest.microBatches = static_cast<std::int32_t>(
            job.batch.global / (static_cast<std::int64_t>(rule.asked.dp) * rule.asked.micro));
    }
    if (!advice.possible)
        return advice;
    const spec::JobSpec there = jobOf(job, advice);
    RY_ASSIGN(advice.candidate, price ? search::price(there, cost) : weigh(there, cost));
    if (advice.candidate.margin < 0)
        advice.notes.push_back("does not fit: " + formatBytes(-advice.candidate.margin)
                               + " more than is usable");
    return advice;
}

} // namespace

Result<std::vector<Advice>> advise(const spec::JobSpec &job, const predict::CostModel &cost, int devices,
                                   bool price)
{
    std::vector<Advice> list;
    for (const Rule &rule :
         {bySize(job, cost.machine(), devices), byHardware(job, cost.machine(), devices)}) {
        RY_ASSIGN(Advice advice, adviceOf(rule, job, cost, devices, price));
        list.push_back(std::move(advice));
    }
    return list;
}

OrderedJson reportOf(const Advice &advice)
{
    OrderedJson json = {{"rule", advice.rule},
                        {"trigger", advice.trigger},
                        {"asked", textOf(advice.asked)},
                        {"precision", nameOf(advice.precision)},
                        {"legal", advice.illegal.empty()},
                        {"illegal_because", advice.illegal}};
    json["nearest"] = advice.possible ? reportOf(advice.candidate) : OrderedJson(nullptr);
    json["notes"] = advice.notes;
    return json;
}

} // namespace rankyard::search
