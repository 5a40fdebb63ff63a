// SPDX-License-Identifier: GPL-3.0-or-later
#include "tests/engine/exec/mini_agent.h"

#include "engine/base/build_id.h"
#include "engine/data/indexed_dataset.h"
#include "engine/exec/agent_link.h"
#include "engine/exec/host_layout.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

namespace rankyard::exec::test {

namespace wire = telemetry::wire;

std::vector<telemetry::StepRecord> RankOutcome::steps() const
{
    std::vector<telemetry::StepRecord> steps;
    for (const telemetry::Record &record : records) {
        if (const auto *step = std::get_if<telemetry::StepRecord>(&record.payload))
            steps.push_back(*step);
    }
    return steps;
}

std::vector<telemetry::EvalRecord> RankOutcome::evals() const
{
    std::vector<telemetry::EvalRecord> evals;
    for (const telemetry::Record &record : records) {
        if (const auto *eval = std::get_if<telemetry::EvalRecord>(&record.payload))
            evals.push_back(*eval);
    }
    return evals;
}

std::size_t RankOutcome::count(const char *reportKind) const
{
    return static_cast<std::size_t>(
        std::count_if(reports.begin(), reports.end(),
                      [reportKind](const Json &r) { return r.value("kind", "") == reportKind; }));
}

Error RankOutcome::error() const
{
    for (const Json &report : reports) {
        if (report.value("kind", "") == "error")
            return report.at("error").get<Error>();
    }
    return {};
}

int RankOutcome::exitCode() const
{
    return WIFEXITED(waitStatus) ? WEXITSTATUS(waitStatus) : -WTERMSIG(waitStatus);
}

namespace {

[[noreturn]] void becomeRank(Fd fd)
{
    auto bootstrap = receiveBootstrap(fd.get());
    if (!bootstrap.ok())
        ::_exit(99);
    const std::uint32_t epoch = bootstrap->epoch;
    const int rank = bootstrap->rank;
    Worker worker(std::move(bootstrap).value(), [](const Bootstrap &own) -> Result<ChosenDevice> {
        return ChosenDevice{makeCpuDevice(own.threads), {}};
    });
    AgentLink link(std::move(fd), worker, epoch, rank);
    const auto result = worker.run();
    link.finish(result);
    if (!result.ok())
        ::_exit(static_cast<int>(exitFor(result.error().code)));
    ::_exit(static_cast<int>(*result == WorkerEnd::Finished ? Exit::Done : Exit::Stopped));
}

/// Takes what has come from a rank; false at the end of the stream.
bool listen(int socket, wire::FrameDecoder &decoder, RankOutcome &outcome,
            const std::function<void(const std::string &, std::int64_t)> &news)
{
    char block[65536];
    const ssize_t n = ::recv(socket, block, sizeof block, MSG_DONTWAIT);
    if (n <= 0)
        return n < 0 && errno == EAGAIN;
    decoder.feed({block, static_cast<std::size_t>(n)});
    for (;;) {
        const auto frame = decoder.next();
        EXPECT_TRUE(frame.ok()) << frame.error().text();
        if (!frame.ok() || !frame->has_value())
            return frame.ok();
        const wire::FrameView &view = **frame;
        if (wire::isRecord(view.header.type)) {
            const auto record = wire::decodeRecord(view);
            EXPECT_TRUE(record.ok());
            outcome.records.push_back(*record);
            if (const auto *step = std::get_if<telemetry::StepRecord>(&record->payload))
                news("step", step->step);
        } else if (view.header.type == wire::FrameType::Report) {
            outcome.reports.push_back(*wire::parseFrameJson(view));
            news(outcome.reports.back().value("kind", ""),
                 outcome.reports.back().value("step", std::int64_t(-1)));
        } else if (view.header.type == wire::FrameType::Heartbeat) {
            ++outcome.heartbeats;
        }
    }
}

} // namespace

void MiniAgent::control(WorkerMessage::Request request)
{
    std::string frame;
    wire::appendJson(frame, wire::FrameType::Control, writeWorkerMessage({{}, request}));
    for (const int socket : m_sockets)
        EXPECT_EQ(::send(socket, frame.data(), frame.size(), MSG_NOSIGNAL),
                  static_cast<ssize_t>(frame.size()));
}

std::vector<RankOutcome> MiniAgent::run()
{
    const auto plan = plan::makePlan(job);
    const int world = static_cast<int>(job.layout.world());
    std::vector<RankOutcome> outcomes(static_cast<std::size_t>(world));
    if (!plan.ok()) {
        ADD_FAILURE() << plan.error().text();
        return outcomes;
    }
    std::vector<int> ranks;
    for (int rank = 0; rank < world; ++rank)
        ranks.push_back(rank);
    const auto memory = createHostMemory(*plan, ranks);
    std::vector<Fd> ours;
    m_sockets.clear();
    pids.clear();
    for (int rank = 0; rank < world; ++rank) {
        int pair[2];
        EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
        const int pid = ::fork();
        if (pid == 0) {
            ::close(pair[0]);
            ours.clear();
            becomeRank(Fd(pair[1]));
        }
        ::close(pair[1]);
        ours.emplace_back(pair[0]);
        m_sockets.push_back(pair[0]);
        pids.push_back(pid);
    }
    std::string pidsFrame;
    wire::appendJson(pidsFrame, wire::FrameType::Control,
                     writeWorkerMessage({pids, WorkerMessage::Request::None}));
    for (int rank = 0; rank < world; ++rank) {
        Bootstrap document;
        document.run = "r-test";
        document.rank = rank;
        document.world = world;
        document.job = Json::parse(dumpJson(spec::writeJob(job)));
        document.jobDir = document.runDir = folder.string();
        document.ckptDir = (folder / "ckpt").string();
        document.buildId = buildId();
        document.planDigest = planDigest.empty() ? plan->digest() : planDigest;
        document.resume = resume;
        document.startStep = startStep;
        document.hangMs = hangMs;
        fillHost(document, *memory, ranks);
        EXPECT_TRUE(sendBootstrap(m_sockets[static_cast<std::size_t>(rank)], document).ok());
        EXPECT_EQ(::send(m_sockets[static_cast<std::size_t>(rank)], pidsFrame.data(), pidsFrame.size(),
                         MSG_NOSIGNAL),
                  static_cast<ssize_t>(pidsFrame.size()));
    }
    std::vector<wire::FrameDecoder> decoders(static_cast<std::size_t>(world));
    std::vector<pollfd> entries;
    for (const int socket : m_sockets)
        entries.push_back({socket, POLLIN, 0});
    int open = world;
    while (open > 0) {
        ::poll(entries.data(), entries.size(), 20);
        for (std::size_t rank = 0; rank < entries.size(); ++rank) {
            if (entries[rank].fd < 0 || entries[rank].revents == 0)
                continue;
            const auto news = [&](const std::string &kind, std::int64_t step) {
                if (onNews)
                    onNews(*this, static_cast<int>(rank), kind, step);
            };
            if (!listen(entries[rank].fd, decoders[rank], outcomes[rank], news)) {
                entries[rank].fd = -1;
                outcomes[rank].endedNs = monotonicNs();
                --open;
            }
        }
    }
    for (std::size_t rank = 0; rank < pids.size(); ++rank)
        ::waitpid(pids[rank], &outcomes[rank].waitStatus, 0);
    return outcomes;
}

TemporaryFolder::TemporaryFolder()
{
    std::string pattern = (std::filesystem::temp_directory_path() / "rankyard-exec-XXXXXX").string();
    m_path = ::mkdtemp(pattern.data());
}

TemporaryFolder::~TemporaryFolder()
{
    std::error_code error;
    std::filesystem::remove_all(m_path, error);
}

void writeCorpus(const std::filesystem::path &prefix, std::int64_t tokens, std::int64_t vocab)
{
    auto writer = data::IndexedDatasetWriter::create(prefix, vocab);
    ASSERT_TRUE(writer.ok()) << writer.error().text();
    std::vector<std::int32_t> all;
    std::uint32_t previous = 1, current = 2, noise = 12345;
    for (std::int64_t i = 0; i < tokens; ++i) {
        noise = noise * 1664525u + 1013904223u;
        const std::uint32_t next = (noise >> 28 == 0 ? noise >> 8 : 3 * previous + 5 * current + 1)
            % static_cast<std::uint32_t>(vocab);
        all.push_back(static_cast<std::int32_t>(next));
        previous = current;
        current = next;
    }
    ASSERT_TRUE(writer->add(all).ok());
    ASSERT_TRUE(writer->endDocument().ok());
    ASSERT_TRUE(writer->finish().ok());
}

} // namespace rankyard::exec::test
