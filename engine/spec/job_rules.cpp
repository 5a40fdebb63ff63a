// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/spec/environment.h"
#include "engine/spec/job_table.h"
#include "engine/spec/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace rankyard::spec {

std::int64_t nearestDivisor(std::int64_t n, std::int64_t wish)
{
    std::int64_t best = 1;
    const auto consider = [&](std::int64_t divisor) {
        const auto distance = std::abs(divisor - wish);
        const auto bestDistance = std::abs(best - wish);
        if (distance < bestDistance || (distance == bestDistance && divisor < best))
            best = divisor;
    };
    for (std::int64_t i = 1; i * i <= n; ++i) {
        if (n % i == 0) {
            consider(i);
            consider(n / i);
        }
    }
    return best;
}

std::int64_t nearestMultiple(std::int64_t unit, std::int64_t wish)
{
    const std::int64_t below = wish / unit * unit;
    return below > 0 && wish - below <= below + unit - wish ? below : below + unit;
}

namespace {

std::string str(std::int64_t value) { return std::to_string(value); }
std::string number(double value) { return shown(Json(value)); }

Status checkModel(const Model &m)
{
    if (!m.headDim && m.hidden % m.heads != 0) {
        return jobError("model.heads", "does not divide model.hidden = " + str(m.hidden), str(m.heads),
                        "a divisor of hidden; nearest: model.heads " + str(nearestDivisor(m.hidden, m.heads))
                            + ", or model.hidden " + str(nearestMultiple(m.heads, m.hidden)));
    }
    if (m.heads % m.keyHeads() != 0) {
        return jobError("model.kv_heads", "does not divide model.heads = " + str(m.heads), str(m.keyHeads()),
                        str(nearestDivisor(m.heads, m.keyHeads())));
    }
    if (m.family == "llama") {
        const auto rope = ropeOf(m);
        return rope ? Status() : Status(rope.error());
    }
    if (!m.rope.is_null())
        return jobError("model.rope", "positions of gpt2 are learned", shown(m.rope), "null");
    return {};
}

Status checkOrder(const Layout &layout)
{
    std::vector<std::string> axes;
    for (std::size_t begin = 0; begin <= layout.order.size();) {
        const std::size_t end = std::min(layout.order.find('-', begin), layout.order.size());
        axes.push_back(layout.order.substr(begin, end - begin));
        begin = end + 1;
    }
    std::sort(axes.begin(), axes.end());
    if (axes != std::vector<std::string>{"cp", "dp", "pp", "tp"})
        return jobError("layout.order", "does not name each axis once", shown(Json(layout.order)),
                        "tp-cp-dp-pp");
    return {};
}

Status checkBatch(const JobSpec &job)
{
    const auto &[global, micro] = job.batch;
    const std::int64_t dp = job.layout.dp;
    if (global % (dp * micro) != 0) {
        const std::string rule = "global = dp · micro · m; nearest: ";
        const std::string other = "batch.global " + str(nearestMultiple(dp * micro, global));
        if (global % dp == 0) {
            return jobError("batch.micro",
                            "does not divide the " + str(global / dp) + " samples of a replica", str(micro),
                            rule + "batch.micro " + str(nearestDivisor(global / dp, micro)) + ", or "
                                + other);
        }
        return jobError("batch.global", "not a multiple of layout.dp · batch.micro = " + str(dp * micro),
                        str(global), rule + other);
    }
    if (micro * job.model.seq > maxMicroBatchTokens) {
        return jobError(
            "batch.micro",
            "a micro-batch of micro · seq = " + str(micro * job.model.seq) + " tokens is too large",
            str(micro), "at most " + str(std::max<std::int64_t>(1, maxMicroBatchTokens / job.model.seq)));
    }
    return {};
}

Status checkPrecision(const Precision &p)
{
    const DType wanted = p.compute == DType::F64 ? DType::F64 : DType::F32;
    const std::pair<const char *, DType> parts[] = {
        {"precision.grad", p.grad}, {"precision.master", p.master}, {"precision.reduce", p.reduce}};
    for (const auto &[path, type] : parts) {
        const bool free = path == std::string_view("precision.reduce")
            && p.compute != DType::F64; // with what it combines: plan/combine.cpp
        if (type != wanted && !free) {
            const std::string compute = std::string("precision.compute = ") + nameOf(p.compute);
            return jobError(path,
                            p.compute == DType::F64 ? compute + " forces fp64 here"
                                                    : "not in this version together with " + compute,
                            std::string("\"") + nameOf(type) + "\"",
                            std::string("\"") + nameOf(wanted) + "\"");
        }
    }
    const LossScale &s = p.lossScale;
    if (s.mode == "static" && !s.value)
        return jobError("precision.loss_scale.value", "a static scale needs its value", "null",
                        "a number, as 65536");
    if (s.mode == "dynamic" && s.value)
        return jobError("precision.loss_scale.value", "a dynamic scale has no fixed value", number(*s.value),
                        "null, or mode \"static\"");
    if (s.maxPower && *s.maxPower < s.initPower) {
        return jobError("precision.loss_scale.max_power",
                        "smaller than precision.loss_scale.init_power = " + str(s.initPower),
                        str(*s.maxPower), "at least " + str(s.initPower));
    }
    if (s.mode == "dynamic" && s.min > std::exp2(static_cast<double>(s.initPower))) {
        return jobError("precision.loss_scale.min",
                        "larger than the first scale, 2 to the power " + str(s.initPower), number(s.min),
                        "at most " + number(std::exp2(static_cast<double>(s.initPower))));
    }
    return {};
}

Status checkSchedule(const JobSpec &job)
{
    const LrSchedule &s = job.lrSchedule;
    if (s.kind == "constant")
        return {};
    if (s.warmup > s.total) {
        return jobError("lr_schedule.warmup",
                        "longer than the whole schedule, lr_schedule.total = " + str(s.total), str(s.warmup),
                        "at most " + str(s.total));
    }
    if (s.minLr > job.optimizer.lr) {
        return jobError("lr_schedule.min_lr", "larger than optimizer.lr = " + number(job.optimizer.lr),
                        number(s.minLr), "at most " + number(job.optimizer.lr));
    }
    return {};
}

Status checkEnvironment(const Environment &environment)
{
    for (const auto &[name, value] : environment) {
        const bool plain = !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
            return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
        });
        bool listed = name == "LC_ALL";
        for (const std::string_view prefix : {"OMP_", "MKL_", "CUDA_", "NCCL_"})
            listed = listed || (name.starts_with(prefix) && name.size() > prefix.size());
        if (!plain || !listed)
            return jobError("comm.env", "this variable may not be set by a job", shown(Json(name)),
                            "OMP_*, MKL_*, LC_ALL, CUDA_*, NCCL_*");
        RY_TRY(checkVariable(name, value));
    }
    return {};
}

Status checkRun(const JobSpec &job)
{
    if (job.run.evalEvery > 0 && !job.data.valid && job.data.validFraction == 0) {
        return jobError("run.eval_every",
                        "there is no validation data: data.valid is null and data.valid_fraction is 0",
                        str(job.run.evalEvery), "0, or data.valid_fraction 0.05");
    }
    return {};
}

} // namespace

Status validateJob(const JobSpec &job)
{
    JobSpec copy = job;
    for (const Field &field : jobFields(copy))
        RY_TRY(checkRule(field)); // a job made in code, not read: the rules below divide by its values
    RY_TRY(checkModel(job.model));
    RY_TRY(checkOrder(job.layout));
    RY_TRY(checkBatch(job));
    RY_TRY(checkPrecision(job.precision));
    RY_TRY(checkSchedule(job));
    RY_TRY(checkEnvironment(job.comm.env));
    return checkRun(job);
}

double learningRate(const JobSpec &job, std::int64_t step)
{
    const LrSchedule &s = job.lrSchedule;
    const double peak = job.optimizer.lr;
    if (step < s.warmup)
        return peak * static_cast<double>(std::max<std::int64_t>(step, 0)) / static_cast<double>(s.warmup);
    if (s.kind == "constant" || step == s.warmup)
        return peak;
    if (step >= s.total)
        return s.minLr;
    const double progress = static_cast<double>(step - s.warmup) / static_cast<double>(s.total - s.warmup);
    const double left = s.kind == "linear" ? 1 - progress : 0.5 * (1 + std::cos(std::numbers::pi * progress));
    return s.minLr + (peak - s.minLr) * left;
}

} // namespace rankyard::spec
