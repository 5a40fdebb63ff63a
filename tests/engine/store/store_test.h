// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/store/run_store.h"
#include "tests/engine/telemetry/samples.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <unistd.h>

/// A store in a folder of its own.
class StoreTest : public testing::Test
{
protected:
    using RunStore = rankyard::store::RunStore;

    void SetUp() override
    {
        std::string pattern = (std::filesystem::temp_directory_path() / "rankyard-store-XXXXXX").string();
        ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
        m_dir = pattern;
        m_store = open();
        ASSERT_TRUE(m_store);
    }
    void TearDown() override
    {
        m_store.reset();
        std::filesystem::remove_all(m_dir);
    }

    std::filesystem::path file() const { return m_dir / "runs.sqlite"; }

    std::unique_ptr<RunStore> open(bool readOnly = false)
    {
        auto store = RunStore::open(file(), readOnly);
        EXPECT_TRUE(store) << store.error().text();
        return store ? std::move(store).value() : nullptr;
    }

    std::string newRun(const std::string &name = "sample")
    {
        rankyard::store::RunInfo run;
        run.id = rankyard::store::makeRunId();
        run.name = name;
        run.startedNs = ++m_clock;
        run.steps = 200;
        run.world = 2;
        EXPECT_TRUE(m_store->putRun(run));
        return run.id;
    }

    /// Steps first … last of one rank, the loss being f(step); sequences go on from m_sequence.
    template<typename Loss>
    std::vector<rankyard::telemetry::Record> stepRecords(std::int64_t first, std::int64_t last, Loss &&loss,
                                                         std::int32_t rank = 0, std::uint32_t epoch = 1)
    {
        std::vector<rankyard::telemetry::Record> records;
        for (std::int64_t i = first; i <= last; ++i) {
            rankyard::telemetry::StepRecord step;
            step.step = i;
            step.wallNs = i * 1000;
            step.loss = loss(i);
            step.tokensPerS = 100;
            records.push_back(samples::record(++m_sequence[{epoch, rank}], step, rank, epoch));
        }
        return records;
    }

    std::filesystem::path m_dir;
    std::unique_ptr<RunStore> m_store;
    std::map<std::pair<std::uint32_t, std::int32_t>, std::uint64_t> m_sequence;
    std::int64_t m_clock = 1000;
};
