// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/base/file.h"
#include "engine/data/indexed_dataset.h"
#include "remote/session/session.h"

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <mutex>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

/// Real agents, real processes, folders of their own.
namespace agenttest {

using namespace rankyard;
namespace fs = std::filesystem;

/// What a session told, with waiting.
class Collector
{
public:
    using Stream = std::pair<std::uint32_t, std::int32_t>; ///< epoch, rank

    session::Session::Callbacks callbacks()
    {
        session::Session::Callbacks all;
        all.records = [this](const std::string &run, std::vector<telemetry::Record> records) {
            const std::lock_guard lock(m_mutex);
            for (telemetry::Record &record : records) {
                auto &stream = m_streams[run][{record.epoch, record.rank}];
                if (stream.empty() ? record.sequence != m_first[run][{record.epoch, record.rank}] + 1
                                   : record.sequence != stream.back().sequence + 1) {
                    const auto *event = std::get_if<telemetry::EventRecord>(&record.payload);
                    m_holes += !event || event->kind != "gap";
                }
                stream.push_back(std::move(record));
            }
            m_changed.notify_all();
        };
        all.status = [this](const session::RunStatus &status) {
            const std::lock_guard lock(m_mutex);
            m_statuses[status.id].push_back(status);
            m_changed.notify_all();
        };
        all.caughtUp = [this](const std::string &run) {
            const std::lock_guard lock(m_mutex);
            m_caughtUp[run] = true;
            m_changed.notify_all();
        };
        all.lost = [this](const Error &error) {
            const std::lock_guard lock(m_mutex);
            m_lost = error;
            m_changed.notify_all();
        };
        return all;
    }

    template<typename Test>
    bool waitFor(Test &&test, std::chrono::milliseconds deadline = std::chrono::seconds(60))
    {
        std::unique_lock lock(m_mutex);
        return m_changed.wait_for(lock, deadline, test);
    }

    bool waitForState(const std::string &run, telemetry::RunState state,
                      std::chrono::milliseconds deadline = std::chrono::seconds(60))
    {
        return waitFor(
            [&] {
                const auto &all = m_statuses[run];
                return std::any_of(all.begin(), all.end(),
                                   [state](const auto &status) { return status.state == state; });
            },
            deadline);
    }

    /// Until the run has ended and all its records are here.
    session::RunStatus waitForEnd(const std::string &run)
    {
        const bool ended = waitFor([&] {
            return m_caughtUp[run] && !m_statuses[run].empty()
                && telemetry::isTerminal(m_statuses[run].back().state);
        });
        EXPECT_TRUE(ended) << "the run did not end";
        const std::lock_guard lock(m_mutex);
        return m_statuses[run].empty() ? session::RunStatus() : m_statuses[run].back();
    }

    bool waitForStep(const std::string &run, std::int64_t step, std::int32_t rank = 0)
    {
        return waitFor([&] {
            for (const auto &[stream, records] : m_streams[run]) {
                if (stream.second != rank)
                    continue;
                for (const telemetry::Record &record : records) {
                    const auto *one = std::get_if<telemetry::StepRecord>(&record.payload);
                    if (one && one->step >= step)
                        return true;
                }
            }
            return false;
        });
    }

    std::vector<std::int64_t> steps(const std::string &run, std::int32_t rank)
    {
        const std::lock_guard lock(m_mutex);
        std::vector<std::int64_t> all;
        for (const auto &[stream, records] : m_streams[run]) {
            for (const telemetry::Record &record : records) {
                const auto *one = std::get_if<telemetry::StepRecord>(&record.payload);
                if (one && stream.second == rank)
                    all.push_back(one->step);
            }
        }
        return all;
    }

    std::vector<telemetry::EventRecord> events(const std::string &run, const std::string &kind)
    {
        const std::lock_guard lock(m_mutex);
        std::vector<telemetry::EventRecord> all;
        for (const auto &[stream, records] : m_streams[run]) {
            for (const telemetry::Record &record : records) {
                const auto *one = std::get_if<telemetry::EventRecord>(&record.payload);
                if (one && one->kind == kind)
                    all.push_back(*one);
            }
        }
        return all;
    }

    std::vector<std::string> lines(const std::string &run, std::int32_t rank)
    {
        const std::lock_guard lock(m_mutex);
        std::vector<std::string> all;
        for (const auto &[stream, records] : m_streams[run]) {
            for (const telemetry::Record &record : records) {
                const auto *one = std::get_if<telemetry::LogRecord>(&record.payload);
                if (one && stream.second == rank)
                    all.push_back(one->text);
            }
        }
        return all;
    }

    std::vector<store::StreamPosition> positions(const std::string &run)
    {
        const std::lock_guard lock(m_mutex);
        std::vector<store::StreamPosition> all;
        for (const auto &[stream, records] : m_streams[run]) {
            const std::uint64_t last = records.empty() ? m_first[run][stream] : records.back().sequence;
            all.push_back({stream.first, stream.second, last});
        }
        return all;
    }

    /// For a collector that goes on where another one was.
    void continueFrom(const std::string &run, const std::vector<store::StreamPosition> &from)
    {
        const std::lock_guard lock(m_mutex);
        for (const store::StreamPosition &position : from)
            m_first[run][{position.epoch, position.rank}] = position.sequence;
    }

    int holes()
    {
        const std::lock_guard lock(m_mutex);
        return m_holes;
    }
    std::optional<Error> lost()
    {
        const std::lock_guard lock(m_mutex);
        return m_lost;
    }

    std::mutex m_mutex;
    std::condition_variable m_changed;
    std::map<std::string, std::map<Stream, std::vector<telemetry::Record>>> m_streams;
    std::map<std::string, std::map<Stream, std::uint64_t>> m_first;
    std::map<std::string, std::vector<session::RunStatus>> m_statuses;
    std::map<std::string, bool> m_caughtUp;
    std::optional<Error> m_lost;
    int m_holes = 0;
};

inline char stateOf(int pid)
{
    const auto text = readFile("/proc/" + std::to_string(pid) + "/stat");
    const std::size_t name = text ? text->rfind(')') : std::string::npos;
    return name != std::string::npos ? (*text)[name + 2] : '\0';
}
inline bool isGone(int pid) { return stateOf(pid) == '\0' || stateOf(pid) == 'Z'; }

/// Waits for the end of any process.
inline bool waitForExit(int pid, int ms = 20'000)
{
    const Fd fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
    if (!fd.valid())
        return true;
    pollfd wait{fd.get(), POLLIN, 0};
    return ::poll(&wait, 1, ms) > 0;
}

class AgentTest : public testing::Test
{
protected:
    void SetUp() override
    {
        std::string pattern = (fs::temp_directory_path() / "rankyard-agent-XXXXXX").string();
        ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
        m_dir = pattern;
        const char *bin = std::getenv("RANKYARD_BIN_DIR");
        m_bin = bin ? fs::path(bin) : fs::read_symlink("/proc/self/exe").parent_path();
        fs::create_directories(m_dir / "run");
        fs::permissions(m_dir / "run", fs::perms::owner_all);
        set("XDG_RUNTIME_DIR", (m_dir / "run").string());
        set("XDG_STATE_HOME", (m_dir / "state").string());
        set("XDG_DATA_HOME", (m_dir / "data").string());
        set("RANKYARD_LIBEXEC", m_bin.string());
        set("RANKYARD_WORKER", (m_bin / "fake_worker").string());
        set("RANKYARD_AGENT_IDLE_MS", "30000");
        writeCorpus();
    }

    void TearDown() override
    {
        m_session.reset();
        endAgent(SIGTERM);
        for (const auto &[name, before] : m_environment) {
            if (before)
                ::setenv(name.c_str(), before->c_str(), 1);
            else
                ::unsetenv(name.c_str());
        }
        std::error_code none;
        if (HasFailure()) {
            for (const auto &entry : fs::directory_iterator(m_dir / "state" / "rankyard" / "agent", none))
                std::fprintf(stderr, "%s:\n%s\n", entry.path().c_str(),
                             readFile(entry.path()).value().c_str());
        }
        fs::remove_all(m_dir);
    }

    void set(const std::string &name, const std::string &value)
    {
        const char *before = std::getenv(name.c_str());
        m_environment.try_emplace(name, before ? std::optional<std::string>(before) : std::nullopt);
        ::setenv(name.c_str(), value.c_str(), 1);
    }

    void writeCorpus()
    {
        auto writer = data::IndexedDatasetWriter::create(m_dir / "corpus", 256);
        ASSERT_TRUE(writer) << writer.error().text();
        std::vector<std::int32_t> tokens(5000);
        for (std::size_t i = 0; i < tokens.size(); ++i)
            tokens[i] = static_cast<std::int32_t>(i % 251);
        ASSERT_TRUE(writer->add(tokens));
        ASSERT_TRUE(writer->endDocument());
        const auto status = writer->finish();
        ASSERT_TRUE(status) << status.error().text();
    }

    spec::JobSpec job(const std::string &name, std::int64_t steps, std::int64_t ranks = 2)
    {
        spec::JobSpec job;
        job.name = name;
        job.model.layers = 1;
        job.model.hidden = 16;
        job.model.heads = 2;
        job.model.seq = 8;
        job.model.vocab = 256;
        job.data.train = "corpus";
        job.batch.global = 2 * ranks;
        job.batch.micro = 1;
        job.layout.dp = ranks;
        job.run.steps = steps;
        return job;
    }

    session::StartRequest request(const std::string &name, std::int64_t steps, std::int64_t ranks = 2)
    {
        session::StartRequest request;
        request.job = job(name, steps, ranks);
        request.jobDir = m_dir.string();
        return request;
    }

    /// A session that tells `collector`; remembers the agent's process.
    std::unique_ptr<session::Session> open(Collector &collector)
    {
        auto opened = session::Session::openLocal(collector.callbacks());
        EXPECT_TRUE(opened) << opened.error().text();
        if (!opened)
            return nullptr;
        m_agent = (*opened)->agent().pid;
        return std::move(*opened);
    }

    void openMain() { m_session = open(m_collector); }

    /// Starts and subscribes; the id.
    std::string start(const session::StartRequest &request)
    {
        const auto status = m_session->start(request);
        EXPECT_TRUE(status) << status.error().text();
        if (!status)
            return {};
        const auto subscribed = m_session->subscribe(status->id, {});
        EXPECT_TRUE(subscribed) << subscribed.error().text();
        return status->id;
    }

    void endAgent(int signal)
    {
        if (m_agent <= 0)
            return;
        const Fd fd(static_cast<int>(::syscall(SYS_pidfd_open, m_agent, 0)));
        if (fd.valid()) {
            ::kill(m_agent, signal);
            pollfd wait{fd.get(), POLLIN, 0};
            EXPECT_GT(::poll(&wait, 1, 30'000), 0) << "the agent does not end";
        }
        m_agent = 0;
    }

    /// Processes that carry the run's mark, dead ones not counted.
    static std::vector<int> processesOf(const std::string &run)
    {
        std::vector<int> pids;
        std::error_code error;
        for (fs::directory_iterator it("/proc", error), end; !error && it != end; it.increment(error)) {
            const int pid = std::atoi(it->path().filename().c_str());
            const auto environment =
                pid > 0 ? readFile(it->path() / "environ") : Result<std::string>(Error{});
            if (environment && environment->find("RANKYARD_RUN=" + run) != std::string::npos && !isGone(pid))
                pids.push_back(pid);
        }
        return pids;
    }

    fs::path runDir(const std::string &run) const { return m_dir / "state" / "rankyard" / "runs" / run; }

    fs::path m_dir;
    fs::path m_bin;
    std::map<std::string, std::optional<std::string>> m_environment;
    Collector m_collector;
    std::unique_ptr<session::Session> m_session;
    int m_agent = 0;
};

} // namespace agenttest
