// SPDX-License-Identifier: GPL-3.0-or-later
// A machine that was probed has times: without a probe they are refused, with one plan and search have them.
#include "tests/system/system_test.h"

using namespace rankyard;

namespace {

struct Probe : SystemTest {};

} // namespace

TEST_F(Probe, GivesThisMachineTimes)
{
    const std::string file = job();
    const auto before = ctlDone({"plan", file, "--cluster", "local", "--json"});
    const auto seen = ctlDone({"cluster", "show", "local", "--json"});
    ASSERT_EQ(seen->wait(), 0);
    if (seen->json()["totals"]["gpus"].get<int>() > 0)
        GTEST_SKIP() << "this machine's ranks run on GPUs";
    EXPECT_EQ(before->wait(), 3);
    EXPECT_NE(before->errors().find("cluster probe"), std::string::npos) << before->errors();

    const auto probed = ctlDone({"cluster", "probe", "--types", "fp32", "--json"});
    ASSERT_EQ(probed->wait(), 0) << probed->errors();
    const Json document = probed->json();
    EXPECT_GT(document["measured"]["values"]["peak_fp32"].get<double>(), 1e8);
    EXPECT_FALSE(document["probe"]["products"].empty());
    EXPECT_FALSE(document["probe"]["collectives"].empty());
    EXPECT_TRUE(std::filesystem::exists(document["file"].get<std::string>()));

    const auto planned = ctlDone({"plan", file, "--cluster", "local", "--json"});
    ASSERT_EQ(planned->wait(), 0) << planned->errors();
    const Json plan = planned->json();
    EXPECT_GT(plan["step_ms"].get<double>(), 0);
    EXPECT_EQ(plan["step_ms"], plan["timeline"]["step_ms"]);
    ASSERT_EQ(ctlDone({"search", file, "--cluster", "local", "--top", "1", "--json"})->wait(), 0);

    // A run's MFU is measured against the rate that the plan's is: one rank's step times its MFU is the step at peak.
    const auto alone = ctlDone({"plan", file, "--set", "layout.dp=1", "--cluster", "local", "--json"});
    ASSERT_EQ(alone->wait(), 0) << alone->errors();
    const double peakMs = alone->json()["mfu"].get<double>() * alone->json()["step_ms"].get<double>();
    const auto run = ctlDone({"train", file, "--set", "layout.dp=1", "--json"});
    ASSERT_EQ(run->wait(), 0) << run->errors();
    const Json trained = run->json();
    ASSERT_FALSE(trained["steps"].empty());
    for (const Json &step : trained["steps"])
        EXPECT_NEAR(step["mfu"].get<double>() * step["step_ms"].get<double>() / peakMs, 1, 1e-6);

    // A file of it is a cluster like any other; another machine's is not taken for this one's.
    const std::string other = (m_dir / "other.json").string();
    Json moved = document;
    moved.erase("probe");
    moved.erase("file");
    moved["nodes"][0]["name"] = "elsewhere";
    ASSERT_TRUE(writeFileAtomically(other, dumpJson(moved)));
    EXPECT_EQ(ctlDone({"plan", file, "--cluster", other})->wait(), 0);
    ASSERT_TRUE(writeFileAtomically(document["file"].get<std::string>(), dumpJson(moved)));
    EXPECT_EQ(ctlDone({"plan", file, "--cluster", "local"})->wait(), 3);
    ASSERT_TRUE(writeFileAtomically(document["file"].get<std::string>(), "{broken"));
    EXPECT_EQ(ctlDone({"cluster", "show", "local"})->wait(), 0) << "what cannot be read is a note";
    const auto damaged = ctlDone({"plan", file, "--cluster", "local"});
    EXPECT_EQ(damaged->wait(), 3);
    EXPECT_NE(damaged->errors().find("probe.json"), std::string::npos) << damaged->errors();
}
