// SPDX-License-Identifier: GPL-3.0-or-later
#include "remote/agent/failure.h"

#include "engine/base/file.h"
#include "engine/base/units.h"
#include "remote/agent/cgroup.h"

#include <algorithm>
#include <charconv>
#include <csignal>
#include <cstring>
#include <filesystem>

namespace rankyard::agent {

namespace fs = std::filesystem;

std::string signalName(int signal)
{
    if (const char *name = ::sigabbrev_np(signal))
        return std::string("SIG") + name;
    return "signal " + std::to_string(signal);
}

// OomWatch ----------------------------------------------------------------------------------------------------------

namespace {

/// The number after `key` in a file of "key number" lines; −1 when it is not there.
std::int64_t numberAfter(const fs::path &file, std::string_view key)
{
    const auto text = readFile(file);
    if (!text)
        return -1;
    for (std::size_t at = 0; at < text->size();) {
        const std::size_t end = std::min(text->find('\n', at), text->size());
        const std::string_view line = std::string_view(*text).substr(at, end - at);
        if (line.size() > key.size() && line.starts_with(key) && line[key.size()] == ' ') {
            std::int64_t number = -1;
            std::from_chars(line.data() + key.size() + 1, line.data() + line.size(), number);
            return number;
        }
        at = end + 1;
    }
    return -1;
}

} // namespace

OomWatch::OomWatch()
{
    const MemoryCgroup group = memoryCgroup();
    if (!group.folder.empty()) {
        m_file = group.folder / (group.v1 ? "memory.oom_control" : "memory.events");
        m_limit = group.folder / (group.v1 ? "memory.limit_in_bytes" : "memory.max");
    }
    m_before = read();
}

OomWatch::Counts OomWatch::read() const
{
    Counts counts;
    if (!m_file.empty())
        counts.cgroup = numberAfter(m_file, "oom_kill");
    counts.host = numberAfter("/proc/vmstat", "oom_kill");
    return counts;
}

std::string OomWatch::evidence() const
{
    const Counts now = read();
    if (m_before.cgroup >= 0 && now.cgroup > m_before.cgroup) {
        std::string text = "the cgroup's limit";
        const auto limit = readFile(m_limit);
        std::int64_t bytes = 0;
        if (limit && std::from_chars(limit->data(), limit->data() + limit->size(), bytes).ec == std::errc()
            && bytes < std::int64_t{1} << 60)
            text += " of " + formatBytes(static_cast<double>(bytes));
        return text + ", oom_kill +" + std::to_string(now.cgroup - m_before.cgroup);
    }
    // Another group's kill counts for the host as well: believed only where there is no count of our own.
    if (m_before.cgroup < 0 && m_before.host >= 0 && now.host > m_before.host)
        return "the host's memory, oom_kill +" + std::to_string(now.host - m_before.host);
    return {};
}

// First cause -------------------------------------------------------------------------------------------------------

Evidence::Kind kindOfError(const Error &error, int rank)
{
    const bool aboutRanks = error.code == Code::RankFailed || error.code == Code::NodeFailed;
    const bool other = error.where.starts_with("rank ") && error.where != "rank " + std::to_string(rank);
    return aboutRanks && other ? Evidence::Kind::PeerError : Evidence::Kind::OwnError;
}

namespace {

const char *likelyCause(int signal)
{
    switch (signal) {
    case SIGSEGV:
    case SIGBUS:
        return "a bad memory access";
    case SIGABRT:
        return "the program gave up: see its last lines";
    case SIGILL:
        return "an instruction that this processor does not have";
    case SIGFPE:
        return "an arithmetic fault";
    case SIGTERM:
    case SIGINT:
    case SIGHUP:
        return "somebody asked it to end";
    case SIGXCPU:
        return "a limit of processor time";
    case SIGXFSZ:
        return "a limit of file size";
    default:
        return "unknown; somebody or something sent the signal";
    }
}

Error bySignal(const Evidence &evidence, const std::string &oomEvidence)
{
    Error error = Error::make(Code::RankFailed,
                              "killed by " + signalName(evidence.status.signal) + " (pid "
                                  + std::to_string(evidence.pid) + ")",
                              "rank " + std::to_string(evidence.rank));
    if (evidence.status.signal == SIGKILL && !oomEvidence.empty()) {
        error.what += ", likely out of memory: " + oomEvidence;
        error.hint =
            "Use a smaller batch.micro, recompute, or a higher zero.stage, or give the job more memory";
    } else {
        error.what += ", likely cause: " + std::string(likelyCause(evidence.status.signal));
    }
    return error;
}

Error describe(const Evidence &evidence, const std::string &oomEvidence)
{
    const std::string where = "rank " + std::to_string(evidence.rank);
    switch (evidence.kind) {
    case Evidence::Kind::Signal:
        return bySignal(evidence, oomEvidence);
    case Evidence::Kind::OwnError: {
        Error error = evidence.error;
        if (error.where.empty())
            error.where = where;
        else if (error.where != where)
            error.what += " (on " + where + ")";
        return error;
    }
    case Evidence::Kind::ExitCode:
        return Error::make(Code::RankFailed,
                           "ended before its work was done (pid " + std::to_string(evidence.pid) + ")", where)
            .withFound("exit status " + std::to_string(evidence.status.code));
    case Evidence::Kind::PeerError:
    case Evidence::Kind::Hang:
    case Evidence::Kind::Broken:
        break;
    }
    return evidence.error;
}

int weight(Evidence::Kind kind)
{
    switch (kind) {
    case Evidence::Kind::OwnError:
    case Evidence::Kind::Signal:
        return 0;
    case Evidence::Kind::Broken:
    case Evidence::Kind::ExitCode:
        return 1;
    case Evidence::Kind::Hang:
        return 2;
    case Evidence::Kind::PeerError:
        break;
    }
    return 3;
}

} // namespace

Error firstCause(const std::vector<Evidence> &evidence, const std::string &oomEvidence)
{
    if (evidence.empty())
        return Error::make(Code::Internal, "the run failed and no rank said why");
    // A rank that blames a peer ends with a status of its own, which says nothing more.
    const auto blames = [&evidence](int rank) {
        return std::any_of(evidence.begin(), evidence.end(), [rank](const Evidence &one) {
            return one.rank == rank && one.kind == Evidence::Kind::PeerError;
        });
    };
    const Evidence *cause = nullptr;
    for (const Evidence &one : evidence) {
        if (one.kind == Evidence::Kind::ExitCode && blames(one.rank))
            continue;
        if (!cause || weight(one.kind) < weight(cause->kind))
            cause = &one;
    }
    if (!cause)
        cause = &evidence.front();
    // What a rank said of itself before it died explains its death.
    for (const Evidence &one : evidence) {
        if (one.rank == cause->rank && one.kind == Evidence::Kind::OwnError) {
            cause = &one;
            break;
        }
    }
    return describe(*cause, oomEvidence);
}

} // namespace rankyard::agent
