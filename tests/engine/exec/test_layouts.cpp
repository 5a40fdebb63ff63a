// SPDX-License-Identifier: GPL-3.0-or-later
// Every strategy on thread ranks against one rank, with the measures of DESIGN section 4: losses and each parameter's gradient.
#include "tests/engine/exec/expect_parity.h"
#include "tests/engine/exec/small_layout.h"
#include "tests/engine/long.h"

using namespace rankyard;
using namespace rankyard::exec;
using namespace rankyard::exec::test;

TEST(Layouts, OneRankOfLlamaAndDropout)
{
    spec::JobSpec job = layoutJob("llama");
    expectParity(job, "llama");
    job = layoutJob();
    job.model.dropout = 0.1;
    job.layout.dp = 2;
    job.zero.stage = 1;
    expectParity(job, "dropout on two replicas");
}

TEST(Layouts, TensorParallel)
{
    RANKYARD_LONG_WHEN_SANITIZED();
    for (const char *family : {"gpt2", "llama"}) {
        for (const int tp : {2, 3, 6}) {
            for (const bool sequence : {false, true}) {
                for (const int dp : {1, 2}) {
                    if (tp * dp > 8)
                        continue;
                    spec::JobSpec job = layoutJob(family);
                    if (job.model.kvHeads && tp == 2)
                        job.model.kvHeads = 2;
                    job.layout.tp = tp;
                    job.layout.dp = dp;
                    job.layout.sequenceParallel = sequence;
                    job.zero.stage = dp > 1 ? 1 : 0;
                    for (const double dropout : {0.0, 0.1}) {
                        job.model.dropout = dropout;
                        expectParity(job,
                                     std::string(family) + " tp " + std::to_string(tp) + " dp "
                                         + std::to_string(dp) + (sequence ? " sequence parallel" : "")
                                         + (dropout > 0 ? " dropout" : ""),
                                     isLong() || dp == 1 ? 20 : 4);
                    }
                }
            }
        }
    }
}

TEST(Layouts, PipelineParallel)
{
    RANKYARD_LONG_WHEN_SANITIZED();
    struct Case {
        const char *schedule;
        int pp, virtualStages;
    };
    for (const char *family : {"gpt2", "llama"}) {
        for (const Case &c : {Case{"gpipe", 2, 1},
                              {"gpipe", 3, 1},
                              {"1f1b", 2, 1},
                              {"1f1b", 3, 1},
                              {"interleaved", 2, 2},
                              {"interleaved", 3, 2},
                              {"zb-h1", 2, 1},
                              {"zb-h1", 3, 1},
                              {"zbv", 2, 2},
                              {"zbv", 3, 2}}) {
            for (const int dp : {1, 2}) {
                spec::JobSpec job = layoutJob(family);
                job.model.layers = 2 * c.pp + 1;
                job.layout.pp = c.pp;
                job.layout.virtualStages = c.virtualStages;
                job.layout.schedule = c.schedule;
                job.layout.dp = dp;
                job.zero.stage = dp > 1 ? 1 : 0;
                job.batch.global = 24;
                expectParity(job,
                             std::string(family) + " " + c.schedule + " pp " + std::to_string(c.pp) + " dp "
                                 + std::to_string(dp),
                             isLong() ? 20 : 6);
            }
        }
    }
}

TEST(Layouts, TensorAndPipelineTogether)
{
    for (const char *family : {"gpt2", "llama"}) {
        for (const char *schedule : {"1f1b", "zb-h1"}) {
            spec::JobSpec job = layoutJob(family);
            job.layout.tp = 2;
            job.layout.pp = 2;
            job.layout.dp = 2;
            if (job.model.kvHeads)
                job.model.kvHeads = 2;
            job.layout.schedule = schedule;
            job.layout.sequenceParallel = true;
            job.zero.stage = 1;
            job.model.dropout = 0.1;
            expectParity(job, std::string(family) + " " + schedule);
            job.layout.order = "pp-dp-cp-tp";
            expectParity(job, std::string(family) + " " + schedule + " other order", 3);
        }
    }
}

TEST(Layouts, ZeroStages)
{
    for (const char *family : {"gpt2", "llama"}) {
        for (const int stage : {1, 2, 3}) {
            for (const int dp : {2, 3, 5}) {
                spec::JobSpec job = layoutJob(family);
                job.layout.dp = dp;
                job.batch.global = 4 * dp; // two micro-batches
                job.zero.stage = stage;
                job.zero.persistenceThreshold = dp == 2 ? 0 : 50;
                job.zero.prefetchBytes = dp == 3 ? 0 : 1 << 20;
                expectParity(
                    job, std::string(family) + " zero " + std::to_string(stage) + " dp " + std::to_string(dp),
                    dp == 2 ? 20 : 4);
            }
        }
    }
}

TEST(Layouts, Recompute)
{
    for (const char *family : {"gpt2", "llama"}) {
        for (const char *mode : {"selective", "attention", "full"}) {
            for (const int every : {1, 2}) {
                spec::JobSpec job = layoutJob(family);
                job.layout.dp = 2;
                job.layout.tp = every == 2 ? 3 : 1;
                job.zero.stage = every == 2 ? 1 : 3;
                job.model.dropout = 0.1;
                job.recompute.mode = mode;
                job.recompute.every = every;
                expectParity(job, std::string(family) + " " + mode + " every " + std::to_string(every), 6);
            }
        }
    }
}

TEST(Layouts, ContextParallel)
{
    for (const char *family : {"gpt2", "llama"}) {
        for (const int cp : {2, 3}) {
            for (const int dp : {1, 2}) {
                spec::JobSpec job = layoutJob(family);
                job.layout.cp = cp;
                job.layout.dp = dp;
                job.layout.tp = cp == 3 && dp == 1 ? 2 : 1;
                if (job.model.kvHeads && job.layout.tp == 2)
                    job.model.kvHeads = 2;
                job.zero.stage = dp == 2 ? 3 : 1;
                job.model.dropout = 0.1;
                job.recompute.mode = dp == 2 ? "attention" : "none";
                expectParity(job,
                             std::string(family) + " cp " + std::to_string(cp) + " dp " + std::to_string(dp),
                             dp == 1 ? 20 : 4);
            }
        }
    }
}
