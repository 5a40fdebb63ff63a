// SPDX-License-Identifier: GPL-3.0-or-later
// What cannot run says so, with the right status, and leaves nothing.
#include "tests/system/system_test.h"

#include <csignal>

using namespace rankyard;

using BadInput = SystemTest;

namespace {

struct Case {
    std::map<std::string, Json> changes;
    std::string words; ///< that the message must have
    int status = 2;
};

} // namespace

TEST_F(BadInput, JobsThatCannotRunAreRefusedByName)
{
    const Case cases[] = {
        {{{"/model/layrs", 2}}, "model.layrs"},
        {{{"/model/layers", "two"}}, "model.layers"},
        {{{"/batch/global", 7}}, "batch"},
        {{{"/batch/micro", 3}}, "batch"},
        {{{"/model/heads", 5}}, "heads"},
        {{{"/model/vocab", 100}}, "vocab"},
        {{{"/data/train", "nothing"}}, "data prepare"},
        {{{"/layout/tp", 3}}, "layout.tp"},
        {{{"/schema", "rankyard/job/99"}}, "99"},
        {{{"/offload", {{"optimizer", "nvme"}, {"nvme_path", "/proc/self"}}}}, "offload.nvme_path", 3},
        {{{"/model/layers", 300}, {"/model/hidden", 32768}, {"/model/heads", 256}}, "fit", 3},
    };
    for (const Case &one : cases) {
        auto train = ctlDone({"train", job(one.changes), "--json"});
        EXPECT_EQ(train->wait(), one.status) << one.words << "\n" << train->errors();
        EXPECT_NE(train->errors().find(one.words), std::string::npos) << one.words << "\n" << train->errors();
        ASSERT_TRUE(train->json().is_object()) << train->output();
        EXPECT_TRUE(train->json()["error"].is_object());
    }
    EXPECT_TRUE(ctlDone({"runs", "list", "--json"})->json()["runs"].empty());
}

TEST_F(BadInput, WrongUsageIsTwo)
{
    const std::string file = job();
    for (const std::vector<std::string> &arguments :
         std::vector<std::vector<std::string>>{{},
                                               {"dance"},
                                               {"train"},
                                               {"train", file, file},
                                               {"train", "/none.json"},
                                               {"stop"},
                                               {"stop", "r-none"},
                                               {"attach"},
                                               {"runs"},
                                               {"runs", "compare", "one"},
                                               {"train", file, "--set", "x"},
                                               {"train", file, "--steps", "many"}}) {
        auto command = ctlDone(arguments);
        EXPECT_EQ(command->wait(), 2) << (arguments.empty() ? "" : arguments[0]) << "\n" << command->errors();
        EXPECT_FALSE(command->errors().empty());
    }
}

TEST_F(BadInput, RunDirectoriesInUseOrUnusable)
{
    const std::string folder = (m_dir / "mine").string();
    auto first = ctl({"train", job({{"/run/steps", 100000}}), "--run-dir", folder, "--json"});
    ASSERT_FALSE(waitForWorkers(2).empty());
    auto second = ctlDone({"train", job(), "--run-dir", folder, "--json"});
    EXPECT_EQ(second->wait(), 2);
    EXPECT_EQ(second->json()["error"]["code"], "in-use");
    first->signal(SIGINT);
    EXPECT_EQ(first->wait(), 6) << first->errors();
    auto third = ctlDone({"train", job(), "--run-dir", folder, "--json"});
    EXPECT_EQ(third->wait(), 2) << "the other run's files stay unmixed";
    auto fourth = ctlDone({"train", job(), "--run-dir", "/proc/none", "--json"});
    EXPECT_EQ(fourth->wait(), 3);
    EXPECT_EQ(fourth->json()["error"]["code"], "io");
    // A relative one is the client's, who is not where the agent is.
    const std::filesystem::path relative = std::filesystem::relative(m_dir / "ours ü");
    auto fifth = ctlDone({"train", job({{"/run/steps", 1}}), "--run-dir", relative.string(), "--json"});
    EXPECT_EQ(fifth->wait(), 0) << fifth->errors();
    EXPECT_TRUE(std::filesystem::exists(m_dir / "ours ü" / "exit.json"));
}

TEST_F(BadInput, ATruncatedCorpusIsFoundBeforeTheStart)
{
    std::filesystem::resize_file(m_dir / "corpus.bin", 1000);
    auto train = ctlDone({"train", job(), "--json"});
    EXPECT_EQ(train->wait(), 2) << train->errors();
    EXPECT_NE(train->errors().find("corpus"), std::string::npos);
}

TEST_F(BadInput, NoStepsAreDoneAtOnce)
{
    auto train = ctlDone({"train", job(), "--steps", "0", "--json"});
    EXPECT_EQ(train->wait(), 0) << train->errors();
    EXPECT_EQ(train->json()["state"], "finished");
}

TEST_F(BadInput, AClosedStandardOutputIsNoCrash)
{
    Command train({(m_bin / "rankyardctl").string(), "train", job(), "--json"}, true);
    const int status = train.wait();
    EXPECT_TRUE(status == 3 || status == 0) << status << train.errors();
    EXPECT_NE(train.errors().find("standard output"), std::string::npos) << train.errors();
}
