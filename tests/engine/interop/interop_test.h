// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/interop/interop.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace rankyard::interop {

inline spec::JobSpec standardJob()
{
    spec::JobSpec job;
    job.data.train = "corpus";
    return job;
}

inline Result<Imported> tryImport(const std::string &text, std::optional<Engine> from, std::int64_t world = 0)
{
    ImportOptions options;
    options.from = from;
    options.base = standardJob();
    if (world > 0)
        options.world = world;
    return importConfig(text, "file", options);
}

inline Imported imported(const std::string &text, std::optional<Engine> from, std::int64_t world = 0)
{
    auto in = tryImport(text, from, world);
    EXPECT_TRUE(in) << (in ? "" : in.error().text());
    return in ? std::move(in).value() : Imported();
}

inline Error refused(const Json &document, Engine from, std::int64_t world = 0)
{
    const auto in = tryImport(dumpJson(document), from, world);
    EXPECT_FALSE(in) << dumpJson(document);
    return in ? Error() : in.error();
}

/// At a dotted path of the job.
inline Json at(const Imported &in, const std::string &path)
{
    const Json *here = &in.job;
    for (std::size_t begin = 0; begin <= path.size();) {
        const std::size_t dot = std::min(path.find('.', begin), path.size());
        const std::string part = path.substr(begin, dot - begin);
        if (!here->is_object() || !here->contains(part))
            return "no " + path;
        here = &(*here)[part];
        begin = dot + 1;
    }
    return *here;
}

inline bool mentions(const std::vector<Remark> &remarks, const std::string &path)
{
    return std::any_of(remarks.begin(), remarks.end(), [&](const Remark &r) { return r.path == path; });
}

inline bool has(const Imported &in, Remark::Kind kind, const std::string &path)
{
    return std::any_of(in.remarks.begin(), in.remarks.end(),
                       [&](const Remark &r) { return r.path == path && r.kind == kind; });
}

inline std::string whyOf(const Imported &in, const std::string &path)
{
    for (const Remark &remark : in.remarks) {
        if (remark.path == path)
            return remark.why;
    }
    return "no remark on " + path;
}

inline spec::JobSpec jobOf(const Imported &in)
{
    const auto job = spec::readJob(in.job, "imported");
    EXPECT_TRUE(job) << (job ? "" : job.error().text());
    return job ? *job : standardJob();
}

/// Jobs that an engine can say, or nearly.
inline std::vector<spec::JobSpec> jobsFor(Engine engine)
{
    std::vector<spec::JobSpec> jobs(5, standardJob());
    jobs[1].layout.dp = 3;
    jobs[1].batch.global = 3 * 5 * 4;
    jobs[1].zero.stage = 3;
    jobs[1].precision.compute = DType::BF16;
    jobs[1].zero.bucketBytes = 4 * 123'457;
    jobs[2].layout.dp = 2;
    jobs[2].layout.tp = 2;
    jobs[2].layout.sequenceParallel = engine != Engine::DeepSpeed;
    jobs[2].zero.stage = 1;
    jobs[2].precision.compute = DType::F16;
    jobs[2].precision.lossScale.rule = engine == Engine::DeepSpeed ? "deepspeed" : "megatron";
    jobs[2].precision.lossScale.initPower = 12;
    jobs[2].precision.lossScale.hysteresis = 3;
    jobs[2].recompute.mode = "full";
    jobs[3].layout.pp = 3;
    jobs[3].layout.dp = 5;
    jobs[3].batch.micro = 1;
    jobs[3].batch.global = 5 * 7;
    jobs[3].optimizer = {"adamw", 1.25e-4, 0.85, 0.97, 1e-7, 0.02, {"*.bias", "*norm*"}, 0.7};
    jobs[3].lrSchedule = {"linear", 7, 90, 0};
    jobs[3].run.steps = 90;
    jobs[4].layout.cp = 2;
    jobs[4].model.kvHeads = 2;
    jobs[4].model.dropout = 0.1;
    jobs[4].model.tied = false;
    return jobs;
}

/// Written and read again, with the job itself as the base, a job changes only where a remark says so.
inline void expectRoundTrip(const spec::JobSpec &job, Engine engine)
{
    const Exported out = exportConfig(job, engine);
    EXPECT_EQ(engineOf(out.text), engine) << out.text;
    ImportOptions options;
    options.base = job;
    options.world = job.layout.world();
    const auto again = importConfig(out.text, "exported", options);
    ASSERT_TRUE(again) << again.error().text() << out.text;
    const OrderedJson before = spec::writeJob(job);
    for (const char *section :
         {"model", "batch", "layout", "zero", "precision", "recompute", "optimizer", "lr_schedule"}) {
        for (const auto &[key, value] : before[section].items()) {
            const std::string path = std::string(section) + "." + key;
            if (key == "loss_scale" && job.precision.compute != DType::F16) // in force for fp16 only
                continue;
            const Json now = at(*again, path);
            if (now == Json(value) || Json(value).is_null())
                continue;
            if (value.is_number() && now.is_number()
                && std::abs(now.get<double>() - value.get<double>()) <= 1e-12 * std::abs(value.get<double>()))
                continue;
            const auto names = [&](const Remark &r) {
                return path == r.path || path.rfind(r.path, 0) == 0 || r.path.rfind(path, 0) == 0;
            };
            const bool told = std::any_of(out.remarks.begin(), out.remarks.end(), names)
                || std::any_of(again->remarks.begin(), again->remarks.end(), names);
            EXPECT_TRUE(told) << nameOf(engine) << " " << path << ": " << dumpJson(Json(value)) << " became "
                              << dumpJson(now) << "\n"
                              << out.text;
        }
    }
}

} // namespace rankyard::interop
