// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/base/file.h"
#include "tests/system/command.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

/// Whole programs in folders of their own: rankyardctl starts agents and workers, nothing is faked.
class SystemTest : public testing::Test
{
protected:
    using Json = rankyard::Json;

    void SetUp() override;
    void TearDown() override;

    void set(const std::string &name, const std::string &value);
    /// rankyardctl with these arguments, started.
    std::unique_ptr<Command> ctl(std::vector<std::string> arguments);
    /// … and waited for.
    std::unique_ptr<Command> ctlDone(std::vector<std::string> arguments);
    /// Writes a job of a small model, with changes by JSON pointer, and returns the file.
    std::string job(const std::map<std::string, Json> &changes = {}, const std::string &name = "job.json");

    /// Processes of runs of this test (not of the agent), by the run's mark in their environment; dead ones not counted.
    std::vector<int> workers() const;
    std::vector<int> waitForWorkers(std::size_t count) const;
    /// The last step that the store has of a run (by default the newest), by `runs list`; 0 when it does not know it.
    std::int64_t lastStep(const std::string &run = {});
    bool waitForStep(std::int64_t step, const std::string &run = {});
    static std::set<std::string> sharedMemoryFiles();
    static bool isGone(int pid);
    static bool isLong();
    /// Losses by step of a document of `train` or `runs metrics`.
    static std::map<std::int64_t, double> losses(const Json &document);

    void endAgents();

    std::filesystem::path m_dir;
    std::filesystem::path m_bin;

private:
    std::map<std::string, std::optional<std::string>> m_environment;
    std::set<std::string> m_sharedBefore;
};
