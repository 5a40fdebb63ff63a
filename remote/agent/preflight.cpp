// SPDX-License-Identifier: GPL-3.0-or-later
#include "remote/agent/preflight.h"

#include "engine/base/file.h"
#include "engine/checkpoint/store.h"
#include "engine/data/corpus.h"
#include "engine/plan/units.h"
#include "engine/store/run_store.h"
#include "remote/agent/cgroup.h"
#include "remote/agent/run_files.h"

#include <algorithm>
#include <charconv>
#include <sched.h>

namespace rankyard::agent {

namespace fs = std::filesystem;

std::vector<CoreShare> shareCores(const std::vector<int> &cores, int ranks, int wanted)
{
    std::vector<CoreShare> shares(static_cast<std::size_t>(ranks));
    const std::size_t each = cores.size() / static_cast<std::size_t>(ranks);
    for (std::size_t rank = 0; rank < shares.size(); ++rank) {
        CoreShare &share = shares[rank];
        if (each == 0) {
            share.threads = std::max(1, wanted);
            continue;
        }
        const auto begin = cores.begin() + static_cast<std::ptrdiff_t>(rank * each);
        share.cores.assign(begin, begin + static_cast<std::ptrdiff_t>(each));
        share.spareCore = wanted > 0 ? each > static_cast<std::size_t>(wanted) : each >= 4;
        share.threads = wanted > 0 ? wanted : static_cast<int>(each) - (share.spareCore ? 1 : 0);
        if (wanted > 0 && share.spareCore)
            share.cores.resize(static_cast<std::size_t>(wanted) + 1);
    }
    return shares;
}

std::vector<int> ownCores()
{
    cpu_set_t set;
    CPU_ZERO(&set);
    std::vector<int> cores;
    if (::sched_getaffinity(0, sizeof set, &set) == 0) {
        for (int core = 0; core < CPU_SETSIZE; ++core) {
            if (CPU_ISSET(core, &set))
                cores.push_back(core);
        }
    }
    return cores;
}

namespace {

std::int64_t numberIn(const fs::path &file, std::string_view key = {})
{
    const auto text = readFile(file);
    if (!text)
        return -1;
    const std::size_t at = key.empty() ? 0 : text->find(key);
    const std::size_t digit =
        at == std::string::npos ? at : text->find_first_of("0123456789", at + key.size());
    std::int64_t number = -1;
    if (digit != std::string::npos)
        std::from_chars(text->data() + digit, text->data() + text->size(), number);
    return number;
}

} // namespace

std::int64_t freeMemory()
{
    std::int64_t least = numberIn("/proc/meminfo", "MemAvailable:");
    if (least >= 0)
        least *= 1024;
    // Each group on the way up has its own limit. In a container the files of the own group may stand at the mount's root.
    const MemoryCgroup group = memoryCgroup();
    for (fs::path folder = group.folder; folder.native().size() > std::string_view("/sys/fs/cgroup").size();
         folder = folder.parent_path()) {
        const std::int64_t limit = numberIn(folder / (group.v1 ? "memory.limit_in_bytes" : "memory.max"));
        const std::int64_t used = numberIn(folder / (group.v1 ? "memory.usage_in_bytes" : "memory.current"));
        if (limit < 0 || used < 0 || limit > std::int64_t{1} << 60)
            continue;
        // Cached files count as used but give way.
        const std::int64_t cached =
            std::max<std::int64_t>(0, numberIn(folder / "memory.stat", "inactive_file"));
        const std::int64_t left = std::max<std::int64_t>(0, limit - used + cached);
        least = least < 0 ? left : std::min(least, left);
    }
    return least;
}

fs::path checkpointDir(const spec::JobSpec &job, const std::string &jobDir, const fs::path &runFolder)
{
    return job.run.checkpointDir ? fs::path(jobDir) / *job.run.checkpointDir : runFolder / "ckpt";
}

namespace {

Status checkMemory(const plan::Plan &plan)
{
    std::int64_t needed = 0;
    for (int rank = 0; rank < plan.grid.world(); ++rank)
        needed += plan::memoryOf(plan, rank).peak;
    const std::int64_t free = freeMemory();
    if (free < 0 || needed <= free)
        return {};
    return Error::make(Code::DoesNotFit, "the ranks' memory does not fit on this host", "job")
        .withFound(formatBytes(static_cast<double>(needed)) + " for " + std::to_string(plan.grid.world())
                   + " ranks")
        .withExpected("at most " + formatBytes(static_cast<double>(free)))
        .withHint(
            "rankyardctl plan shows what takes it; a smaller batch.micro or a higher zero.stage takes less");
}

/// Where optimizer states go to files: a file can be made there, and there is room for all of them.
Status checkStateFolder(const plan::Plan &plan)
{
    const fs::path folder = plan.job.offload.nvmePath.value_or("");
    std::int64_t needed = 0;
    for (int rank = 0; rank < plan.grid.world(); ++rank) {
        for (const plan::Arena &arena : plan.program(plan::ProgramKind::Train, rank).arenas)
            needed += arena.disk ? arena.bytes : 0;
    }
    if (needed == 0)
        return {};
    if (const auto file = makeNamelessFile(folder.string(), 4096); !file) {
        return Error::make(Code::Io, "optimizer states cannot be kept in this folder", "offload.nvme_path")
            .withFound(folder.string())
            .causedBy(file.error());
    }
    std::error_code unknown;
    const auto space = fs::space(folder, unknown);
    if (unknown || static_cast<double>(space.available) >= static_cast<double>(needed))
        return {};
    return Error::make(Code::DoesNotFit, "the optimizer states of all ranks do not fit on this disk",
                       "offload.nvme_path")
        .withFound(formatBytes(static_cast<double>(needed)) + " for " + folder.string())
        .withExpected("at most " + formatBytes(static_cast<double>(space.available)));
}

/// A model that cannot fit by its parameters alone is refused before it is planned: its program may be huge.
Status checkParameters(const spec::JobSpec &job)
{
    double parameters = 0;
    for (const plan::TensorSpec &tensor : plan::modelTensors(job))
        parameters += static_cast<double>(plan::numelOf(tensor.shape));
    const double copies = job.zero.stage >= 3 ? 1 : static_cast<double>(job.layout.dp * job.layout.cp);
    const double needed = parameters * copies * static_cast<double>(bytesOf(job.precision.compute));
    const std::int64_t free = freeMemory();
    if (free < 0 || needed <= static_cast<double>(free))
        return {};
    return Error::make(Code::DoesNotFit, "the model's parameters do not fit on this host", "model")
        .withFound(formatCount(parameters) + " parameters, " + formatBytes(needed) + " on all ranks")
        .withExpected("at most " + formatBytes(static_cast<double>(free)))
        .withHint("Fewer layers or a smaller model.hidden takes less");
}

Status findCheckpoint(Prepared &prepared, const std::string &fingerprint)
{
    const std::string &from = prepared.order.resume;
    if (!store::isRunId(from))
        return Error::make(Code::Usage, "this is no run id", "resume").withFound(from);
    const fs::path folder = runLink(from);
    const auto run = readRunFile(folder);
    if (!run)
        return Error::make(Code::NotFound, "there is no such run on this node", from).causedBy(run.error());
    auto found = checkpoint::newestCheckpoint(run->checkpointDir, checkpoint::Verify::Digests);
    if (!found)
        return Error(found.error())
            .withHint("rankyardctl ckpt verify " + run->checkpointDir
                      + " reads them all; restore a copy, or start a new run");
    if (!fingerprint.empty() && !found->manifest.dataFingerprint.empty()
        && found->manifest.dataFingerprint != fingerprint)
        return Error::make(Code::BadData, "the corpus is not the one that the run was trained on",
                           "data.train")
            .withFound(fingerprint)
            .withExpected(found->manifest.dataFingerprint)
            .withHint("Restore the corpus, or start a new run");
    if (found->manifest.step >= prepared.job.run.steps)
        return Error::make(Code::BadJob, "the run has made all its steps", "run.steps")
            .withFound(std::to_string(prepared.job.run.steps))
            .withExpected("more than " + std::to_string(found->manifest.step));
    prepared.resumeFolder = found->folder.string();
    prepared.startStep = found->manifest.step;
    prepared.skipped = std::move(found->skipped);
    return {};
}

} // namespace

Result<Prepared> prepareRun(StartOrder order, const std::stop_token &stop)
{
    if (!store::isRunId(order.id))
        return Error::make(Code::Usage, "this is no run id", "run").withFound(order.id);
    if (!order.runDir.empty() && !fs::path(order.runDir).is_absolute())
        return Error::make(Code::Usage, "the run's folder must be an absolute path", "run_dir")
            .withFound(order.runDir);
    if (order.jobDir.empty() && store::isRunId(order.resume)) {
        // Continued without its job's file: paths mean what they meant then.
        if (const auto before = readRunFile(runLink(order.resume)))
            order.jobDir = before->jobDir;
    }
    RY_ASSIGN(spec::JobSpec job, spec::readJob(order.job, "job"));
    if (job.cluster != "local")
        return Error::make(Code::BadJob, "this agent runs jobs on its own host only", "cluster")
            .withFound(job.cluster)
            .withExpected("local");
    RY_TRY(checkParameters(job));
    RY_ASSIGN(plan::Plan plan, plan::makePlan(job, plan::PlanDepth::Checked, stop));
    RY_ASSIGN(const data::Corpus corpus, data::Corpus::open(job, order.jobDir));
    RY_TRY(checkMemory(plan));
    RY_TRY(checkStateFolder(plan));
    const int world = plan.grid.world();
    auto shares = shareCores(ownCores(), world, static_cast<int>(job.run.threads.value_or(0)));
    Prepared prepared{std::move(order), std::move(job), std::move(plan), std::move(shares), {}, 0, {}};
    if (!prepared.order.resume.empty())
        RY_TRY(findCheckpoint(prepared, corpus.fingerprint()));
    return prepared;
}

} // namespace rankyard::agent
