// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/exec/arena.h"
#include "engine/exec/host_layout.h"
#include "engine/exec/init.h"
#include "engine/plan/shard.h"
#include "tests/engine/exec/toy.h"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

using namespace rankyard;
using namespace rankyard::exec;
using namespace rankyard::exec::test;

TEST(Mapping, TouchedPagesAreResident)
{
    constexpr std::int64_t bytes = 3 << 20;
    RY_EXPECT_OK(auto mapping, Mapping::make(-1, bytes, "test"));
    ASSERT_TRUE(mapping.touch("test").ok());
    std::vector<unsigned char> resident(bytes / 4096);
    ASSERT_EQ(::mincore(mapping.data(), bytes, resident.data()), 0);
    for (const unsigned char page : resident)
        ASSERT_EQ(page & 1, 1);
}

TEST(Memfd, TwoMappingsAreOneMemory)
{
    RY_EXPECT_OK(auto fd, makeMemfd("test", 8192));
    RY_EXPECT_OK(auto a, Mapping::make(fd.get(), 8192, "a"));
    RY_EXPECT_OK(auto b, Mapping::make(fd.get(), 8192, "b"));
    a.data()[5000] = std::byte{42};
    EXPECT_EQ(b.data()[5000], std::byte{42});
}

TEST(Budget, ReadsBothVersionsOfCgroups)
{
    const auto folder =
        std::filesystem::temp_directory_path() / ("rankyard-cgroup-" + std::to_string(::getpid()));
    const auto write = [&folder](const char *name, const char *text) {
        std::filesystem::create_directories(folder);
        std::ofstream(folder / name) << text;
    };
    EXPECT_EQ(cgroupLeft(folder.string()), -1);
    write("memory.limit_in_bytes", "1000000\n");
    write("memory.usage_in_bytes", "600000\n");
    write("memory.stat", "cache 5\ntotal_inactive_file 100000\n");
    EXPECT_EQ(cgroupLeft(folder.string()), 500000);
    write("memory.max", "max\n");
    write("memory.current", "100\n");
    EXPECT_EQ(cgroupLeft(folder.string()), -1);
    write("memory.max", "5000\n");
    write("memory.stat", "anon 1\ninactive_file 50\n");
    EXPECT_EQ(cgroupLeft(folder.string()), 4950);
    std::filesystem::remove_all(folder);
    EXPECT_GT(memoryBudget().available, 0);
}

TEST(Arenas, AllocatedIsPlanned)
{
    spec::JobSpec job = tinyJob(2);
    RY_EXPECT_OK(const auto plan, plan::makePlan(job));
    RY_EXPECT_OK(const auto arenas, Arenas::make(plan, 1));
    EXPECT_EQ(arenas.bytes(), plan::memoryOf(plan, 1).bytes);
}

TEST(Arenas, WhatDoesNotFitIsRefusedWithFigures)
{
    spec::JobSpec job = tinyJob(1);
    job.model.hidden = 1 << 15;
    job.model.layers = 4;
    RY_EXPECT_OK(const auto plan, plan::makePlan(job));
    const auto arenas = Arenas::make(plan, 0);
    ASSERT_FALSE(arenas.ok());
    EXPECT_EQ(arenas.error().code, Code::DoesNotFit);
    EXPECT_NE(arenas.error().text().find("iB"), std::string::npos) << arenas.error().text();
}

TEST(HostMemory, SharedArenasOfAllRanksAreMappedByEach)
{
    RY_EXPECT_OK(const auto plan, plan::makePlan(tinyJob(3)));
    RY_EXPECT_OK(const auto memory, createHostMemory(plan, {0, 1, 2}));
    ASSERT_EQ(memory.segments.size(), 2u); // dp and world
    EXPECT_EQ(memory.segments[0].ranks, (std::vector<int>{0, 1, 2}));
    Bootstrap bootstrap;
    bootstrap.rank = 1;
    fillHost(bootstrap, memory, {0, 1, 2});
    EXPECT_EQ(bootstrap.segments.size(), 2u);
    RY_EXPECT_OK(const auto first, Arenas::make(plan, 0, bootstrap.arenas));
    RY_EXPECT_OK(const auto second, Arenas::make(plan, 1, bootstrap.arenas));
    const auto shared = first.sharedAmong({0, 1, 2});
    ASSERT_EQ(shared.size(), memory.arenas.size() / 3);
    EXPECT_EQ(shared[0].base[0], first.base(0));
    second.base(0)[7] = std::byte{9};
    EXPECT_EQ(shared[0].base[1][7], std::byte{9}); // seen through the first rank's mapping
    EXPECT_TRUE(first.sharedAmong({0, 5}).empty());
}

TEST(HostMemory, GroupsThatLeaveTheHostHaveNoSegment)
{
    RY_EXPECT_OK(const auto plan, plan::makePlan(tinyJob(3)));
    RY_EXPECT_OK(const auto memory, createHostMemory(plan, {0, 1}));
    EXPECT_TRUE(memory.segments.empty());
    EXPECT_TRUE(groupsOf(*plan::makePlan(tinyJob(1))).empty());
}

TEST(Shards, CoverEveryElementOnce)
{
    for (const int dp : {1, 2, 3, 5}) {
        RY_EXPECT_OK(const auto plan, plan::makePlan(tinyJob(dp)));
        const plan::StepProgram &program = plan.program(plan::ProgramKind::Train, 0);
        std::vector<std::vector<int>> seen;
        for (const plan::Tensor &tensor : program.tensors)
            seen.emplace_back(static_cast<std::size_t>(tensor.numel), 0);
        for (int rank = 0; rank < dp; ++rank) {
            for (const plan::ShardRange &range : plan::shardOf(program, plan.grid, rank)) {
                if (!range.owned)
                    continue;
                for (std::int64_t e = range.begin; e < range.end; ++e)
                    ++seen[static_cast<std::size_t>(range.tensor)][static_cast<std::size_t>(e)];
            }
        }
        for (const auto &tensor : seen)
            EXPECT_EQ(std::count(tensor.begin(), tensor.end(), 1),
                      static_cast<std::ptrdiff_t>(tensor.size()));
    }
}

TEST(Init, IsTheSameInEveryLayout)
{
    RY_EXPECT_OK(const auto whole, plan::makePlan(tinyJob(1)));
    RY_EXPECT_OK(const auto one, Arenas::make(whole, 0));
    ASSERT_TRUE(initialiseParameters(whole, one, 0).ok());
    const plan::StepProgram &reference = whole.program(plan::ProgramKind::Train, 0);
    const auto element = [](const Arenas &arenas, const plan::StepProgram &program, plan::BufferId id,
                            std::int64_t at) {
        return reinterpret_cast<const double *>(arenas.address(program, id))[at];
    };
    RY_EXPECT_OK(const auto plan, plan::makePlan(tinyJob(3)));
    const plan::StepProgram &program = plan.program(plan::ProgramKind::Train, 0);
    double largest = 0;
    for (int rank = 0; rank < 3; ++rank) {
        RY_EXPECT_OK(const auto arenas, Arenas::make(plan, rank));
        ASSERT_TRUE(initialiseParameters(plan, arenas, rank).ok());
        for (const plan::ShardRange &range : plan::shardOf(program, plan.grid, rank)) {
            const plan::BufferId slice = program.buckets[static_cast<std::size_t>(range.bucket)].paramSlice;
            const plan::BufferId expected = reference.tensors[static_cast<std::size_t>(range.tensor)].param;
            for (std::int64_t e = range.begin; e < range.end; ++e) {
                const double value = element(arenas, program, slice, range.at + e - range.begin);
                ASSERT_EQ(value, element(one, reference, expected, e));
                largest = std::max(largest, std::abs(value));
            }
        }
    }
    EXPECT_EQ(largest, 1); // norm weights
}
