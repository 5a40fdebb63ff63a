// SPDX-License-Identifier: GPL-3.0-or-later
// The jobs that come with the program train, and the guide shows the programs that they have.
#include "tests/system/system_test.h"

#include <cmath>

using namespace rankyard;

namespace {

struct Presets : SystemTest {};

} // namespace

TEST_F(Presets, Train)
{
    const std::filesystem::path folder =
        std::filesystem::path(std::getenv("RANKYARD_SOURCE_DIR")) / "resources/presets";
    const std::string corpus = std::filesystem::path(job()).parent_path() / "corpus";
    const std::string steps = isLong() ? "20" : "2";
    std::set<std::string> files;
    for (const auto &entry : std::filesystem::directory_iterator(folder))
        files.insert(entry.path());
    EXPECT_GE(files.size(), 20u);
    int count = 0;
    for (const std::string &file : files) {
        SCOPED_TRACE(file);
        ASSERT_EQ(ctlDone({"plan", file, "--json"})->wait(), 0);
        if (!isLong() && count++ % 4 != 0)
            continue; // planned alone: a process a rank takes its time
        const auto done =
            ctlDone({"train", file, "--json", "--steps", steps, "--set", "data.train=" + corpus});
        ASSERT_EQ(done->wait(), 0) << done->errors();
        const auto seen = losses(done->json());
        ASSERT_EQ(static_cast<int>(seen.size()), std::stoi(steps));
        for (const auto &[step, loss] : seen)
            EXPECT_TRUE(std::isfinite(loss)) << step;
        if (isLong()) {
            EXPECT_LT(seen.rbegin()->second, seen.begin()->second);
        }
    }
}

TEST_F(Presets, TheGuideShowsTheirPrograms)
{
    Command check({std::filesystem::path(std::getenv("RANKYARD_SOURCE_DIR")) / "packaging/docs", "--check"});
    EXPECT_EQ(check.wait(), 0) << check.errors();
}
