// SPDX-License-Identifier: GPL-3.0-or-later
// Parts of the agent by themselves.
#include "remote/agent/endpoint.h"
#include "remote/agent/event_loop.h"
#include "remote/agent/failure.h"
#include "remote/agent/log_capture.h"
#include "remote/agent/preflight.h"
#include "remote/agent/worker_process.h"
#include "tests/remote/agent/agent_test.h"

#include <sys/epoll.h>
#include <thread>

using namespace rankyard;
using namespace rankyard::agent;

namespace {

Evidence evidence(Evidence::Kind kind, int rank, int signal = 0, int code = 0)
{
    Evidence one;
    one.kind = kind;
    one.rank = rank;
    one.pid = 1000 + rank;
    one.status = {code, signal};
    if (kind == Evidence::Kind::OwnError)
        one.error = Error::make(Code::DoesNotFit, "no memory for activations", "op 17");
    if (kind == Evidence::Kind::PeerError)
        one.error = Error::make(Code::RankFailed, "rank 9 has died", "rank 9");
    return one;
}

} // namespace

TEST(FirstCause, AForeignSignalBeatsWhatPeersSay)
{
    const Error cause = firstCause(
        {evidence(Evidence::Kind::PeerError, 0), evidence(Evidence::Kind::Signal, 1, SIGKILL)}, "");
    EXPECT_EQ(cause.code, Code::RankFailed);
    EXPECT_EQ(cause.where, "rank 1");
    EXPECT_NE(cause.what.find("killed by SIGKILL (pid 1001)"), std::string::npos);
    EXPECT_NE(cause.what.find("unknown"), std::string::npos)
        << "out of memory is never claimed without evidence";
}

TEST(FirstCause, OutOfMemoryNeedsEvidenceAndSigkill)
{
    const std::string oom = "the cgroup's limit of 60.0 MiB, oom_kill +1";
    EXPECT_NE(
        firstCause({evidence(Evidence::Kind::Signal, 1, SIGKILL)}, oom).what.find("out of memory: " + oom),
        std::string::npos);
    EXPECT_EQ(firstCause({evidence(Evidence::Kind::Signal, 1, SIGSEGV)}, oom).what.find("out of memory"),
              std::string::npos);
}

TEST(FirstCause, ARanksOwnWordsExplainItsDeath)
{
    const Error cause =
        firstCause({evidence(Evidence::Kind::Signal, 1, SIGABRT), evidence(Evidence::Kind::OwnError, 1)}, "");
    EXPECT_EQ(cause.code, Code::DoesNotFit);
    EXPECT_EQ(cause.where, "op 17");
    EXPECT_NE(cause.what.find("rank 1"), std::string::npos);
    EXPECT_EQ(
        firstCause({evidence(Evidence::Kind::OwnError, 0), evidence(Evidence::Kind::Signal, 1, SIGKILL)}, "")
            .code,
        Code::DoesNotFit)
        << "the earlier of two";
    EXPECT_EQ(
        firstCause({evidence(Evidence::Kind::Signal, 1, SIGKILL), evidence(Evidence::Kind::OwnError, 0)}, "")
            .where,
        "rank 1");
}

TEST(FirstCause, PeersAreBelievedWhenNobodyElseSaysAnything)
{
    EXPECT_EQ(firstCause({evidence(Evidence::Kind::PeerError, 0)}, "").where, "rank 9");
    EXPECT_EQ(
        firstCause({evidence(Evidence::Kind::PeerError, 0), evidence(Evidence::Kind::ExitCode, 1, 0, 7)}, "")
            .found,
        "exit status 7");
    EXPECT_EQ(firstCause({}, "").code, Code::Internal);
}

TEST(FirstCause, KindsOfErrors)
{
    EXPECT_EQ(kindOfError(Error::make(Code::RankFailed, "x", "rank 1"), 0), Evidence::Kind::PeerError);
    EXPECT_EQ(kindOfError(Error::make(Code::RankFailed, "x", "rank 1"), 1), Evidence::Kind::OwnError);
    EXPECT_EQ(kindOfError(Error::make(Code::Io, "x", "rank 1"), 0), Evidence::Kind::OwnError);
    EXPECT_EQ(kindOfError(Error::make(Code::RankFailed, "x", "op 3"), 0), Evidence::Kind::OwnError);
    EXPECT_EQ(signalName(SIGKILL), "SIGKILL");
    EXPECT_EQ(signalName(63), "signal 63");
}

TEST(Cores, AreSplitInOrder)
{
    const auto two = shareCores({0, 1, 2, 3}, 2, 0);
    EXPECT_EQ(two[0].cores, (std::vector<int>{0, 1}));
    EXPECT_EQ(two[1].cores, (std::vector<int>{2, 3}));
    EXPECT_EQ(two[1].threads, 2);
    EXPECT_FALSE(two[1].spareCore);
    const auto wide = shareCores({0, 1, 2, 3, 4, 5, 6, 7}, 2, 0);
    EXPECT_EQ(wide[1].cores, (std::vector<int>{4, 5, 6, 7}));
    EXPECT_EQ(wide[1].threads, 3);
    EXPECT_TRUE(wide[1].spareCore);
    const auto asked = shareCores({0, 1, 2, 3, 4, 5, 6, 7}, 2, 1);
    EXPECT_EQ(asked[1].cores, (std::vector<int>{4, 5}));
    EXPECT_EQ(asked[1].threads, 1);
    EXPECT_TRUE(asked[1].spareCore);
    const auto many = shareCores({0, 1}, 4, 0);
    ASSERT_EQ(many.size(), 4u);
    EXPECT_TRUE(many[3].cores.empty());
    EXPECT_EQ(many[3].threads, 1);
    EXPECT_FALSE(ownCores().empty());
    EXPECT_NE(freeMemory(), 0);
}

TEST(Environment, IsAnAllowList)
{
    for (const char *name :
         {"OMP_NUM_THREADS", "MKL_CBWR", "CUDA_VISIBLE_DEVICES", "NCCL_DEBUG", "LC_ALL", "PATH", "HOME"})
        EXPECT_TRUE(mayBeInEnvironment(name)) << name;
    for (const char *name : {"AWS_SECRET_ACCESS_KEY", "LD_PRELOAD", "SSH_AUTH_SOCK", "OMP", "", "MY_OMP_X"})
        EXPECT_FALSE(mayBeInEnvironment(name)) << name;
    ::setenv("OMP_TEST_ONE", "a", 1);
    const auto all = workerEnvironment("r-1", {{"OMP_TEST_ONE", "64(x2) ; $x '\n\""}, {"LD_PRELOAD", "x"}});
    EXPECT_EQ(std::count(all.begin(), all.end(), "OMP_TEST_ONE=64(x2) ; $x '\n\""), 1)
        << "no shell sees the value";
    EXPECT_EQ(std::count(all.begin(), all.end(), "OMP_TEST_ONE=a"), 0);
    EXPECT_EQ(std::count(all.begin(), all.end(), "LD_PRELOAD=x"), 0);
    EXPECT_EQ(all.back(), "RANKYARD_RUN=r-1");
    ::unsetenv("OMP_TEST_ONE");
}

TEST(Lines, AreCleanUtf8)
{
    EXPECT_EQ(cleanLine("plain äöü 漢字 🎓\ttab"), "plain äöü 漢字 🎓\ttab");
    EXPECT_EQ(cleanLine("\x1b[31mred"), " [31mred");
    EXPECT_EQ(cleanLine("a\xff"
                        "b"),
              "a\xef\xbf\xbd"
              "b");
    EXPECT_EQ(cleanLine("\xc3"), "\xef\xbf\xbd");
    EXPECT_EQ(cleanLine("\xed\xa0\x80"), "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd") << "a surrogate";
    EXPECT_EQ(cleanLine("\xc0\xaf"), "\xef\xbf\xbd\xef\xbf\xbd") << "an overlong form";
    EXPECT_EQ(cleanLine("\xf5\x80\x80\x80").size(), 12u);
}

TEST(Log, KeepsEverythingInTheFileAndLimitsTheLines)
{
    const auto dir = std::filesystem::temp_directory_path() / ("rankyard-log-" + std::to_string(::getpid()));
    std::filesystem::create_directories(dir);
    std::vector<std::string> lines;
    {
        LogCapture log(dir / "0.log", [&](std::string text) { lines.push_back(std::move(text)); });
        log.add("half ");
        EXPECT_TRUE(lines.empty());
        log.add("a line\nand\n\nunfinished");
        EXPECT_EQ(lines, (std::vector<std::string>{"half a line", "and"}));
        log.finish();
        EXPECT_EQ(lines.back(), "unfinished");
        lines.clear();
        for (int i = 0; i < 100'000; ++i)
            log.add("x" + std::to_string(i) + "\n");
        log.add(std::string(100'000, 'y') + "\n");
        log.finish();
        EXPECT_LT(lines.size(), 20'000u);
        EXPECT_GT(lines.size(), 2'000u);
        EXPECT_TRUE(std::any_of(lines.begin(), lines.end(), [](const std::string &text) {
            return text.find("more lines only in 0.log") != std::string::npos;
        }));
        EXPECT_EQ(log.lastLines(2)[0], "x99999");
        EXPECT_LE(log.lastLines(1)[0].size(), 16'384u);
    }
    const std::string all = readFile(dir / "0.log").value();
    EXPECT_NE(all.find("x54321\n"), std::string::npos);
    std::filesystem::remove_all(dir);
}

TEST(Loop, TimersPostsAndDescriptors)
{
    auto loop = EventLoop::create();
    ASSERT_TRUE(loop);
    std::string order;
    int pipe[2];
    ASSERT_EQ(::pipe(pipe), 0);
    ASSERT_TRUE((*loop)->add(pipe[0], EPOLLIN, [&](std::uint32_t) {
        order += "r";
        (*loop)->remove(pipe[0]);
    }));
    (*loop)->after(std::chrono::milliseconds(200), [&] { (*loop)->quit(); });
    const auto cancelled = (*loop)->after(std::chrono::milliseconds(5), [&] { order += "x"; });
    (*loop)->after(std::chrono::milliseconds(10), [&] { order += "t"; });
    (*loop)->cancel(cancelled);
    std::thread other([&] {
        (*loop)->post([&] {
            order += "p";
            ASSERT_EQ(::write(pipe[1], "1", 1), 1);
        });
    });
    (*loop)->run();
    other.join();
    std::sort(order.begin(), order.end());
    EXPECT_EQ(order, "prt");
    ::close(pipe[0]);
    ::close(pipe[1]);
}

using EndpointTest = agenttest::AgentTest;

TEST_F(EndpointTest, LongPathsWorkAndSharedFoldersDoNot)
{
    const auto deep = m_dir / std::string(120, 'd') / std::string(120, 'e');
    std::filesystem::create_directories(deep);
    set("XDG_RUNTIME_DIR", deep.string());
    auto at = endpoint();
    ASSERT_TRUE(at) << at.error().text();
    EXPECT_FALSE(connectTo(*at));
    EXPECT_EQ(connectTo(*at).error().code, Code::NotFound);
    const auto listening = listenAt(*at);
    ASSERT_TRUE(listening) << listening.error().text();
    EXPECT_TRUE(connectTo(*at));
    const auto mode = std::filesystem::status(at->socket()).permissions();
    EXPECT_EQ(mode & (std::filesystem::perms::group_all | std::filesystem::perms::others_all),
              std::filesystem::perms::none);
    std::filesystem::permissions(at->folder, std::filesystem::perms::all);
    EXPECT_FALSE(endpoint()) << "somebody else may write there";
}
