// SPDX-License-Identifier: GPL-3.0-or-later
// Whole jobs through the device of a GPU, played by the CPU: executor, streams, events, links, kernels and memory are those that a
// GPU would have. Each layout is compared with one rank on the CPU's own device.
#include "engine/cuda/cuda_device.h"
#include "engine/exec/init.h"
#include "tests/engine/cuda/host_gpu.h"
#include "tests/engine/cuda/host_launcher.h"
#include "tests/engine/exec/expect_parity.h"
#include "tests/engine/exec/small_layout.h"

#include <atomic>
#include <sys/wait.h>
#include <unistd.h>

using namespace rankyard;
using namespace rankyard::cuda;
using namespace rankyard::cuda::test;
using exec::test::layoutJob;

namespace {

std::unique_ptr<exec::Device> hostDevice()
{
    static std::atomic<unsigned> seed{1};
    return std::make_unique<CudaDevice>(std::make_shared<HostGpu>(HostGpu::Mode::Lazy, seed++), 1);
}

struct Named {
    const char *name;
    std::function<void(spec::JobSpec &)> change;
    std::string family = "gpt2";
};

void PrintTo(const Named &named, std::ostream *out) { *out << named.name; }

std::function<void(spec::JobSpec &)> inSixteenBits(DType type)
{
    return [type](spec::JobSpec &job) {
        job.precision.compute = type;
        job.precision.grad = job.precision.master = job.precision.reduce = DType::F32;
        job.layout.dp = job.layout.tp = 2;
        job.zero.stage = 1;
        job.model.dropout = 0.1;
    };
}

class OnGpu : public testing::TestWithParam<Named>
{};

} // namespace

TEST_P(OnGpu, TrainsAsOneRankOfTheCpu)
{
    spec::JobSpec job = layoutJob(GetParam().family);
    GetParam().change(job);
    if (job.layout.dp == 1 && job.layout.pp == 1)
        job.batch.global = 2 * job.batch.micro; // enough for one that adds to what is there
    exec::ParityOptions options = exec::test::parityOptions(2);
    options.makeReference = options.makeDevice;
    options.makeDevice = hostDevice;
    const auto report = exec::checkParity(job, options);
    ASSERT_TRUE(report.ok()) << report.error().text();
    EXPECT_TRUE(report->ok()) << "loss " << report->worstLoss << " (limit " << report->lossLimit << "), "
                              << report->worst.parameter << " of " << report->worst.unit << " "
                              << report->worst.relativeError << " at step " << report->worst.step;
}

/// The proof above proves something: streams that do not wait for each other are found out.
TEST(OnGpuWithoutWaits, IsNotWhatOneRankOfTheCpuDoes)
{
    for (const char *what : {"dp", "tp", "pp", "cp"}) {
        spec::JobSpec job = layoutJob();
        job.batch.global = 8;
        (what == std::string("dp")       ? job.layout.dp
             : what == std::string("tp") ? job.layout.tp
             : what == std::string("pp") ? job.layout.pp
                                         : job.layout.cp) = 2;
        job.zero.stage = job.layout.dp > 1 ? 2 : 0;
        exec::ParityOptions options = exec::test::parityOptions(2);
        options.makeReference = options.makeDevice;
        options.makeDevice = []() -> std::unique_ptr<exec::Device> {
            auto gpu = std::make_shared<HostGpu>(HostGpu::Mode::Lazy);
            gpu->ignoreWaits();
            return std::make_unique<CudaDevice>(std::move(gpu), 1);
        };
        // In a process of its own: what is read too early may be an index out of range.
        const pid_t child = ::fork();
        if (child == 0) {
            const auto report = exec::checkParity(job, options);
            ::_exit(report.ok() && report->ok() ? 0 : 1);
        }
        int status = 0;
        ASSERT_EQ(::waitpid(child, &status, 0), child);
        EXPECT_FALSE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << what;
    }
}

const std::vector<Named> layouts = {
    {"one", [](spec::JobSpec &job) { job.model.dropout = 0.1; }},
    {"llama", [](spec::JobSpec &) {}, "llama"},
    {"dp3", [](spec::JobSpec &job) { job.layout.dp = 3; }},
    {"zero1",
     [](spec::JobSpec &job) {
         job.layout.dp = 2;
         job.zero.stage = 1;
     }},
    {"zero2",
     [](spec::JobSpec &job) {
         job.layout.dp = 3;
         job.zero.stage = 2;
     }},
    {"zero3",
     [](spec::JobSpec &job) {
         job.layout.dp = 2;
         job.zero.stage = 3;
     }},
    {"zero3BlocksRecomputed",
     [](spec::JobSpec &job) {
         job.layout.dp = 4;
         job.batch.global = 8;
         job.zero.stage = 3;
         job.zero.shard = 2;
         job.recompute.mode = "full";
     },
     "llama"},
    {"ring",
     [](spec::JobSpec &job) {
         job.layout.dp = 3;
         job.comm.algorithm = "ring";
     }},
    {"tp2",
     [](spec::JobSpec &job) {
         job.layout.tp = 2;
         job.model.dropout = 0.1;
     }},
    {"tp3Sequence",
     [](spec::JobSpec &job) {
         job.layout.tp = 3;
         job.layout.sequenceParallel = true;
     },
     "llama"},
    {"pp3",
     [](spec::JobSpec &job) {
         job.layout.pp = 3;
         job.layout.schedule = "1f1b";
     }},
    {"gpipe",
     [](spec::JobSpec &job) {
         job.layout.pp = 2;
         job.layout.schedule = "gpipe";
     },
     "llama"},
    {"zb",
     [](spec::JobSpec &job) {
         job.layout.pp = 2;
         job.layout.schedule = "zb-h1";
     }},
    {"zbv",
     [](spec::JobSpec &job) {
         job.layout.pp = 2;
         job.layout.virtualStages = 2;
         job.layout.schedule = "zbv";
         job.model.layers = 4;
     }},
    {"interleaved",
     [](spec::JobSpec &job) {
         job.layout.pp = 2;
         job.layout.virtualStages = 2;
         job.layout.schedule = "interleaved";
         job.model.layers = 4;
     }},
    {"cp3Dropped",
     [](spec::JobSpec &job) {
         job.layout.cp = 3;
         job.model.dropout = 0.1;
     }},
    {"dp2tp2pp2",
     [](spec::JobSpec &job) {
         job.layout.dp = job.layout.tp = job.layout.pp = 2;
         job.zero.stage = 1;
     }},
    {"offload",
     [](spec::JobSpec &job) {
         job.layout.dp = 2;
         job.zero.stage = 1;
         job.offload.optimizer = "cpu";
         job.zero.subGroup = 1000;
     }},
    {"offloadParams",
     [](spec::JobSpec &job) {
         job.layout.dp = 2;
         job.zero.stage = 3;
         job.offload.optimizer = job.offload.params = "cpu";
     }},
    {"int8",
     [](spec::JobSpec &job) {
         job.layout.dp = 3;
         job.compression.mode = "int8";
         job.compression.block = 64;
     }},
    {"adaptive",
     [](spec::JobSpec &job) {
         job.layout.dp = 2;
         job.zero.stage = 1;
         job.compression.mode = "adaptive";
         job.compression.threshold = 0.2;
     }},
    {"optimizerInFiles",
     [](spec::JobSpec &job) {
         job.layout.dp = 2;
         job.zero.stage = 1;
         job.zero.subGroup = 1000;
         job.offload.optimizer = "nvme";
         job.offload.nvmePath = "/tmp";
     }},
    {"recomputedOnHost",
     [](spec::JobSpec &job) {
         job.layout.tp = 2;
         job.recompute.mode = "full";
         job.recompute.partition = job.recompute.toHost = true;
     }},
    {"bf16", inSixteenBits(DType::BF16)},
    {"fp16", inSixteenBits(DType::F16)},
    {"fp32",
     [](spec::JobSpec &job) {
         job.precision.compute = job.precision.grad = job.precision.master = job.precision.reduce =
             DType::F32;
         job.layout.dp = job.layout.tp = 2;
         job.zero.stage = 1;
     }},
};

INSTANTIATE_TEST_SUITE_P(Layouts, OnGpu, testing::ValuesIn(layouts),
                         [](const testing::TestParamInfo<Named> &layout) {
                             return std::string(layout.param.name);
                         });
