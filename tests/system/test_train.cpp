// SPDX-License-Identifier: GPL-3.0-or-later
// Runs that end well.
#include "tests/system/system_test.h"

#include <algorithm>
#include <cmath>
#include <csignal>
#include <fstream>
#include <iostream>
#include <map>

using namespace rankyard;
namespace fs = std::filesystem;

using Train = SystemTest;

TEST_F(Train, GivesOneDocumentWithEveryStep)
{
    auto train = ctlDone({"train", job({{"/run/steps", 20}, {"/run/eval_every", 10}}), "--json"});
    ASSERT_EQ(train->wait(), 0) << train->errors();
    const Json json = train->json();
    ASSERT_TRUE(json.is_object()) << train->output();
    EXPECT_EQ(json["state"], "finished");
    EXPECT_TRUE(json["error"].is_null());
    ASSERT_EQ(json["steps"].size(), 20u);
    EXPECT_LT(json["steps"][19]["loss"], json["steps"][0]["loss"]);
    EXPECT_FALSE(json["valid"].empty());
    for (const char *key : {"step", "loss", "grad_norm", "lr", "loss_scale", "overflow", "tokens_per_s",
                            "step_ms", "memory", "comm"})
        EXPECT_TRUE(json["steps"][3].contains(key)) << key;
    const Json again = ctlDone({"runs", "metrics", json["run"], "--json"})->json();
    EXPECT_EQ(again["steps"], json["steps"]);
    EXPECT_NE(train->errors().find("step "), std::string::npos) << "progress goes to stderr";
}

TEST_F(Train, LossesDoNotDependOnTheLayoutAndRepeatToTheBit)
{
    const auto two = losses(ctlDone({"train", job(), "--json"})->json());
    const auto again = losses(ctlDone({"train", job(), "--json"})->json());
    const auto one = losses(ctlDone({"train", job(), "--set", "layout.dp=1", "--json"})->json());
    ASSERT_EQ(two.size(), 5u);
    EXPECT_EQ(two, again);
    ASSERT_EQ(one.size(), 5u);
    for (const auto &[step, loss] : two)
        EXPECT_NEAR(one.at(step), loss, 1e-5 * std::fabs(loss));
}

TEST_F(Train, ManyRunsTwoAtATimeAllEndClean)
{
    const int count = isLong() ? 200 : 20;
    const std::string file = job({{"/run/steps", 3}});
    std::vector<std::unique_ptr<Command>> live;
    int failures = 0;
    const auto finish = [&] {
        const int status = live.front()->wait();
        if (status != 0) {
            ++failures;
            ADD_FAILURE() << "exit " << status << "\n" << live.front()->errors();
        }
        EXPECT_EQ(live.front()->json()["steps"].size(), 3u);
        live.erase(live.begin());
    };
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < count && failures < 3; ++i) {
        if (live.size() == 2)
            finish();
        live.push_back(ctl({"train", file, "--json"}));
    }
    while (!live.empty())
        finish();
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    std::cout << "[ runs     ] " << count << " runs of 3 steps two at a time in " << seconds << " s\n";
    EXPECT_EQ(ctlDone({"runs", "list", "--json"})->json()["runs"].size(), static_cast<std::size_t>(count));
}

TEST_F(Train, AWorkersMemoryIsItsArenas)
{
    // Proportional: what ranks share counts once on the node.
    const auto resident = [](int pid) {
        std::ifstream in("/proc/" + std::to_string(pid) + "/smaps_rollup");
        for (std::string word; in >> word;) {
            double kib = 0;
            if (word == "Pss:" && in >> kib)
                return kib * 1024;
        }
        return 0.0;
    };
    const auto train = ctlDone({"train",
                                job({{"/model/layers", 4},
                                     {"/model/hidden", 256},
                                     {"/model/vocab", 4099},
                                     {"/batch/global", 6},
                                     {"/layout/dp", 3},
                                     {"/run/steps", 100000}}),
                                "--detach", "--json"});
    ASSERT_EQ(train->wait(), 0) << train->errors();
    const std::string run = train->json()["run"];
    ASSERT_TRUE(waitForStep(3));
    const Json shown = ctlDone({"runs", "show", run, "--json"})->json();
    const Json plan = ctlDone({"plan", (m_dir / "job.json").string(), "--json"})->json();
    ASSERT_EQ(shown["ranks"].size(), 3u) << dumpJson(shown, 1);
    double early = 0;
    for (const Json &rank : shown["ranks"])
        early += resident(rank["detail"]["pid"]);
    ASSERT_TRUE(waitForStep(20));
    double now = 0, arenas = 0, rest = 0;
    for (std::size_t r = 0; r < 3; ++r) {
        const Json &detail = shown["ranks"][r]["detail"];
        std::map<std::string, std::int64_t> kinds;
        for (const Json &arena : detail["arenas"]) {
            kinds[arena["kind"]] += arena["bytes"].get<std::int64_t>();
            arenas += arena["bytes"].get<double>();
        }
        for (const auto &[kind, bytes] : kinds)
            EXPECT_EQ(plan["ranks"][r]["memory"][kind], bytes) << kind;
        for (const Json &bytes : detail["workspace"])
            rest += bytes.get<double>();
        rest += detail["resident_before_arenas"].get<double>();
        now += resident(detail["pid"]);
    }
    std::cout << "[ memory   ] 3 ranks: " << now / 1048576 << " MiB resident; " << arenas / 1048576
              << " of arenas, at most " << rest / 1048576 << " of code and workspace\n";
    EXPECT_GE(now, arenas);
    EXPECT_LE(now, 1.05 * (rest + arenas));
    EXPECT_NEAR(now, early, 0.01 * now);
    EXPECT_EQ(ctlDone({"stop", run})->wait(), 0);
}

TEST_F(Train, AKilledClientLeavesTheRunAloneAndAttachCatchesUp)
{
    auto train = ctl({"train", job({{"/run/steps", 150}}), "--json"});
    ASSERT_FALSE(waitForWorkers(2).empty());
    ASSERT_TRUE(waitForStep(5));
    train->signal(SIGKILL);
    EXPECT_EQ(train->wait(), -SIGKILL);
    auto attach = ctlDone({"attach", "last", "--json"});
    ASSERT_EQ(attach->wait(), 0) << attach->errors();
    const auto all = losses(attach->json());
    ASSERT_EQ(all.size(), 150u);
    EXPECT_EQ(all.begin()->first, 1);
    EXPECT_EQ(all.rbegin()->first, 150);
    // As if nothing had happened.
    EXPECT_EQ(all, losses(ctlDone({"train", job({{"/run/steps", 150}}), "--json"})->json()));
}

TEST_F(Train, DetachesAndIsControlledByOtherCommands)
{
    auto train = ctlDone({"train", job({{"/run/steps", 100000}}), "--detach", "--json"});
    ASSERT_EQ(train->wait(), 0) << train->errors();
    const std::string run = train->json()["run"];
    auto attach = ctl({"attach", run, "--json"});
    ASSERT_TRUE(waitForStep(3));
    EXPECT_EQ(ctlDone({"pause", run})->wait(), 0);
    const auto state = [&] {
        return ctlDone({"runs", "show", run, "--json"})->json().value("state", std::string());
    };
    for (int i = 0; i < 500 && state() != "paused"; ++i) {
    }
    EXPECT_EQ(state(), "paused");
    EXPECT_EQ(ctlDone({"resume", run})->wait(), 0);
    EXPECT_EQ(ctlDone({"checkpoint", run})->wait(), 0);
    EXPECT_EQ(ctlDone({"runs", "rm", run})->wait(), 2) << "it lives";
    EXPECT_EQ(ctlDone({"stop", run})->wait(), 0);
    EXPECT_EQ(attach->wait(), 6) << attach->errors();
    EXPECT_EQ(attach->json()["state"], "stopped");
    EXPECT_EQ(ctlDone({"runs", "rm", run})->wait(), 0);
    EXPECT_FALSE(std::filesystem::exists(m_dir / "state" / "rankyard" / "runs" / run));
}

TEST_F(Train, CtrlCStopsCleanlyAtAnyMoment)
{
    for (const int ms : {0, 50, 150, 400, 900, 1500}) {
        auto train = ctl({"train", job({{"/run/steps", 100000}}), "--json"});
        if (ms > 0) {
            train->wait(std::chrono::milliseconds(ms)); // a moment like any other
        } else {
            ASSERT_TRUE(train->waitForError("r-"));
        }
        train->signal(SIGINT);
        const int status = train->wait();
        // Before it has read its command line a signal has its usual effect: then nothing was started.
        EXPECT_TRUE(status == 6 || status == -SIGINT) << ms << " ms: exit " << status << "\n"
                                                      << train->errors();
        EXPECT_TRUE(workers().empty()) << ms;
        if (status == 6 && train->json().contains("state")) {
            EXPECT_EQ(train->json()["state"], "stopped");
        }
    }
    auto train = ctl({"train", job({{"/run/steps", 100000}}), "--json"});
    ASSERT_TRUE(train->waitForError("\n")); // the run's id
    ASSERT_TRUE(waitForStep(2, train->errors().substr(0, train->errors().find('\n'))));
    train->signal(SIGINT);
    ASSERT_TRUE(train->waitForError("stopping"));
    train->signal(SIGINT);
    EXPECT_EQ(train->wait(), 6) << train->errors();
    EXPECT_TRUE(workers().empty());
}

TEST_F(Train, ResumingIsEqualToTheBit)
{
    const auto straight = losses(ctlDone({"train", job({{"/run/steps", 20}}), "--json"})->json());
    ASSERT_EQ(straight.size(), 20u);
    auto first = ctlDone({"train", job({{"/run/steps", 10}}), "--set", "lr_schedule.total=200", "--json"});
    ASSERT_EQ(first->wait(), 0) << first->errors();
    const std::string run = first->json()["run"];
    auto second = ctlDone({"train", "--resume", run, "--steps", "20", "--json"});
    ASSERT_EQ(second->wait(), 0) << second->errors();
    EXPECT_EQ(second->json()["run"], run);
    EXPECT_EQ(losses(second->json()), straight);
    auto third = ctlDone({"train", "--resume", run, "--steps", "20", "--json"});
    EXPECT_EQ(third->wait(), 2) << "it has made all its steps";
}

namespace {

/// Turns a byte in the middle of the largest file of a folder.
void damage(const fs::path &folder)
{
    fs::path largest;
    for (const auto &entry : fs::recursive_directory_iterator(folder)) {
        if (entry.is_regular_file() && (largest.empty() || entry.file_size() > fs::file_size(largest)))
            largest = entry.path();
    }
    std::fstream file(largest, std::ios::in | std::ios::out | std::ios::binary);
    const auto middle = static_cast<std::streamoff>(fs::file_size(largest) / 2);
    file.seekg(middle);
    const char byte = static_cast<char>(file.get() ^ 1);
    file.seekp(middle);
    file.put(byte);
    ASSERT_TRUE(file.good()) << largest;
}

std::vector<fs::path> checkpointsOf(const fs::path &run)
{
    std::vector<fs::path> folders;
    for (const auto &entry : fs::directory_iterator(run / "ckpt")) {
        if (entry.is_directory())
            folders.push_back(entry.path());
    }
    std::sort(folders.begin(), folders.end());
    return folders;
}

} // namespace

TEST_F(Train, ADamagedCheckpointIsToldAndTheOneBeforeItServes)
{
    const auto straight = losses(ctlDone({"train", job({{"/run/steps", 20}}), "--json"})->json());
    const std::string folder = (m_dir / "with blank ä" / "run").string();
    auto first = ctlDone({"train", job({{"/run/steps", 10}, {"/run/checkpoint_every", 5}}), "--set",
                          "lr_schedule.total=200", "--run-dir", folder, "--json"});
    ASSERT_EQ(first->wait(), 0) << first->errors();
    const std::string run = first->json()["run"];
    const auto checkpoints = checkpointsOf(folder);
    ASSERT_EQ(checkpoints.size(), 2u);
    damage(checkpoints[1]); // as long as before: only its digest tells

    auto second = ctlDone({"train", "--resume", run, "--steps", "20", "--json"});
    ASSERT_EQ(second->wait(), 0) << second->errors();
    EXPECT_EQ(losses(second->json()), straight) << "from step 5, to the bit";
    EXPECT_NE(second->errors().find("a newer checkpoint cannot be used"), std::string::npos)
        << second->errors();
    EXPECT_NE(second->errors().find(checkpoints[1].filename().string()), std::string::npos)
        << second->errors();
    EXPECT_NE(second->errors().find("Going on from step 5"), std::string::npos) << second->errors();

    for (const fs::path &checkpoint : checkpointsOf(folder)) {
        if (checkpoint != checkpoints[1])
            damage(checkpoint);
    }
    auto third = ctlDone({"train", "--resume", run, "--steps", "30", "--json"});
    EXPECT_EQ(third->wait(), 2) << third->errors();
    EXPECT_NE(third->errors().find("there is no valid checkpoint"), std::string::npos) << third->errors();
}

TEST_F(Train, WhatHasEndedCannotBeStopped)
{
    auto train = ctlDone({"train", job({{"/run/steps", 2}}), "--json"});
    ASSERT_EQ(train->wait(), 0) << train->errors();
    for (const char *request : {"stop", "kill", "pause", "resume", "checkpoint"}) {
        auto refused = ctlDone({request, "last"});
        EXPECT_EQ(refused->wait(), 2) << request;
        EXPECT_NE(refused->errors().find("the run has ended"), std::string::npos) << refused->errors();
        EXPECT_NE(refused->errors().find("finished"), std::string::npos) << refused->errors();
    }
}
