// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/store/run_store.h"

#include "engine/base/file.h"
#include "engine/base/json.h"
#include "engine/store/run_store_private.h"

#include <chrono>
#include <cmath>
#include <thread>

namespace rankyard::store {

namespace fs = std::filesystem;
using telemetry::RunState;

namespace {

constexpr int schemaVersion = 1;
constexpr std::int64_t applicationId = 0x52594b31; // "RYK1"

/// Everything of a run is keyed by its number, so that a run's rows lie together. steps holds packed metrics (wire::packStep).
constexpr const char *schema = R"sql(
CREATE TABLE runs(key INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, name TEXT NOT NULL, state TEXT NOT NULL,
    node TEXT NOT NULL, run_dir TEXT NOT NULL, job TEXT NOT NULL, started INTEGER NOT NULL, ended INTEGER NOT NULL,
    last_seen INTEGER NOT NULL, step INTEGER NOT NULL, steps INTEGER NOT NULL, world INTEGER NOT NULL, last_loss REAL,
    best_valid REAL, best_train REAL, tokens_per_s REAL, tags TEXT NOT NULL, error TEXT, epoch INTEGER NOT NULL);
CREATE TABLE streams(run INTEGER, epoch INTEGER, rank INTEGER, sequence INTEGER NOT NULL, PRIMARY KEY(run, epoch, rank))
    WITHOUT ROWID;
CREATE TABLE epochs(run INTEGER, epoch INTEGER, first_step INTEGER NOT NULL, PRIMARY KEY(run, epoch)) WITHOUT ROWID;
CREATE TABLE hellos(run INTEGER, epoch INTEGER, rank INTEGER, detail TEXT NOT NULL, PRIMARY KEY(run, epoch, rank)) WITHOUT ROWID;
CREATE TABLE steps(run INTEGER, rank INTEGER, step INTEGER, epoch INTEGER NOT NULL, metrics BLOB NOT NULL,
    PRIMARY KEY(run, rank, step)) WITHOUT ROWID;
CREATE TABLE superseded(run INTEGER, rank INTEGER, epoch INTEGER, step INTEGER, metrics BLOB NOT NULL,
    PRIMARY KEY(run, rank, epoch, step)) WITHOUT ROWID;
CREATE TABLE pyramid(run INTEGER, rank INTEGER, level INTEGER, bucket INTEGER, data BLOB NOT NULL,
    PRIMARY KEY(run, rank, level, bucket)) WITHOUT ROWID;
CREATE TABLE evals(run INTEGER, step INTEGER, epoch INTEGER NOT NULL, loss REAL, tokens INTEGER NOT NULL, wall INTEGER NOT NULL,
    PRIMARY KEY(run, step)) WITHOUT ROWID;
CREATE TABLE events(id INTEGER PRIMARY KEY AUTOINCREMENT, run INTEGER NOT NULL, rank INTEGER NOT NULL, epoch INTEGER NOT NULL,
    wall INTEGER NOT NULL, step INTEGER NOT NULL, kind TEXT NOT NULL, detail TEXT NOT NULL);
CREATE INDEX events_by_run ON events(run);
CREATE TABLE logs(id INTEGER PRIMARY KEY AUTOINCREMENT, run INTEGER NOT NULL, rank INTEGER NOT NULL, wall INTEGER NOT NULL,
    level INTEGER NOT NULL, step INTEGER NOT NULL, text TEXT NOT NULL);
CREATE INDEX logs_by_run ON logs(run);
CREATE TABLE spans(run INTEGER, rank INTEGER, step INTEGER, program INTEGER, epoch INTEGER NOT NULL, kept INTEGER NOT NULL,
    PRIMARY KEY(run, rank, step, program)) WITHOUT ROWID;
)sql";

constexpr const char *runTables[] = {"streams", "epochs", "hellos", "steps", "superseded",
                                     "pyramid", "evals",  "events", "logs",  "spans"};

constexpr const char *runColumns =
    "SELECT id, name, state, node, run_dir, job, started, ended, last_seen, step, steps, world, last_loss, best_valid,"
    " best_train, tokens_per_s, tags, error, epoch FROM runs";

RunInfo runFrom(const Statement &row)
{
    RunInfo run;
    run.id = row.text(0);
    run.name = row.text(1);
    if (!telemetry::runStateFromName(row.text(2), run.state))
        run.state = RunState::Lost;
    run.node = row.text(3);
    run.runDir = row.text(4);
    run.job = row.text(5);
    run.startedNs = row.integer(6);
    run.endedNs = row.integer(7);
    run.lastSeenNs = row.integer(8);
    run.step = row.integer(9);
    run.steps = row.integer(10);
    run.world = static_cast<int>(row.integer(11));
    run.lastLoss = row.real(12);
    run.bestLoss = row.isNull(13) ? row.real(14) : row.real(13);
    run.tokensPerS = row.isNull(15) ? 0 : row.real(15);
    run.tags = row.text(16);
    if (!row.isNull(17)) {
        if (const auto json = parseJson(row.text(17), run.id))
            run.error = json->get<Error>();
    }
    run.epoch = static_cast<std::uint32_t>(row.integer(18));
    return run;
}

} // namespace

RunStore::RunStore(std::unique_ptr<Private> p) : d(std::move(p)) {}
RunStore::~RunStore() = default;

fs::path RunStore::defaultFile() { return dataDir() / "runs.sqlite"; }

Result<std::unique_ptr<RunStore>> RunStore::open(const fs::path &file, bool readOnly)
{
    auto d = std::make_unique<Private>();
    d->file = fs::absolute(file);
    d->readOnly = readOnly;
    if (readOnly) {
        std::error_code error;
        if (!fs::exists(d->file, error))
            return Error::make(Code::NotFound, "there is no run store yet", d->file.string());
    } else {
        RY_TRY(makePrivateDir(d->file.parent_path()));
    }
    RY_TRY(d->database.open(d->file, readOnly));
    RY_TRY(d->setUp());
    return std::unique_ptr<RunStore>(new RunStore(std::move(d)));
}

/// Checks whose file it is, and makes the tables in a new one.
Status RunStore::Private::setUp()
{
    if (!readOnly) {
        // Going over to WAL needs the file for a moment, and does not wait for it as other statements do.
        const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
        for (;;) {
            const auto status = database.execute("PRAGMA journal_mode=WAL");
            if (status)
                break;
            if (status.error().code != Code::InUse || std::chrono::steady_clock::now() > deadline)
                return status;
            std::this_thread::sleep_for(std::chrono::milliseconds(5));
        }
        RY_TRY(database.execute("PRAGMA synchronous=NORMAL; PRAGMA journal_size_limit=67108864"));
    }
    RY_TRY(database.execute("PRAGMA cache_size=-16000; PRAGMA temp_store=MEMORY"));
    RY_ASSIGN(std::int64_t version, database.pragma("user_version"));
    RY_ASSIGN(const std::int64_t application, database.pragma("application_id"));
    RY_ASSIGN(const std::int64_t tables, database.pragma("schema_version"));
    if (application != applicationId && (tables != 0 || readOnly)) {
        // Another process may have made the tables between the two looks.
        RY_ASSIGN(const std::int64_t again, database.pragma("application_id"));
        if (again != applicationId && tables == 0) // another process is about to make them
            return Error::make(Code::NotFound, "there is no run store yet", file.string());
        if (again != applicationId)
            return Error::make(Code::BadData, "this is no run store", file.string())
                .withHint("Choose another file; this one is left as it is");
        RY_ASSIGN(version, database.pragma("user_version"));
    }
    if (version > schemaVersion && !readOnly)
        return Error::make(Code::Newer, "the run store was written by a newer version", file.string())
            .withFound("schema " + std::to_string(version))
            .withExpected("at most " + std::to_string(schemaVersion))
            .withHint("Update Rankyard, or open it for reading only");
    if (version != 0 || readOnly)
        return {};
    RY_ASSIGN(Transaction transaction, Transaction::begin(database));
    RY_ASSIGN(version, database.pragma("user_version"));
    if (version == 0) {
        RY_TRY(database.execute(schema));
        RY_TRY(database.execute("PRAGMA application_id=" + std::to_string(applicationId)));
        RY_TRY(database.execute("PRAGMA user_version=" + std::to_string(schemaVersion)));
    }
    return transaction.commit();
}

Result<std::int64_t> RunStore::Private::keyOf(const std::string &id)
{
    RY_ASSIGN(Statement find, database.prepare("SELECT key FROM runs WHERE id=?1"));
    find.bind(1, std::string_view(id));
    RY_ASSIGN(const bool found, find.step());
    if (!found)
        return Error::make(Code::NotFound, "there is no such run", id);
    return find.integer(0);
}

Result<std::vector<std::int32_t>> RunStore::Private::ranksOf(std::int64_t key)
{
    RY_ASSIGN(Statement find,
              database.prepare("SELECT DISTINCT rank FROM streams WHERE run=?1 AND rank>=0 ORDER BY rank"));
    find.bind(1, key);
    std::vector<std::int32_t> ranks;
    for (;;) {
        RY_ASSIGN(const bool row, find.step());
        if (!row)
            return ranks;
        ranks.push_back(static_cast<std::int32_t>(find.integer(0)));
    }
}

Status RunStore::putRun(const RunInfo &run)
{
    RY_ASSIGN(
        Statement put,
        d->database.prepare(
            "INSERT INTO runs(id, name, state, node, run_dir, job, started, ended, last_seen, step, steps, world, last_loss,"
            " best_valid, best_train, tokens_per_s, tags, error, epoch)"
            " VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13,NULL,?14,?15,?16,?17,?18)"
            " ON CONFLICT(id) DO UPDATE SET name=excluded.name, node=excluded.node, run_dir=excluded.run_dir, job=excluded.job,"
            " steps=excluded.steps, world=excluded.world, state=iif(excluded.state='draft', state, excluded.state),"
            " ended=iif(excluded.state='draft', ended, excluded.ended), tags=iif(excluded.tags='', tags, excluded.tags),"
            " started=iif(started=0, excluded.started, started)"));
    const auto text = [](const std::string &value) { return std::string_view(value); };
    put.bind(1, text(run.id)).bind(2, text(run.name)).bind(3, std::string_view(telemetry::nameOf(run.state)));
    put.bind(4, text(run.node))
        .bind(5, text(run.runDir))
        .bind(6, text(run.job))
        .bind(7, run.startedNs)
        .bind(8, run.endedNs);
    put.bind(9, run.lastSeenNs).bind(10, run.step).bind(11, run.steps).bind(12, std::int64_t{run.world});
    put.bind(13, run.lastLoss).bind(14, run.bestLoss).bind(15, run.tokensPerS).bind(16, text(run.tags));
    if (run.error)
        put.bind(17, text(dumpJson(Json(*run.error))));
    put.bind(18, std::int64_t{run.epoch});
    return put.run();
}

Result<std::vector<RunInfo>> RunStore::runs()
{
    static const std::string sql = std::string(runColumns) + " ORDER BY started DESC, key DESC";
    RY_ASSIGN(Statement all, d->database.prepare(sql.c_str()));
    std::vector<RunInfo> runs;
    for (;;) {
        RY_ASSIGN(const bool row, all.step());
        if (!row)
            return runs;
        runs.push_back(runFrom(all));
    }
}

Result<RunInfo> RunStore::run(const std::string &idOrPrefix)
{
    static const std::string last = std::string(runColumns) + " ORDER BY started DESC, key DESC LIMIT 1";
    static const std::string byPrefix =
        std::string(runColumns) + " WHERE substr(id, 1, length(?1))=?1 ORDER BY id=?1 DESC LIMIT 2";
    const bool newest = idOrPrefix == "last";
    RY_ASSIGN(Statement find, d->database.prepare(newest ? last.c_str() : byPrefix.c_str()));
    if (!newest)
        find.bind(1, std::string_view(idOrPrefix));
    RY_ASSIGN(const bool found, find.step());
    if (!found || idOrPrefix.empty())
        return Error::make(Code::NotFound, newest ? "there are no runs yet" : "there is no such run",
                           idOrPrefix)
            .withHint("rankyardctl runs list shows all of them");
    RunInfo run = runFrom(find);
    if (newest || run.id == idOrPrefix)
        return run;
    RY_ASSIGN(const bool second, find.step());
    if (second)
        return Error::make(Code::Usage, "more than one run begins so", idOrPrefix)
            .withFound(run.id + " and " + find.text(0));
    return run;
}

Status RunStore::removeRun(const std::string &id)
{
    {
        RY_ASSIGN(Transaction transaction, Transaction::begin(d->database));
        RY_ASSIGN(const std::int64_t key, d->keyOf(id));
        for (const char *table : runTables)
            RY_TRY(d->database.execute(std::string("DELETE FROM ") + table
                                       + " WHERE run=" + std::to_string(key)));
        RY_TRY(d->database.execute("DELETE FROM runs WHERE key=" + std::to_string(key)));
        RY_TRY(transaction.commit());
    }
    std::error_code ignored;
    if (isRunId(id) || (id.find('/') == std::string::npos && !id.starts_with(".")))
        fs::remove_all(d->runFolder(id), ignored);
    return {};
}

Status writeState(Database &database, std::int64_t key, RunState state, const std::optional<Error> &error,
                  std::int64_t wallNs)
{
    RY_ASSIGN(Statement set, database.prepare("UPDATE runs SET state=?2, ended=?3, error=?4 WHERE key=?1"));
    set.bind(1, key).bind(2, std::string_view(telemetry::nameOf(state)));
    set.bind(3, telemetry::isTerminal(state) ? wallNs : std::int64_t{0});
    if (error)
        set.bind(4, std::string_view(dumpJson(Json(*error))));
    return set.run();
}

Status RunStore::setState(const std::string &id, RunState state, const std::optional<Error> &error)
{
    RY_ASSIGN(Transaction transaction, Transaction::begin(d->database));
    RY_ASSIGN(const std::int64_t key, d->keyOf(id));
    RY_TRY(writeState(d->database, key, state, error, wallNs()));
    return transaction.commit();
}

Status RunStore::setTags(const std::string &id, const std::string &tags)
{
    RY_ASSIGN(Transaction transaction, Transaction::begin(d->database));
    RY_ASSIGN(const std::int64_t key, d->keyOf(id));
    {
        RY_ASSIGN(Statement set, d->database.prepare("UPDATE runs SET tags=?2 WHERE key=?1"));
        set.bind(1, key).bind(2, std::string_view(tags));
        RY_TRY(set.run());
    }
    return transaction.commit();
}

std::int64_t RunStore::dataVersion()
{
    const auto others = d->database.pragma("data_version");
    return (others ? *others : 0) + d->database.changes();
}

} // namespace rankyard::store
