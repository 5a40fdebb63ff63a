// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/plan/plan.h"
#include "engine/spec/job.h"

#include <cstdint>
#include <filesystem>
#include <stop_token>
#include <string>
#include <vector>

/// Everything that can be found wrong before a process is started.
namespace rankyard::agent {

/// What a client asks for.
struct StartOrder {
    std::string id;
    Json job;
    std::string jobDir;
    std::string runDir;     ///< empty: the default
    std::string resume;     ///< id of a run, or empty
    double peakSeconds = 0; ///< of a step, for its MFU: predict::peakSeconds(); 0: not known
};

/// Which cores and threads a rank gets.
struct CoreShare {
    std::vector<int> cores; ///< empty: leave the affinity as it is
    int threads = 1;
    bool spareCore = false;
};

/// `cores` split over `ranks` in order; with four and more for each, one of them is kept for communication. More ranks than cores: none is bound.
/// `wanted`: threads a rank that the job asks for, 0 when it does not.
std::vector<CoreShare> shareCores(const std::vector<int> &cores, int ranks, int wanted);
std::vector<int> ownCores();

/// Bytes that processes may still take here: the least of free memory and what the memory cgroups leave; −1 when unknown.
std::int64_t freeMemory();

struct Prepared {
    StartOrder order;
    spec::JobSpec job;
    plan::Plan plan;
    std::vector<CoreShare> shares; ///< by rank
    std::string resumeFolder;      ///< the checkpoint to start from, or empty
    std::int64_t startStep = 0;
    std::vector<Error> skipped; ///< newer checkpoints than that one, with what is wrong with them
};

/// Reads and plans the job, checks the corpus, the memory and the checkpoint to resume from. Touches nothing. Any thread; the
/// corpus may take a while.
/// Code::Stopped soon after `stop` is requested.
Result<Prepared> prepareRun(StartOrder order, const std::stop_token &stop = {});

/// Where a run's checkpoints lie.
std::filesystem::path checkpointDir(const spec::JobSpec &job, const std::string &jobDir,
                                    const std::filesystem::path &runFolder);

} // namespace rankyard::agent
