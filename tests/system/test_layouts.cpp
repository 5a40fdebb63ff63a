// SPDX-License-Identifier: GPL-3.0-or-later
// Layouts with a process a rank: the same losses as one rank, and checkpoints that any layout goes on from.
#include "tests/system/system_test.h"

#include <cmath>

using namespace rankyard;

namespace {

using Settings = std::vector<std::string>;

struct Layouts : SystemTest {
    /// Losses by step of the job with these settings; empty when it failed.
    std::map<std::int64_t, double> train(const std::string &file, const Settings &settings,
                                         std::string *run = nullptr)
    {
        std::vector<std::string> arguments = {"train", file, "--json"};
        for (const std::string &setting : settings)
            arguments.insert(arguments.end(), {"--set", setting});
        auto done = ctlDone(std::move(arguments));
        EXPECT_EQ(done->wait(), 0) << done->errors();
        const Json document = done->json();
        if (run && document.contains("run"))
            *run = document["run"];
        return losses(document);
    }

    static void expectAlike(const std::map<std::int64_t, double> &got,
                            const std::map<std::int64_t, double> &wanted)
    {
        ASSERT_EQ(got.size(), wanted.size());
        for (const auto &[step, loss] : wanted)
            EXPECT_NEAR(got.at(step), loss, 1e-5 * std::fabs(loss)) << "step " << step;
    }
};

} // namespace

TEST_F(Layouts, ProcessesGiveWhatOneRankGives)
{
    const std::string file = job({{"/model/layers", 4}, {"/run/checkpoint_every", 0}, {"/layout/dp", 1}});
    const Settings llama = {"model.family=llama", "model.tied=false", "model.dropout=0.1"};
    for (const bool other : {false, true}) {
        const Settings model = other ? llama : Settings();
        const auto one = train(file, model);
        ASSERT_FALSE(one.empty());
        for (Settings layout :
             {Settings{"layout.tp=2"},
              {"layout.tp=2", "layout.sequence_parallel=true", "layout.dp=2", "zero.stage=1"},
              {"layout.pp=2", "layout.schedule=gpipe", "batch.micro=2"},
              {"layout.dp=2", "zero.stage=2", "batch.micro=2"},
              {"layout.dp=2", "zero.stage=3", "zero.persistence_threshold=0", "zero.max_reuse_distance=0"},
              {"layout.cp=2", "recompute.mode=full", "recompute.every=2"},
              {"layout.pp=2", "layout.virtual=2", "layout.schedule=zbv", "batch.micro=2"},
              {"layout.tp=2", "layout.pp=2", "layout.schedule=zb-h1", "batch.micro=2"},
              {"layout.dp=2", "zero.stage=1", "comm.algorithm=ring"},
              {"layout.dp=4", "zero.stage=2", "zero.shard=2", "batch.micro=1"},
              {"layout.dp=2", "offload.optimizer=nvme", "offload.nvme_path=/tmp", "zero.sub_group=5000"},
              {"layout.dp=2", "zero.stage=3", "zero.persistence_threshold=100", "offload.optimizer=cpu",
               "offload.params=cpu"},
              {"layout.tp=2", "recompute.mode=full", "recompute.to_host=true", "recompute.partition=true"}}) {
            SCOPED_TRACE(layout.back() + (other ? " llama" : ""));
            layout.insert(layout.end(), model.begin(), model.end());
            expectAlike(train(file, layout), one);
        }
    }
}

TEST_F(Layouts, ACheckpointGoesOnInAnotherLayout)
{
    const std::string file = job({{"/model/layers", 4}, {"/run/steps", 6}, {"/layout/dp", 1}});
    const auto whole = train(file, {});
    ASSERT_EQ(whole.size(), 6u);
    std::string run;
    const auto first = train(
        file, {"layout.tp=2", "layout.pp=2", "batch.micro=2", "layout.sequence_parallel=true", "run.steps=3"},
        &run);
    ASSERT_EQ(first.size(), 3u);
    for (const Settings &layout : {Settings{"layout.dp=2", "zero.stage=1"},
                                   {"layout.dp=2", "zero.stage=3"},
                                   {"layout.pp=2", "batch.micro=2"}}) {
        std::vector<std::string> arguments = {"train", file, "--json", "--resume", run};
        for (const std::string &setting : layout)
            arguments.insert(arguments.end(), {"--set", setting});
        auto rest = ctlDone(std::move(arguments));
        ASSERT_EQ(rest->wait(), 0) << rest->errors();
        const auto got = losses(rest->json());
        ASSERT_EQ(got.size(), 3u);
        for (const auto &[step, loss] : got)
            EXPECT_NEAR(loss, whole.at(step), 1e-5 * loss) << "step " << step;
    }
}

TEST_F(Layouts, ParityIsACommand)
{
    const std::string file = job({{"/model/layers", 4}});
    auto parity =
        ctlDone({"parity", file, "--json", "--steps", "3", "--set", "layout.tp=2", "--set", "layout.dp=2"});
    ASSERT_EQ(parity->wait(), 0) << parity->errors();
    const Json document = parity->json();
    EXPECT_EQ(document["ok"], true);
    EXPECT_EQ(document["precision"], "fp64"); // whatever the job computes in
    EXPECT_EQ(document["steps"].size(), 3u);
    EXPECT_TRUE(document["steps"][0].contains("reference_loss"));
    EXPECT_FALSE(document["worst"]["parameter"].get<std::string>().empty());
    EXPECT_LT(document["worst"]["relative_error"], 1e-9);
}
