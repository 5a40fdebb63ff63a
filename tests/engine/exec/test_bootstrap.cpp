// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/exec/bootstrap.h"

#include "engine/base/file.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <thread>

using namespace rankyard;
using namespace rankyard::exec;

namespace {

Bootstrap sample()
{
    Bootstrap b;
    b.run = "r-20260101T000000-abcdef";
    b.epoch = 3;
    b.rank = 1;
    b.world = 2;
    b.job = {{"schema", "rankyard/job/1"}, {"name", "t"}};
    b.jobDir = "/job";
    b.runDir = "/run";
    b.ckptDir = "/run/ckpt";
    b.buildId = "0.1.0-0123456789ab";
    b.planDigest = "d";
    b.resume = "/run/ckpt/step-000010";
    b.startStep = 10;
    b.threads = 2;
    b.cores = {2, 3, 4};
    b.spareCore = true;
    b.hangMs = 5000;
    b.peakSeconds = 0.125;
    b.hostRanks = {0, 1};
    b.segments = {{"dp", {0, 1}, 5}};
    b.arenas = {{0, 1, 6}, {1, 1, 7}};
    return b;
}

} // namespace

TEST(Bootstrap, CrossesASocket)
{
    int fds[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    const Fd a(fds[0]), b(fds[1]);
    std::thread sender([&] { EXPECT_TRUE(sendBootstrap(a.get(), sample()).ok()); });
    auto received = receiveBootstrap(b.get());
    sender.join();
    ASSERT_TRUE(received.ok()) << received.error().text();
    EXPECT_EQ(writeBootstrap(*received), writeBootstrap(sample()));
}

TEST(Bootstrap, NoResumeIsNull)
{
    Bootstrap b = sample();
    b.resume.clear();
    const Json json = writeBootstrap(b);
    EXPECT_TRUE(json["resume"].is_null());
    EXPECT_TRUE(readBootstrap(json, "t")->resume.empty());
}

TEST(Bootstrap, ErrorsNameTheKey)
{
    const Json whole = writeBootstrap(sample());
    for (const auto &[key, value] : whole.items()) {
        if (key == "resume" || key == "schema")
            continue;
        Json json = whole;
        json.erase(key);
        const auto missing = readBootstrap(json, "t");
        ASSERT_FALSE(missing.ok()) << key;
        EXPECT_EQ(missing.error().where, key);
        if (key == "job")
            continue; // any JSON; the job's own reader checks it
        json[key] = Json::array({Json::object()});
        EXPECT_FALSE(readBootstrap(json, "t").ok()) << key;
    }
    Json json = whole;
    json["rank"] = 2;
    EXPECT_FALSE(readBootstrap(json, "t").ok());
    json["schema"] = "rankyard/bootstrap/2";
    EXPECT_EQ(readBootstrap(json, "t").error().code, Code::Newer);
}

TEST(Bootstrap, AClosedDescriptorIsAnError)
{
    int fds[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    const Fd b(fds[1]);
    {
        const Fd a(fds[0]);
        ASSERT_TRUE(writeAll(a.get(), std::string_view("\x10\0\0\0{", 5), "t").ok());
    }
    EXPECT_FALSE(receiveBootstrap(b.get()).ok());
}

TEST(WorkerMessage, RoundTrip)
{
    using Request = WorkerMessage::Request;
    for (const Request request : {Request::Stop, Request::Pause, Request::Resume, Request::Checkpoint}) {
        const auto back = readWorkerMessage(writeWorkerMessage({{}, request}));
        ASSERT_TRUE(back.ok());
        EXPECT_EQ(back->request, request);
    }
    EXPECT_EQ(readWorkerMessage(writeWorkerMessage({{7, 8}, Request::None}))->pids, (std::vector<int>{7, 8}));
    EXPECT_FALSE(readWorkerMessage({{"command", "dance"}}).ok());
    EXPECT_FALSE(readWorkerMessage({{"pids", "x"}}).ok());
}
