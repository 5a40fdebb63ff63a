// SPDX-License-Identifier: GPL-3.0-or-later
#include "tests/system/system_test.h"

#include <csignal>
#include <cstdlib>
#include <poll.h>
#include <unistd.h>

using namespace rankyard;
namespace fs = std::filesystem;

void SystemTest::SetUp()
{
    std::string pattern = (fs::temp_directory_path() / "rankyard-system-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    m_dir = pattern;
    const char *bin = std::getenv("RANKYARD_BIN_DIR");
    m_bin = bin ? fs::path(bin) : fs::read_symlink("/proc/self/exe").parent_path();
    fs::create_directories(m_dir / "run");
    fs::permissions(m_dir / "run", fs::perms::owner_all);
    set("XDG_RUNTIME_DIR", (m_dir / "run").string());
    set("XDG_STATE_HOME", (m_dir / "state").string());
    set("XDG_DATA_HOME", (m_dir / "data").string());
    set("XDG_CONFIG_HOME", (m_dir / "config").string());
    set("RANKYARD_AGENT_IDLE_MS", "60000");
    m_sharedBefore = sharedMemoryFiles();
    std::string text;
    for (int i = 0; i < 4000; ++i)
        text += "The ship sailed " + std::to_string(i * 7919 % 1000) + " miles and met "
            + std::to_string(i % 17) + " others.\n";
    ASSERT_TRUE(writeFileAtomically(m_dir / "text.txt", text));
    auto prepared = ctlDone({"data", "prepare", (m_dir / "text.txt").string(), "--tokenizer", "byte", "--out",
                             (m_dir / "corpus").string()});
    ASSERT_EQ(prepared->wait(), 0) << prepared->errors();
}

void SystemTest::TearDown()
{
    endAgents();
    EXPECT_TRUE(workers().empty()) << "a process of a run is left";
    EXPECT_EQ(sharedMemoryFiles(), m_sharedBefore) << "something is left in /dev/shm";
    for (const auto &[name, before] : m_environment) {
        if (before)
            ::setenv(name.c_str(), before->c_str(), 1);
        else
            ::unsetenv(name.c_str());
    }
    fs::remove_all(m_dir);
}

/// The agent of this test's folders, told by its log.
void SystemTest::endAgents()
{
    std::error_code error;
    for (const auto &entry : fs::directory_iterator(m_dir / "state" / "rankyard" / "agent", error)) {
        const auto log = readFile(entry.path());
        const std::size_t serving = log ? log->rfind("serving, build") : std::string::npos;
        const std::size_t at = serving == std::string::npos ? serving : log->find("pid ", serving);
        const int pid = at == std::string::npos ? 0 : std::atoi(log->c_str() + at + 4);
        if (pid <= 0 || isGone(pid))
            continue;
        const auto name =
            fs::read_symlink("/proc/" + std::to_string(pid) + "/exe", error).filename().string();
        if (name.rfind("rankyard-agent", 0) != 0)
            continue;
        ::kill(pid, SIGTERM);
        for (int i = 0; i < 3000 && !isGone(pid); ++i)
            ::poll(nullptr, 0, 5);
        EXPECT_TRUE(isGone(pid)) << "the agent does not end";
    }
}

void SystemTest::set(const std::string &name, const std::string &value)
{
    const char *before = std::getenv(name.c_str());
    m_environment.try_emplace(name, before ? std::optional<std::string>(before) : std::nullopt);
    ::setenv(name.c_str(), value.c_str(), 1);
}

std::unique_ptr<Command> SystemTest::ctl(std::vector<std::string> arguments)
{
    arguments.insert(arguments.begin(), (m_bin / "rankyardctl").string());
    return std::make_unique<Command>(std::move(arguments));
}

std::unique_ptr<Command> SystemTest::ctlDone(std::vector<std::string> arguments)
{
    auto command = ctl(std::move(arguments));
    EXPECT_NE(command->wait(), -1000) << "it does not end:\n" << command->errors();
    return command;
}

std::string SystemTest::job(const std::map<std::string, Json> &changes, const std::string &name)
{
    Json json = {{"schema", "rankyard/job/1"},
                 {"name", "small"},
                 {"model", {{"layers", 2}, {"hidden", 64}, {"heads", 4}, {"seq", 64}, {"vocab", 257}}},
                 {"data", {{"train", "corpus"}}},
                 {"batch", {{"global", 8}, {"micro", 2}}},
                 {"layout", {{"dp", 2}}},
                 {"zero", {{"stage", 1}}},
                 {"optimizer", {{"lr", 1e-3}}},
                 {"run", {{"steps", 5}, {"eval_every", 0}, {"checkpoint_every", 0}, {"threads", 1}}}};
    for (const auto &[path, value] : changes)
        json[Json::json_pointer(path)] = value;
    EXPECT_TRUE(writeFileAtomically(m_dir / name, dumpJson(json, 1)));
    return (m_dir / name).string();
}

bool SystemTest::isGone(int pid)
{
    const auto text = readFile("/proc/" + std::to_string(pid) + "/stat");
    const std::size_t name = text ? text->rfind(')') : std::string::npos;
    return name == std::string::npos || (*text)[name + 2] == 'Z' || (*text)[name + 2] == 'X';
}

std::vector<int> SystemTest::workers() const
{
    std::vector<int> pids;
    const std::string mine = "XDG_DATA_HOME=" + (m_dir / "data").string();
    std::error_code error;
    for (fs::directory_iterator it("/proc", error), end; !error && it != end; it.increment(error)) {
        const int pid = std::atoi(it->path().filename().c_str());
        const auto environment = pid > 0 ? readFile(it->path() / "environ") : Result<std::string>(Error{});
        if (environment && environment->find("RANKYARD_RUN=") != std::string::npos
            && environment->find(mine) != std::string::npos && !isGone(pid))
            pids.push_back(pid);
    }
    return pids;
}

std::vector<int> SystemTest::waitForWorkers(std::size_t count) const
{
    for (int i = 0; i < 6000; ++i) {
        const auto pids = workers();
        if (pids.size() >= count)
            return pids;
        ::poll(nullptr, 0, 5);
    }
    return {};
}

std::int64_t SystemTest::lastStep(const std::string &run)
{
    const Json json = ctlDone({"runs", "list", "--json"})->json();
    const Json runs = json.is_object() ? json["runs"] : Json::array();
    for (const Json &one : runs) {
        if (run.empty() || one["run"] == run)
            return one.value("step", std::int64_t{0});
    }
    return 0;
}

bool SystemTest::waitForStep(std::int64_t step, const std::string &run)
{
    for (int i = 0; i < 1200; ++i) {
        if (lastStep(run) >= step)
            return true;
        ::poll(nullptr, 0, 20);
    }
    return false;
}

std::set<std::string> SystemTest::sharedMemoryFiles()
{
    std::set<std::string> names;
    std::error_code error;
    for (fs::directory_iterator it("/dev/shm", error), end; !error && it != end; it.increment(error)) {
        if (it->path().filename().string().find("rankyard") != std::string::npos)
            names.insert(it->path().filename().string());
    }
    return names;
}

bool SystemTest::isLong() { return std::getenv("RANKYARD_TEST_LONG") != nullptr; }

std::map<std::int64_t, double> SystemTest::losses(const Json &document)
{
    std::map<std::int64_t, double> all;
    if (document.is_object() && document.contains("steps")) {
        for (const Json &step : document["steps"])
            all[step["step"].get<std::int64_t>()] =
                step["loss"].is_number() ? step["loss"].get<double>() : 0.0 / 0.0;
    }
    return all;
}
