// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/base/units.h"
#include "remote/session/session.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <thread>

namespace rankyard::session {

using telemetry::Record;

namespace {

constexpr std::chrono::milliseconds batchTime{100};
constexpr std::chrono::seconds patience{
    2}; ///< of who waits for an ended run whose records the store does not take
constexpr std::size_t batchRecords = 5000;
constexpr std::size_t queueRecords =
    200'000; ///< beyond, the link waits, and the agent's spool keeps what comes

/// The session's callbacks fill a queue by run; a thread with its own connection to the store empties it.
class Service final : public RunService
{
public:
    Service(std::filesystem::path file, Callbacks callbacks)
        : m_file(std::move(file)),
          m_callbacks(std::move(callbacks))
    {}
    ~Service() override;

    Status connect();
    Result<std::string> start(const StartRequest &request) override;
    Status follow(const std::string &run) override;
    Session &session() override { return *m_session; }
    Result<RunStatus> waitUntilEnded(const std::string &run, std::function<bool()> cancelled) override;

private:
    struct Followed {
        std::vector<Record> queue;
        bool caughtUp = false;   ///< the agent said so, after what is in the queue
        bool again = false;      ///< records were missing: subscribe anew
        bool subscribed = false; ///< statuses come of every run, records of these
        std::optional<RunStatus> status;
    };

    Status known(const RunStatus &status, const std::string &job);
    Status subscribe(const std::string &run);
    void takeRecords(const std::string &run, std::vector<Record> records);
    void takeStatus(const RunStatus &status);
    void takeCaughtUp(const std::string &run);
    void takeLost(const Error &error);
    void work();
    void subscribeAgain(const std::string &run);
    void ingest(const std::string &run, std::vector<Record> batch);

    std::filesystem::path m_file;
    Callbacks m_callbacks;
    std::mutex m_storeMutex;
    std::unique_ptr<store::RunStore> m_store;  ///< of the calling threads
    std::unique_ptr<store::RunStore> m_writer; ///< of the thread

    std::mutex m_mutex; ///< of what follows
    std::condition_variable m_filled;
    std::condition_variable m_emptied; ///< something was stored, a status came, or the agent was lost
    std::map<std::string, Followed> m_runs;
    std::size_t m_queued = 0;
    std::optional<Error> m_lost;
    std::optional<Error> m_trouble; ///< the store does not take what is in the queue
    std::chrono::steady_clock::time_point m_troubleSince;
    bool m_closing = false;
    bool m_asking = false; ///< the storing thread waits for a reply: the link must not wait for it

    std::thread m_thread;
    std::unique_ptr<Session> m_session; ///< last: gone first, so that no callback finds a half of us
};

Service::~Service()
{
    {
        const std::lock_guard lock(m_mutex);
        m_closing = true;
    }
    m_filled.notify_all();
    m_emptied.notify_all();
    m_session.reset();
    if (m_thread.joinable())
        m_thread.join();
}

Status Service::connect()
{
    RY_ASSIGN(m_store, store::RunStore::open(m_file));
    RY_ASSIGN(m_writer, store::RunStore::open(m_file));
    Session::Callbacks callbacks;
    callbacks.records = [this](const std::string &run, std::vector<Record> records) {
        takeRecords(run, std::move(records));
    };
    callbacks.status = [this](const RunStatus &status) { takeStatus(status); };
    callbacks.caughtUp = [this](const std::string &run) { takeCaughtUp(run); };
    callbacks.lost = [this](const Error &error) { takeLost(error); };
    RY_ASSIGN(m_session, Session::openLocal(std::move(callbacks)));
    m_thread = std::thread([this] { work(); });
    RY_ASSIGN(const auto runs, m_store->runs());
    for (const store::RunInfo &run : runs) {
        if (telemetry::isTerminal(run.state) || run.state == telemetry::RunState::Draft
            || run.node != "local")
            continue;
        const auto status = follow(run.id);
        if (!status && status.error().code == Code::NotFound) {
            // Its folder is gone: nobody will ever hear of it again.
            const std::lock_guard lock(m_storeMutex);
            (void)m_store->setState(run.id, telemetry::RunState::Lost, status.error());
        }
    }
    return {};
}

/// The run's row in the store, so that its records have a place.
Status Service::known(const RunStatus &status, const std::string &job)
{
    store::RunInfo info;
    info.id = status.id;
    info.name = status.name;
    info.runDir = status.runDir;
    info.job = job;
    info.startedNs = status.startedNs;
    info.steps = status.steps;
    info.world = status.world;
    const std::lock_guard lock(m_storeMutex);
    // An agent has it, so it is no draft any more: whoever opens the store next follows it.
    const auto stored = m_store->run(status.id);
    if (!stored || stored->state == telemetry::RunState::Draft)
        info.state = telemetry::RunState::Deploying;
    return m_store->putRun(info);
}

Status Service::subscribe(const std::string &run)
{
    std::vector<store::StreamPosition> from;
    {
        const std::lock_guard lock(m_storeMutex);
        RY_ASSIGN(from, m_store->positions(run));
    }
    {
        const std::lock_guard lock(m_mutex);
        m_runs[run].caughtUp = false;
        m_runs[run].subscribed = true;
    }
    return m_session->subscribe(run, from);
}

Result<std::string> Service::start(const StartRequest &request)
{
    RY_ASSIGN(const RunStatus status, m_session->start(request));
    RY_TRY(known(status, dumpJson(spec::writeJob(request.job))));
    RY_TRY(subscribe(
        status.id)); // brings the status: the reply's may be older than what notices have told meanwhile
    if (m_callbacks.changed)
        m_callbacks.changed(status.id);
    return status.id;
}

Status Service::follow(const std::string &run)
{
    {
        const std::lock_guard lock(m_mutex);
        if (m_lost)
            return *m_lost;
        if (const auto at = m_runs.find(run); at != m_runs.end() && at->second.subscribed)
            return {}; // it is followed already
    }
    RY_ASSIGN(const auto described, m_session->describe(run));
    RY_TRY(known(described.first, dumpJson(described.second)));
    return subscribe(run);
}

// On the session's thread -------------------------------------------------------------------------------------------

void Service::takeRecords(const std::string &run, std::vector<Record> records)
{
    std::unique_lock lock(m_mutex);
    m_emptied.wait(lock, [this] { return m_queued < queueRecords || m_asking || m_closing; });
    std::vector<Record> &queue = m_runs[run].queue;
    m_queued += records.size();
    if (queue.empty())
        queue = std::move(records);
    else
        queue.insert(queue.end(), std::make_move_iterator(records.begin()),
                     std::make_move_iterator(records.end()));
    m_filled.notify_one();
}

void Service::takeStatus(const RunStatus &status)
{
    {
        const std::lock_guard lock(m_mutex);
        Followed &run = m_runs[status.id];
        if (run.status && run.status->epoch != status.epoch)
            run.caughtUp = false;
        run.status = status;
    }
    m_emptied.notify_all();
    if (m_callbacks.status)
        m_callbacks.status(status);
}

void Service::takeCaughtUp(const std::string &run)
{
    const std::lock_guard lock(m_mutex);
    m_runs[run].caughtUp = true;
    m_filled.notify_one();
}

void Service::takeLost(const Error &error)
{
    {
        const std::lock_guard lock(m_mutex);
        m_lost = error;
    }
    m_emptied.notify_all();
    if (m_callbacks.lost)
        m_callbacks.lost(error);
}

// On the storing thread ---------------------------------------------------------------------------------------------

void Service::work()
{
    auto due = std::chrono::steady_clock::now();
    for (;;) {
        std::map<std::string, std::vector<Record>> batches;
        std::vector<std::string> again;
        {
            std::unique_lock lock(m_mutex);
            const auto waiting = [this] {
                return m_closing || m_queued > 0
                    || std::any_of(m_runs.begin(), m_runs.end(),
                                   [](const auto &run) { return run.second.again; });
            };
            m_filled.wait(lock, waiting);
            // Some patience makes larger batches; who waits for the end of a run does not need it.
            const auto hurry = [this] {
                return m_closing || m_queued >= batchRecords
                    || std::any_of(m_runs.begin(), m_runs.end(), [](const auto &run) {
                           return run.second.caughtUp && !run.second.queue.empty();
                       });
            };
            m_filled.wait_until(lock, due, hurry);
            for (auto &[id, run] : m_runs) {
                if (std::exchange(run.again, false) && !m_closing)
                    again.push_back(id);
                if (!run.queue.empty())
                    batches[id] = std::exchange(run.queue, {});
            }
            if (batches.empty() && again.empty() && m_closing)
                return;
        }
        due = std::chrono::steady_clock::now() + batchTime;
        for (const std::string &run : again)
            subscribeAgain(run);
        for (auto &[run, batch] : batches)
            ingest(run, std::move(batch));
    }
}

void Service::subscribeAgain(const std::string &run)
{
    {
        const std::lock_guard lock(m_mutex);
        m_asking = true;
    }
    m_emptied.notify_all();
    (void)subscribe(run);
    const std::lock_guard lock(m_mutex);
    m_asking = false;
}

void Service::ingest(const std::string &run, std::vector<Record> batch)
{
    const std::size_t count = batch.size();
    std::chrono::milliseconds pause{200};
    for (;;) {
        const auto status = m_writer->ingest(run, batch);
        if (status)
            break;
        const Code code = status.error().code;
        if (code == Code::BadData || code == Code::NotFound) {
            // Records are missing (somebody else stored in between, or the link dropped some): ask again from where the store is. A run that was
            // removed meanwhile is of no more interest.
            const std::lock_guard lock(m_mutex);
            m_runs[run].again =
                code == Code::BadData && status.error().what == "records are missing" && !m_closing;
            if (code == Code::NotFound)
                m_runs[run].caughtUp = true;
            break;
        }
        if (m_callbacks.trouble)
            m_callbacks.trouble(status.error());
        std::unique_lock lock(m_mutex);
        if (!m_trouble)
            m_troubleSince = std::chrono::steady_clock::now();
        m_trouble = status.error();
        if (m_filled.wait_for(lock, pause, [this] { return m_closing; }))
            break;
        pause = std::min(pause * 2, std::chrono::milliseconds(5000));
    }
    {
        const std::lock_guard lock(m_mutex);
        m_queued -= count;
        if (!m_closing)
            m_trouble.reset();
    }
    m_emptied.notify_all();
    if (m_callbacks.changed)
        m_callbacks.changed(run);
}

Result<RunStatus> Service::waitUntilEnded(const std::string &run, std::function<bool()> cancelled)
{
    std::unique_lock lock(m_mutex);
    for (;;) {
        const auto at = m_runs.find(run);
        if (at == m_runs.end())
            return Error::make(Code::NotFound, "this run is not followed", run);
        const Followed &followed = at->second;
        const bool ended = followed.status && telemetry::isTerminal(followed.status->state);
        if (ended && followed.caughtUp && m_queued == 0 && !followed.again)
            return *followed.status;
        if (m_lost)
            return *m_lost;
        if (ended && m_trouble && std::chrono::steady_clock::now() - m_troubleSince > patience) {
            Error error = *m_trouble;
            error.hint = "The run has ended; its records are in " + followed.status->runDir
                + " and are stored by the next attach when there is room";
            return error;
        }
        lock.unlock();
        const bool stop = cancelled && cancelled();
        lock.lock();
        if (stop)
            return Error::make(Code::Stopped, "not waited for any longer", run);
        m_emptied.wait_for(lock, std::chrono::milliseconds(20));
    }
}

} // namespace

Result<std::unique_ptr<RunService>> RunService::open(const std::filesystem::path &storeFile,
                                                     Callbacks callbacks)
{
    auto service = std::make_unique<Service>(storeFile, std::move(callbacks));
    RY_TRY(service->connect());
    return std::unique_ptr<RunService>(std::move(service));
}

} // namespace rankyard::session
