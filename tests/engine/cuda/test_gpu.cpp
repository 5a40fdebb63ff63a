// SPDX-License-Identifier: GPL-3.0-or-later
// On a real GPU, through the plug-in as the worker opens it; without one every test says so and is skipped.
#include "engine/exec/parity.h"
#include "engine/exec/plugin.h"
#include "tests/engine/exec/expect_parity.h"
#include "tests/engine/exec/small_layout.h"

#include <cstdlib>

using namespace rankyard;
using exec::test::layoutJob;

namespace {

const exec::DevicePlugin *plugin = nullptr;

class Gpu : public testing::Test
{
protected:
    void SetUp() override
    {
        const char *folder = std::getenv("RANKYARD_BIN_DIR");
        const auto opened =
            exec::openPlugin(std::filesystem::path(folder ? folder : ".") / exec::devicePluginFile);
        if (!opened.ok() && opened.error().code == Code::NotFound)
            GTEST_SKIP() << "the plug-in for GPUs is not built";
        ASSERT_TRUE(opened.ok()) << opened.error().text();
        plugin = *opened;
        if (plugin->count() == 0)
            GTEST_SKIP() << "there is no GPU here";
    }

    /// The job on GPUs, a rank each, against one rank of the CPU.
    static void expectParity(const spec::JobSpec &job, int ranks)
    {
        if (plugin->count() < ranks)
            GTEST_SKIP() << "there are " << plugin->count() << " GPUs for " << ranks << " ranks";
        exec::ParityOptions options = exec::test::parityOptions(20);
        options.makeReference = options.makeDevice;
        int next = 0;
        options.makeDevice = [&next] {
            auto device = plugin->make(1, next++);
            EXPECT_TRUE(device.ok()) << device.error().text();
            return device.ok() ? std::move(device).value() : nullptr;
        };
        const auto report = exec::checkParity(job, options);
        ASSERT_TRUE(report.ok()) << report.error().text();
        EXPECT_TRUE(report->ok()) << "loss " << report->worstLoss << " (limit " << report->lossLimit << "), "
                                  << report->worst.parameter << " " << report->worst.relativeError;
        testing::Test::RecordProperty("loss_error", std::to_string(report->worstLoss));
        testing::Test::RecordProperty("gradient_error", std::to_string(report->worst.relativeError));
    }

    static void inType(spec::JobSpec &job, DType type)
    {
        job.precision.compute = type;
        job.precision.grad = job.precision.master = job.precision.reduce =
            type == DType::F64 ? type : DType::F32;
    }
};

} // namespace

TEST_F(Gpu, TrainsAsTheCpuDoesInEveryType)
{
    for (const DType type : {DType::F64, DType::F32, DType::BF16, DType::F16}) {
        for (const char *family : {"gpt2", "llama"}) {
            SCOPED_TRACE(std::string(family) + " in " + nameOf(type));
            spec::JobSpec job = layoutJob(family);
            inType(job, type);
            job.model.dropout = 0.1;
            expectParity(job, 1);
        }
    }
}

TEST_F(Gpu, OffloadAndRecompute)
{
    spec::JobSpec job = layoutJob();
    job.offload.optimizer = "cpu";
    job.zero.subGroup = 1000;
    job.recompute.mode = "full";
    job.recompute.toHost = true;
    expectParity(job, 1);
}

TEST_F(Gpu, DataTensorAndPipelineRanks)
{
    spec::JobSpec job = layoutJob();
    job.layout.dp = 2;
    job.zero.stage = 3;
    expectParity(job, 2);
    job = layoutJob("llama");
    job.layout.tp = job.layout.pp = 2;
    expectParity(job, 4);
}
