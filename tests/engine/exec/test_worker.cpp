// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/checkpoint/safetensors.h"
#include "engine/checkpoint/store.h"
#include "engine/exec/control.h"
#include "tests/engine/exec/mini_agent.h"
#include "tests/engine/exec/toy.h"

#include <csignal>
#include <cstring>
#include <fstream>
#include <gtest/gtest.h>
#include <thread>
#include <unistd.h>

using namespace rankyard;
using namespace rankyard::exec;
using namespace rankyard::exec::test;
using Request = WorkerMessage::Request;

namespace {

class WorkerTest : public testing::Test
{
protected:
    void SetUp() override { writeCorpus(m_folder.path() / "corpus", 20000, 37); }

    MiniAgent agent(int dp, std::int64_t steps, int zero = 1)
    {
        MiniAgent result;
        result.job = tinyJob(dp);
        result.job.precision = {};
        result.job.batch.global = 12;
        result.job.zero.stage = dp > 1 ? zero : 0;
        result.job.data.train = "corpus";
        result.job.compression.mode = m_codec;
        result.job.run.steps = steps;
        result.job.run.evalEvery = 5;
        result.job.run.evalBatches = 2;
        result.job.run.checkpointEvery = 0;
        result.job.optimizer.lr = 1e-2;
        result.folder = m_folder.path();
        return result;
    }
    std::filesystem::path ckpt() const { return m_folder.path() / "ckpt"; }
    std::string newest() const
    {
        const auto found = checkpoint::newestCheckpoint(ckpt(), checkpoint::Verify::Digests);
        EXPECT_TRUE(found.ok());
        return found.ok() ? found->folder.string() : std::string();
    }

    TemporaryFolder m_folder;
    std::string m_codec = "none";
};

void expectEnd(const std::vector<RankOutcome> &ranks, int code)
{
    for (const RankOutcome &rank : ranks)
        EXPECT_EQ(rank.exitCode(), code) << rank.error().text();
}

std::vector<double> losses(const RankOutcome &rank)
{
    std::vector<double> result;
    for (const auto &step : rank.steps())
        result.push_back(step.loss);
    return result;
}

/// Every file of a folder by name, with its bytes, without the manifest.
std::map<std::string, std::string> contentOf(const std::filesystem::path &folder)
{
    std::map<std::string, std::string> content;
    for (const auto &entry : std::filesystem::directory_iterator(folder)) {
        if (entry.path().extension() == ".safetensors")
            content[entry.path().filename().string()] = *readFile(entry.path());
    }
    return content;
}

} // namespace

TEST_F(WorkerTest, TrainsAndTells)
{
    const auto ranks = agent(2, 12).run();
    expectEnd(ranks, 0);
    for (const RankOutcome &rank : ranks) {
        const auto steps = rank.steps();
        ASSERT_EQ(steps.size(), 12u);
        EXPECT_LT(steps.back().loss, steps.front().loss);
        EXPECT_EQ(losses(rank), losses(ranks[0]));
        EXPECT_EQ(rank.count("ready"), 1u);
        EXPECT_EQ(rank.count("end"), 1u);
        EXPECT_GE(rank.heartbeats, 1);
        ASSERT_EQ(steps[5].comm.size(), 2u);
        EXPECT_GT(steps[5].comm[0].payload, 0);
        EXPECT_GT(steps[5].tokensPerS, 0);
        std::size_t spans = 0, hellos = 0;
        for (std::size_t i = 0; i < rank.records.size(); ++i) {
            EXPECT_EQ(rank.records[i].sequence, i + 1);
            hellos += std::holds_alternative<telemetry::HelloRecord>(rank.records[i].payload);
            if (const auto *record = std::get_if<telemetry::SpanRecord>(&rank.records[i].payload)) {
                ++spans;
                EXPECT_TRUE(std::is_sorted(record->beginNs.begin(), record->beginNs.end()));
            }
        }
        EXPECT_EQ(hellos, 1u);
        EXPECT_GE(spans, 4u); // the first three and the last
    }
    ASSERT_EQ(ranks[0].evals().size(), 3u); // steps 5, 10 and the last
    EXPECT_LT(ranks[0].evals().back().loss, ranks[0].evals().front().loss);
    EXPECT_EQ(newest(), (ckpt() / checkpoint::stepName(12)).string());
}

TEST_F(WorkerTest, ResumesToTheBit)
{
    for (const auto &[zero, codec] : {std::pair(0, "none"), std::pair(1, "none"), std::pair(1, "int8")}) {
        m_codec = codec;
        // Too many steps to get through before it is stopped, wherever that is.
        auto first = agent(2, 1'000'000, zero);
        first.onNews = [](MiniAgent &self, int rank, const std::string &kind, std::int64_t) {
            if (rank == 0 && kind == "ready")
                self.control(Request::Stop);
        };
        const auto half = first.run();
        expectEnd(half, 6);
        const auto stopped = static_cast<std::int64_t>(half[0].steps().size());
        auto second = agent(2, stopped + 20, zero);
        second.resume = newest();
        second.startStep = stopped;
        const auto rest = second.run();
        expectEnd(rest, 0);
        auto all = losses(half[0]);
        for (const double loss : losses(rest[0]))
            all.push_back(loss);
        const auto resumed = contentOf(newest());
        std::filesystem::remove_all(ckpt());
        const auto reference = agent(2, stopped + 20, zero).run();
        expectEnd(reference, 0);
        EXPECT_EQ(all, losses(reference[0]));
        EXPECT_TRUE(contentOf(newest()) == resumed);
        std::filesystem::remove_all(ckpt());
    }
}

/// With zero.shard there are several ranks at the same place of a block: each has left out something else.
TEST_F(WorkerTest, ResumesCompressionOverShardsInBlocks)
{
    const auto job = [this](std::int64_t steps, int dp, int cp, std::int64_t shard) {
        auto result = agent(dp, steps);
        result.job.layout.cp = cp;
        result.job.zero.stage = 1;
        result.job.zero.shard = shard;
        result.job.model.seq = 4 * cp;
        result.job.batch.global = 12;
        result.job.batch.micro = 1;
        result.job.run.keep = 9;
        return result;
    };
    const std::pair<int, int> layouts[] = {{4, 1}, {2, 2}};
    for (const auto &[dp, cp] : layouts) {
        for (const char *codec : {"int8", "topk"}) {
            m_codec = codec;
            std::filesystem::remove_all(ckpt());
            const auto whole = job(12, dp, cp, 2).run();
            expectEnd(whole, 0);
            const auto expected = contentOf(newest());
            std::filesystem::remove_all(ckpt());
            expectEnd(job(6, dp, cp, 2).run(), 0);
            const std::string half = newest();
            const auto found = checkpoint::newestCheckpoint(ckpt(), checkpoint::Verify::Digests);
            ASSERT_TRUE(found.ok());
            for (const int replica : {0, 1, 2, 3})
                EXPECT_TRUE(
                    found->manifest.find("wte.weight#" + std::to_string(replica), checkpoint::Role::Error))
                    << replica;
            std::int64_t step = 6;
            // Into other layouts: fewer replicas, other blocks, none.
            for (const auto &[otherDp, otherShard] : {std::pair<int, std::int64_t>{2, 0}, {4, 0}, {6, 3}}) {
                auto other = job(++step, otherDp, cp, otherShard);
                other.resume = half;
                other.startStep = 6;
                expectEnd(other.run(), 0);
            }
            auto second = job(12, dp, cp, 2);
            second.resume = half;
            second.startStep = 6;
            const auto rest = second.run();
            expectEnd(rest, 0);
            auto all = losses(whole[0]);
            all.erase(all.begin(), all.begin() + 6);
            EXPECT_EQ(losses(rest[0]), all);
            EXPECT_TRUE(contentOf(newest()) == expected);
        }
    }
}

TEST_F(WorkerTest, ResumesInAnotherLayout)
{
    const auto reference = agent(1, 10).run();
    std::filesystem::remove_all(ckpt());
    expectEnd(agent(3, 5).run(), 0);
    auto second = agent(2, 10);
    second.resume = newest();
    second.startStep = 5;
    const auto rest = second.run();
    expectEnd(rest, 0);
    const auto expected = losses(reference[0]);
    const auto got = losses(rest[0]);
    ASSERT_EQ(got.size(), 5u);
    for (std::size_t i = 0; i < got.size(); ++i)
        EXPECT_NEAR(got[i], expected[5 + i], 1e-4 * expected[5 + i]);
}

TEST_F(WorkerTest, PausesAndGoesOn)
{
    auto one = agent(2, 100000);
    one.job.run.evalEvery = 0;
    int paused = 0;
    bool stopped = false;
    std::int64_t pausedAt = 0, stepsAtPause = 0;
    one.onNews = [&](MiniAgent &self, int rank, const std::string &kind, std::int64_t step) {
        if (rank == 0 && kind == "step" && step == 5)
            self.control(Request::Pause);
        if (kind == "paused" && ++paused == 2) {
            pausedAt = monotonicNs();
            stepsAtPause = step;
            ::usleep(300000);
            self.control(Request::Resume);
        }
        if (rank == 0 && kind == "step" && step == stepsAtPause + 1 && pausedAt > 0) {
            EXPECT_GT(monotonicNs() - pausedAt, 300'000'000);
            self.control(Request::Checkpoint);
        }
        if (kind == "checkpoint" && !stopped) {
            stopped = true;
            self.control(Request::Stop);
        }
    };
    const auto ranks = one.run();
    expectEnd(ranks, 6);
    for (const RankOutcome &rank : ranks) {
        EXPECT_EQ(rank.count("paused"), 1u);
        EXPECT_EQ(rank.count("resumed"), 1u);
        EXPECT_LT(rank.steps().size(), 100000u);
    }
    EXPECT_EQ(ranks[0].count("checkpoint"), 2u); // asked for, and at the stop
}

TEST_F(WorkerTest, AKilledRankIsNamedByTheOther)
{
    auto one = agent(2, 100000);
    one.job.run.evalEvery = 0;
    std::int64_t killedAt = 0;
    one.onNews = [&](MiniAgent &self, int rank, const std::string &kind, std::int64_t step) {
        if (rank == 0 && kind == "step" && step == 20) {
            killedAt = monotonicNs();
            ::kill(self.pids[1], SIGKILL);
        }
    };
    const auto ranks = one.run();
    EXPECT_EQ(ranks[0].exitCode(), 4);
    EXPECT_EQ(ranks[1].exitCode(), -SIGKILL);
    EXPECT_EQ(ranks[0].error().where, "rank 1");
    EXPECT_TRUE(ranks[0].reports.back().at("peer").get<bool>());
    EXPECT_LT(ranks[0].endedNs - killedAt, 500'000'000);
}

TEST_F(WorkerTest, AStoppedRankIsFoundToHang)
{
    auto one = agent(2, 100000);
    one.job.run.evalEvery = 0;
    one.hangMs = 400;
    one.onNews = [&](MiniAgent &self, int rank, const std::string &kind, std::int64_t step) {
        if (rank == 0 && kind == "step" && step == 20)
            ::kill(self.pids[1], SIGSTOP);
        if (rank == 0 && kind == "error")
            ::kill(self.pids[1], SIGKILL);
    };
    const auto ranks = one.run();
    EXPECT_EQ(ranks[0].exitCode(), 4);
    EXPECT_NE(ranks[0].error().what.find("rank 1 hangs"), std::string::npos) << ranks[0].error().text();
}

TEST_F(WorkerTest, RefusesBeforeItStarts)
{
    auto other = agent(2, 5);
    other.planDigest = "0123";
    for (const RankOutcome &rank : other.run()) {
        EXPECT_EQ(rank.exitCode(), 3);
        EXPECT_EQ(rank.error().expected, "0123");
        EXPECT_TRUE(rank.steps().empty());
    }
    auto missing = agent(1, 5);
    missing.job.data.train = "nothing-here";
    EXPECT_NE(missing.run()[0].exitCode(), 0);
    auto resumed = agent(1, 5);
    resumed.resume = (ckpt() / "step-000000001").string();
    EXPECT_NE(resumed.run()[0].exitCode(), 0);
}

TEST_F(WorkerTest, NoStepsIsAnEndToo)
{
    const auto ranks = agent(2, 0).run();
    expectEnd(ranks, 0);
    EXPECT_TRUE(ranks[0].steps().empty());
    EXPECT_EQ(ranks[0].count("end"), 1u);
}

TEST_F(WorkerTest, StartsFromWeightsByEitherNames)
{
    // A trained model, saved under Hugging Face's names with transposed matrices, starts a run where the
    // original ended.
    auto first = agent(1, 6);
    expectEnd(first.run(), 0);
    const auto found = checkpoint::newestCheckpoint(ckpt(), checkpoint::Verify::Digests);
    ASSERT_TRUE(found.ok());
    checkpoint::CheckpointReader reader(found->folder, found->manifest);
    std::vector<checkpoint::TensorSpec> canonical;
    std::vector<std::vector<float>> values;
    for (const auto &tensor : found->manifest.tensors) {
        if (tensor.role != checkpoint::Role::Param)
            continue;
        canonical.push_back({tensor.name, DType::F32, tensor.shape});
        values.emplace_back(static_cast<std::size_t>(plan::numelOf(tensor.shape)));
        ASSERT_TRUE(reader.read(tensor, 0, plan::numelOf(tensor.shape), values.back().data()).ok());
    }
    const auto write = [&](const char *name, const std::vector<checkpoint::TensorSpec> &specs,
                           const std::vector<std::vector<float>> &all) {
        auto writer = checkpoint::SafetensorsWriter::create(m_folder.path() / name, specs);
        for (const auto &one : all)
            ASSERT_TRUE(writer->write(std::as_bytes(std::span(one))).ok());
        ASSERT_TRUE(writer->finish().ok());
    };
    write("canonical.safetensors", canonical, values);
    auto foreign = canonical;
    auto transposed = values;
    for (std::size_t i = 0; i < foreign.size(); ++i) {
        const std::string &name = foreign[i].name;
        const bool matrix = foreign[i].shape.size() == 2 && name.find("layers.") == 0;
        if (matrix) {
            const std::int64_t rows = foreign[i].shape[0], columns = foreign[i].shape[1];
            for (std::int64_t r = 0; r < rows; ++r) {
                for (std::int64_t c = 0; c < columns; ++c)
                    transposed[i][static_cast<std::size_t>(c * rows + r)] =
                        values[i][static_cast<std::size_t>(r * columns + c)];
            }
            std::swap(foreign[i].shape[0], foreign[i].shape[1]);
        }
        const std::string layer = name.size() > 7 ? name.substr(7, 1) : "";
        const std::pair<const char *, const char *> names[] = {
            {"attn.norm", "ln_1"}, {"attn.qkv", "attn.c_attn"}, {"attn.out", "attn.c_proj"},
            {"mlp.norm", "ln_2"},  {"mlp.up", "mlp.c_fc"},      {"mlp.down", "mlp.c_proj"}};
        std::string converted = "transformer." + name;
        if (name.starts_with("norm."))
            converted = "transformer.ln_f." + name.substr(5);
        for (const auto &[ours, theirs] : names) {
            if (name.starts_with("layers.") && name.substr(9).starts_with(ours))
                converted = "transformer.h." + layer + "." + theirs + name.substr(9 + std::strlen(ours));
        }
        foreign[i].name = converted;
    }
    write("foreign.safetensors", foreign, transposed);
    std::vector<std::vector<double>> evals;
    for (const char *file : {"canonical.safetensors", "foreign.safetensors"}) {
        std::filesystem::remove_all(ckpt());
        auto again = agent(2, 1);
        again.job.init.from = file;
        again.job.optimizer.lr = again.job.lrSchedule.minLr = 0; // the step changes nothing
        const auto ranks = again.run();
        expectEnd(ranks, 0);
        evals.push_back({ranks[0].evals().at(0).loss, losses(ranks[0]).at(0)});
    }
    EXPECT_EQ(evals[0], evals[1]);
    auto wrong = agent(1, 1);
    wrong.job.model.layers = 3;
    wrong.job.init.from = "canonical.safetensors";
    const auto ranks = wrong.run();
    EXPECT_EQ(ranks[0].error().code, Code::BadData);
    EXPECT_NE(ranks[0].error().text().find("layers.2"), std::string::npos) << ranks[0].error().text();
}

TEST_F(WorkerTest, KeepsTheNewestCheckpoints)
{
    auto one = agent(2, 10);
    one.job.run.checkpointEvery = 2;
    one.job.run.keep = 2;
    expectEnd(one.run(), 0);
    const auto listed = checkpoint::listCheckpoints(ckpt(), checkpoint::Verify::Digests);
    ASSERT_TRUE(listed.ok());
    ASSERT_EQ(listed->size(), 2u);
    EXPECT_EQ((*listed)[0].step, 10);
    EXPECT_EQ((*listed)[1].step, 8);
    EXPECT_TRUE((*listed)[0].manifest.ok());
}

TEST_F(WorkerTest, AnUnwritableCheckpointEndsTheRunOnlyWhenItIsTheLast)
{
    auto one = agent(2, 6);
    one.job.run.checkpointEvery = 3;
    std::ofstream(ckpt()) << "a file where the folder should be";
    const auto ranks = one.run();
    EXPECT_EQ(ranks[0].steps().size(), 6u); // step 3 failed to save, training went on
    EXPECT_NE(ranks[0].exitCode(), 0);
    EXPECT_NE(ranks[1].exitCode(), 0);
}

TEST(ControlTest, ResumeBeforeTheBoundaryIsNoPause)
{
    Control control;
    control.take({{}, Request::Pause});
    EXPECT_TRUE(control.vote().pause);
    control.take({{}, Request::Resume});
    EXPECT_FALSE(control.vote().pause);
    const std::int64_t begin = monotonicNs();
    control.sleepWhilePaused(); // a peer had voted before its resume came
    EXPECT_LT(monotonicNs() - begin, 1'000'000'000);
    control.take({{}, Request::Pause});
    EXPECT_TRUE(control.vote().pause);
    std::thread later([&control] {
        ::usleep(50000);
        control.take({{}, Request::Resume});
    });
    const std::int64_t again = monotonicNs();
    control.sleepWhilePaused();
    EXPECT_GT(monotonicNs() - again, 40'000'000);
    later.join();
    control.take({{}, Request::Stop});
    EXPECT_TRUE(control.vote().stop);
    control.sleepWhilePaused(); // a stop ends a pause
}

TEST(ControlTest, APauseThatIsLateIsWaitedFor)
{
    Control control;
    std::thread agent([&control] {
        ::usleep(50000);
        control.take({{}, Request::Pause});
        ::usleep(50000);
        control.take({{}, Request::Resume});
    });
    const std::int64_t begin = monotonicNs();
    control.sleepWhilePaused();
    EXPECT_GT(monotonicNs() - begin, 90'000'000);
    agent.join();
}
