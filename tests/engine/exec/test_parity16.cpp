// SPDX-License-Identifier: GPL-3.0-or-later
// 16 bits: any layout is near fp64 over twenty steps, and scales its loss as every other does (DESIGN section 4).
#include "tests/engine/exec/expect_parity.h"
#include "tests/engine/exec/small_layout.h"
#include "tests/engine/long.h"

using namespace rankyard;
using namespace rankyard::exec;
using namespace rankyard::exec::test;

namespace {

spec::JobSpec job16(DType type, const std::string &family)
{
    spec::JobSpec job = layoutJob(family);
    job.precision.grad = job.precision.master = job.precision.reduce = DType::F32;
    job.precision.compute = type;
    job.optimizer.lr = 1e-3; // larger ones take the weights apart from where rounding left them
    return job;
}

struct Case {
    const char *name;
    void (*change)(spec::JobSpec &job);
};

const Case cases[] = {
    {"dp 3 zero 1",
     [](spec::JobSpec &j) {
         j.layout.dp = 3;
         j.zero.stage = 1;
     }},
    {"dp 2 zero 3, full recomputation",
     [](spec::JobSpec &j) {
         j.layout.dp = 2;
         j.zero.stage = 3;
         j.zero.persistenceThreshold = 50;
         j.recompute.mode = "full";
     }},
    {"tp 3 with sequence parallelism",
     [](spec::JobSpec &j) {
         j.layout.tp = 3;
         j.layout.sequenceParallel = true;
     }},
    {"cp 2", [](spec::JobSpec &j) { j.layout.cp = 2; }},
    {"pp 3",
     [](spec::JobSpec &j) {
         j.layout.pp = 3;
         j.layout.schedule = "zb-h1";
     }},
};

} // namespace

TEST(Parity16, NearFp64AndTheSameScaleInEveryLayout)
{
    for (const DType type : {DType::BF16, DType::F16}) {
        for (const char *family : {"gpt2", "llama"}) {
            for (const Case &c : cases) {
                spec::JobSpec job = job16(type, family);
                c.change(job);
                // Twenty steps with halvings at their begin and doublings after.
                job.precision.lossScale.initPower = 30;
                job.precision.lossScale.window = 4;
                job.precision.lossScale.rule = family[0] == 'g' ? "deepspeed" : "megatron";
                const auto turn = (&c - cases) + (type == DType::F16 ? 2 : 0) + (family[0] == 'l' ? 1 : 0);
                if (!isLong() && turn % 5 > 1)
                    continue;
                expectParity(job, std::string(nameOf(type)) + " " + family + " " + c.name, 20, 1);
            }
        }
    }
}

/// The traces are of something: overflows and both directions of the scale are met.
TEST(Parity16, ScalesMove)
{
    spec::JobSpec job = job16(DType::F16, "gpt2");
    job.layout.dp = 2;
    job.precision.lossScale.initPower = 30;
    job.precision.lossScale.window = 4;
    const auto report = checkParity(job, parityOptions(20));
    ASSERT_TRUE(report) << report.error().text();
    int overflows = 0, up = 0, down = 0;
    for (std::size_t i = 0; i < report->steps.size(); ++i) {
        overflows += report->steps[i].overflow;
        EXPECT_EQ(report->steps[i].lossScale, report->steps[i].referenceLossScale);
        if (i > 0) {
            up += report->steps[i].lossScale > report->steps[i - 1].lossScale;
            down += report->steps[i].lossScale < report->steps[i - 1].lossScale;
        }
    }
    EXPECT_GT(overflows, 1);
    EXPECT_GT(up, 0);
    EXPECT_GT(down, 0);
}
