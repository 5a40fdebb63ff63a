// SPDX-License-Identifier: GPL-3.0-or-later
#include "remote/agent/run_files.h"

#include "engine/store/run_store.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

namespace rankyard::agent {

namespace fs = std::filesystem;

fs::path runsDir() { return stateDir() / "runs"; }
fs::path runLink(const std::string &id) { return runsDir() / id; }

namespace {

/// Members of documents that somebody may have edited: a wrong type reads as the default.
template<typename T>
T valueOf(const Json &json, const char *key, T fallback)
{
    const auto at = json.find(key);
    if (at == json.end())
        return fallback;
    try {
        return at->get<T>();
    } catch (const Json::exception &) {
        return fallback;
    }
}

Result<Json> readDocument(const fs::path &file, const char *family)
{
    RY_ASSIGN(const std::string text, readFile(file));
    RY_ASSIGN(Json json, parseJson(text, file.string()));
    RY_TRY(checkSchema(json, family, 1, file.string()));
    return json;
}

} // namespace

Status writeRunFile(const fs::path &folder, const RunFile &run)
{
    const Json json = {
        {"schema", "rankyard/run/1"},  {"run", run.id},         {"name", run.name},
        {"epoch", run.epoch},          {"world", run.world},    {"steps", run.steps},
        {"started_ns", run.startedNs}, {"job_dir", run.jobDir}, {"checkpoint_dir", run.checkpointDir},
        {"build", run.build}};
    return writeFileAtomically(folder / "run.json", dumpJson(json, 2) + "\n");
}

Result<RunFile> readRunFile(const fs::path &folder)
{
    RY_ASSIGN(const Json json, readDocument(folder / "run.json", "rankyard/run"));
    RunFile run;
    run.id = valueOf(json, "run", std::string());
    run.name = valueOf(json, "name", std::string());
    run.epoch = valueOf(json, "epoch", std::uint32_t{0});
    run.world = valueOf(json, "world", 0);
    run.steps = valueOf(json, "steps", std::int64_t{0});
    run.startedNs = valueOf(json, "started_ns", std::int64_t{0});
    run.jobDir = valueOf(json, "job_dir", std::string());
    run.checkpointDir = valueOf(json, "checkpoint_dir", std::string());
    run.build = valueOf(json, "build", std::string());
    if (!store::isRunId(run.id))
        return Error::make(Code::BadData, "the run's id is malformed", (folder / "run.json").string())
            .withFound(run.id);
    return run;
}

Status writeExitFile(const fs::path &folder, const ExitFile &exit)
{
    Json json = {{"schema", "rankyard/exit/1"},
                 {"run", exit.id},
                 {"epoch", exit.epoch},
                 {"state", telemetry::nameOf(exit.state)},
                 {"step", exit.step},
                 {"loss", nullptr},
                 {"ended_ns", exit.endedNs},
                 {"log", exit.logFile},
                 {"last_lines", exit.lastLines},
                 {"ranks", exit.ranks}};
    if (std::isfinite(exit.loss))
        json["loss"] = exit.loss;
    if (exit.error)
        json["error"] = *exit.error;
    return writeFileAtomically(folder / "exit.json", dumpJson(json, 2) + "\n");
}

Result<ExitFile> readExitFile(const fs::path &folder)
{
    RY_ASSIGN(const Json json, readDocument(folder / "exit.json", "rankyard/exit"));
    ExitFile exit;
    exit.id = valueOf(json, "run", std::string());
    exit.epoch = valueOf(json, "epoch", std::uint32_t{0});
    if (!telemetry::runStateFromName(valueOf(json, "state", std::string()), exit.state))
        return Error::make(Code::BadData, "the state of the run is unknown", (folder / "exit.json").string());
    exit.step = valueOf(json, "step", std::int64_t{0});
    exit.loss = valueOf(json, "loss", std::nan(""));
    exit.endedNs = valueOf(json, "ended_ns", std::int64_t{0});
    if (const auto error = json.find("error"); error != json.end())
        exit.error = error->get<Error>();
    exit.logFile = valueOf(json, "log", std::string());
    exit.lastLines = valueOf(json, "last_lines", std::vector<std::string>());
    exit.ranks = valueOf(json, "ranks", Json::array());
    return exit;
}

Result<Fd> lockFolder(const fs::path &folder)
{
    const fs::path file = folder / "lock";
    Fd fd(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    if (!fd.valid())
        return Error::fromErrno(errno, "cannot write to the run's folder", folder.string());
    if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0)
        return Error::make(Code::InUse, "the folder is in use by a live run", folder.string())
            .withHint("Wait for it, stop it, or choose another --run-dir");
    return fd;
}

namespace {

/// Whether a folder that is there may become the run's: empty, or the run's own.
Status checkFolder(const fs::path &folder, const std::string &id)
{
    std::error_code error;
    if (!fs::exists(folder, error))
        return {};
    if (!fs::is_directory(folder, error))
        return Error::make(Code::InUse, "the run's folder is a file", folder.string())
            .withHint("Choose another --run-dir");
    if (fs::exists(folder / "run.json", error)) {
        RY_ASSIGN(const RunFile other, readRunFile(folder));
        if (other.id == id)
            return {};
        // A live one is told apart by its lock, for the sake of the message.
        RY_TRY(lockFolder(folder));
        return Error::make(Code::InUse, "the folder holds another run", folder.string())
            .withFound(other.id)
            .withHint("Choose another --run-dir, or continue that run with --resume " + other.id);
    }
    const fs::directory_iterator entries(folder, error);
    if (error)
        return Error::fromErrno(error.value(), "cannot read the run's folder", folder.string());
    if (entries != fs::directory_iterator())
        return Error::make(Code::InUse, "the run's folder is not empty", folder.string())
            .withFound(entries->path().filename().string())
            .withHint("Choose a new or empty --run-dir");
    return {};
}

} // namespace

Result<fs::path> claimFolder(const std::string &id, const std::string &wanted)
{
    const fs::path link = runLink(id);
    std::error_code error;
    RY_TRY(makePrivateDir(runsDir()));
    fs::path folder = wanted.empty() ? link : fs::path(wanted);
    if (fs::exists(link, error)) {
        const fs::path existing = fs::canonical(link, error);
        if (!wanted.empty() && fs::weakly_canonical(folder, error) != existing)
            return Error::make(Code::InUse, "this run lies in another folder", wanted)
                .withFound(existing.string());
        folder = existing;
    }
    RY_TRY(checkFolder(folder, id));
    RY_TRY(makePrivateDir(folder));
    for (const char *part : {"program", "spool", "log", "ckpt"})
        RY_TRY(makePrivateDir(folder / part));
    if (::access(folder.c_str(), W_OK) != 0)
        return Error::fromErrno(errno, "cannot write to the run's folder", folder.string());
    folder = fs::canonical(folder, error);
    if (folder != fs::weakly_canonical(link, error)) {
        fs::remove(link, error);
        fs::create_symlink(folder, link, error);
        if (error)
            return Error::fromErrno(error.value(), "cannot link the run's folder", link.string());
    }
    return folder;
}

std::vector<std::string> knownRuns()
{
    std::vector<std::string> ids;
    std::error_code error;
    for (fs::directory_iterator it(runsDir(), error), end; !error && it != end; it.increment(error)) {
        if (store::isRunId(it->path().filename().string()))
            ids.push_back(it->path().filename().string());
    }
    std::sort(ids.begin(), ids.end());
    return ids;
}

Status removeFolder(const std::string &id)
{
    const fs::path link = runLink(id);
    std::error_code error;
    if (fs::is_symlink(link, error)) {
        const fs::path folder = fs::canonical(link, error);
        if (!error) {
            // Only what is ours: the folder was chosen by the user and may be shared with other things by now.
            for (const char *part :
                 {"program", "spool", "log", "ckpt", "job.json", "run.json", "exit.json", "lock"})
                fs::remove_all(folder / part, error);
            fs::remove(folder, error); // only when it is empty
        }
        fs::remove(link, error);
        return {};
    }
    fs::remove_all(link, error);
    if (error)
        return Error::fromErrno(error.value(), "cannot remove the run's folder", link.string());
    return {};
}

} // namespace rankyard::agent
