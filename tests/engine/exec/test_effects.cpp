// SPDX-License-Identifier: GPL-3.0-or-later
// What context parallelism and 16-bit types are for, on measured arenas and counters; and that the guide names a test of every
// strategy.
#include "engine/plan/units.h"
#include "tests/engine/exec/small_layout.h"

#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>

using namespace rankyard;
using namespace rankyard::exec;
using namespace rankyard::exec::test;

namespace {

std::int64_t bytesIn(const plan::Plan &plan, plan::MemoryKind kind)
{
    const auto arenas = Arenas::make(plan, 0);
    EXPECT_TRUE(arenas) << arenas.error().text();
    return arenas->bytes()[static_cast<std::size_t>(kind)];
}

std::string textOf(const std::filesystem::path &file)
{
    std::ifstream in(file);
    std::stringstream text;
    text << in.rdbuf();
    return text.str();
}

} // namespace

/// A rank of the ring keeps its part of every sequence; each layer's keys and values go n − 1 places round in the forward, as many in
/// the backward, and their gradients all the way home.
TEST(ContextParallel, EffectOnActivationsAndTraffic)
{
    for (const int cp : {2, 3}) {
        spec::JobSpec job = layoutJob();
        job.layout.cp = cp;
        job.batch.micro = 2;
        job.batch.global = 4;
        std::int64_t bytes[2];
        for (const int layers : {3, 9}) {
            job.model.layers = layers;
            const auto plan = plan::makePlan(job);
            ASSERT_TRUE(plan) << plan.error().text();
            bytes[layers == 9] = bytesIn(*plan, plan::MemoryKind::Activations);
            if (layers == 9)
                continue;
            const std::int64_t tokens = 2 * 12 / cp, kv = tokens * 2 * 24 * 8;
            runSteps(*plan, 1, [&](ThreadRank &rank) {
                const Execution &execution = *rank.executor->recent(0);
                for (const plan::Group &group : execution.program->groups) {
                    if (group.name == "cp") {
                        EXPECT_EQ(execution.groups[static_cast<std::size_t>(group.id)].figures.payload,
                                  2 * layers * (2 * (cp - 1) + cp) * kv);
                    }
                }
            });
        }
        // 10 + 2·F/H residuals of a rank's rows, statistics of two norms, and lse of six heads.
        const std::int64_t rows = 2 * 12 / cp;
        const std::int64_t layer = rows * 8 * (24 * 8 + 2 * 60 + 2 * 2 + 6);
        EXPECT_NEAR(static_cast<double>(bytes[1] - bytes[0]), static_cast<double>(6 * layer),
                    0.03 * static_cast<double>(6 * layer))
            << cp;
    }
}

/// 16 bits: parameters and activations of half the size, a master copy beside both moments, gradients as they were.
TEST(Precision, EffectOnArenas)
{
    std::array<std::int64_t, plan::memoryKindCount> bytes[2];
    std::int64_t numel = 0;
    for (const DType type : {DType::F32, DType::BF16}) {
        spec::JobSpec job = layoutJob();
        job.zero.bucketBytes = 1 << 30;
        job.precision.grad = job.precision.master = job.precision.reduce = DType::F32;
        job.precision.compute = type;
        const auto plan = plan::makePlan(job);
        ASSERT_TRUE(plan) << plan.error().text();
        numel = plan->program(plan::ProgramKind::Train, 0).buckets.at(0).padded;
        const auto arenas = Arenas::make(*plan, 0);
        ASSERT_TRUE(arenas) << arenas.error().text();
        bytes[type == DType::BF16] = arenas->bytes();
    }
    const auto of = [&](int i, plan::MemoryKind kind) { return bytes[i][static_cast<std::size_t>(kind)]; };
    const auto padded = [](std::int64_t n) { return (n + 63) / 64 * 64; };
    EXPECT_EQ(of(0, plan::MemoryKind::Params), padded(4 * numel));
    EXPECT_EQ(of(1, plan::MemoryKind::Params), padded(2 * numel));
    EXPECT_EQ(of(0, plan::MemoryKind::Optimizer), 2 * padded(4 * numel));
    EXPECT_EQ(of(1, plan::MemoryKind::Optimizer), 3 * padded(4 * numel));
    EXPECT_EQ(of(0, plan::MemoryKind::Grads), of(1, plan::MemoryKind::Grads));
    // Statistics stay in fp32: between a half and a half and a tenth.
    EXPECT_GE(2 * of(1, plan::MemoryKind::Activations), of(0, plan::MemoryKind::Activations));
    EXPECT_LE(2 * of(1, plan::MemoryKind::Activations), 1.2 * of(0, plan::MemoryKind::Activations));
}

/// docs/strategies.md has a table of the strategies with the tests of their effects: each has one, and all of these exist.
TEST(StrategiesGuide, EveryStrategyHasItsEffectTest)
{
    const char *source = std::getenv("RANKYARD_SOURCE_DIR");
    if (!source)
        GTEST_SKIP() << "RANKYARD_SOURCE_DIR is not set";
    std::set<std::string> tests;
    const std::regex declared(R"(TEST(?:_F|_P)?\((\w+),\s*(\w+)\))");
    for (const auto &entry :
         std::filesystem::recursive_directory_iterator(std::filesystem::path(source) / "tests")) {
        if (entry.path().extension() != ".cpp")
            continue;
        const std::string text = textOf(entry.path());
        for (std::sregex_iterator match(text.begin(), text.end(), declared), end; match != end; ++match)
            tests.insert((*match)[1].str() + "." + (*match)[2].str());
    }
    ASSERT_GT(tests.size(), 300U);
    const std::string guide = textOf(std::filesystem::path(source) / "docs/strategies.md");
    const std::regex row(R"(\n\| (\d+) [^|]*\|([^|]*)\|)"), name(R"(`(\w+\.\w+)`)");
    std::set<int> strategies;
    for (std::sregex_iterator match(guide.begin(), guide.end(), row), end; match != end; ++match) {
        const std::string cell = (*match)[2].str();
        for (std::sregex_iterator test(cell.begin(), cell.end(), name); test != end; ++test) {
            EXPECT_TRUE(tests.contains((*test)[1].str())) << (*test)[1].str();
            strategies.insert(std::stoi((*match)[1].str()));
        }
    }
    EXPECT_EQ(strategies.size(), 12U);
}
