// SPDX-License-Identifier: GPL-3.0-or-later
// Records into the store: one batch of one run is one transaction.
#include "engine/base/json.h"
#include "engine/store/pyramid.h"
#include "engine/store/run_store_private.h"
#include "engine/store/span_files.h"
#include "engine/telemetry/wire.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

namespace rankyard::store {

using telemetry::EvalRecord;
using telemetry::EventRecord;
using telemetry::HelloRecord;
using telemetry::LogRecord;
using telemetry::Record;
using telemetry::SpanRecord;
using telemetry::StepRecord;

namespace {

/// What a batch does to the store; lives as long as its transaction.
class Ingest
{
public:
    Ingest(Database &database, std::int64_t key, std::filesystem::path folder)
        : m_database(database),
          m_key(key),
          m_folder(std::move(folder))
    {}

    Status load();
    Status add(const Record &record);
    Status finish();
    /// After the commit: files that nothing points at any more.
    void removeFiles() const;

private:
    struct StreamKey {
        std::uint32_t epoch;
        std::int32_t rank;
        auto operator<=>(const StreamKey &) const = default;
    };
    struct BucketKey {
        std::int32_t rank;
        int level;
        std::int64_t bucket;
        auto operator<=>(const BucketKey &) const = default;
    };

    /// Of the row in `runs`.
    struct Summary {
        std::uint32_t epoch = 0;
        std::int64_t step = 0;
        std::int64_t lastSeen = 0;
        double lastLoss = 0;
        double bestValid = 0;
        double bestTrain = 0;
        double tokensPerS = 0;
    };

    Result<bool> isNew(const Record &record);
    Status put(const Record &record, const StepRecord &step);
    Status put(const Record &record, const EvalRecord &eval);
    Status put(const Record &record, const LogRecord &log);
    Status put(const Record &record, const EventRecord &event);
    Status put(const Record &record, const SpanRecord &spans);
    Status put(const Record &record, const HelloRecord &hello);

    Status meetEpoch(std::uint32_t epoch, std::int64_t step);
    Status supersede(std::uint32_t epoch, std::int64_t from);
    Status cutPyramid(std::int32_t rank, std::int64_t from);
    Result<bool> isSuperseded(std::uint32_t epoch, std::int64_t step) const;
    Result<Bucket *> bucket(const BucketKey &key);
    Status writeBuckets();
    Status trimSteps();
    Status trimLogs();
    Status trimSpans();
    Status writeSpanFiles();

    Database &m_database;
    std::int64_t m_key;
    std::filesystem::path m_folder;
    Summary m_run;
    std::int64_t m_stepBefore = 0; ///< m_run.step at the start of the batch
    std::map<StreamKey, std::uint64_t> m_streams;
    std::set<StreamKey> m_moved;
    std::map<std::uint32_t, std::int64_t> m_epochs; ///< first step of each
    std::map<BucketKey, Bucket> m_buckets;
    std::map<std::int32_t, std::int64_t> m_newestStep;
    std::set<std::int64_t> m_keepSpansOf; ///< steps with something unusual
    std::vector<std::pair<const Record *, const SpanRecord *>> m_spans;
    std::vector<std::filesystem::path> m_dead;
    std::int64_t m_firstLog = 0;
    std::int64_t m_lastLog = 0;
    std::vector<double> m_values;
};

double lower(double a, double b) { return std::fmin(a, b); }

Status Ingest::load()
{
    {
        RY_ASSIGN(
            Statement find,
            m_database.prepare(
                "SELECT epoch, step, last_seen, last_loss, best_valid, best_train, tokens_per_s FROM runs WHERE key=?1"));
        find.bind(1, m_key);
        RY_ASSIGN(const bool found, find.step());
        if (found) {
            m_run.epoch = static_cast<std::uint32_t>(find.integer(0));
            m_run.step = m_stepBefore = find.integer(1);
            m_run.lastSeen = find.integer(2);
            m_run.lastLoss = find.real(3);
            m_run.bestValid = find.real(4);
            m_run.bestTrain = find.real(5);
            m_run.tokensPerS = find.isNull(6) ? 0 : find.real(6);
        }
    }
    {
        RY_ASSIGN(Statement find, m_database.prepare("SELECT epoch, first_step FROM epochs WHERE run=?1"));
        find.bind(1, m_key);
        for (;;) {
            RY_ASSIGN(const bool row, find.step());
            if (!row)
                break;
            m_epochs[static_cast<std::uint32_t>(find.integer(0))] = find.integer(1);
        }
    }
    RY_ASSIGN(Statement find, m_database.prepare("SELECT epoch, rank, sequence FROM streams WHERE run=?1"));
    find.bind(1, m_key);
    for (;;) {
        RY_ASSIGN(const bool row, find.step());
        if (!row)
            return {};
        m_streams[{static_cast<std::uint32_t>(find.integer(0)), static_cast<std::int32_t>(find.integer(1))}] =
            static_cast<std::uint64_t>(find.integer(2));
    }
}

/// Whether the record continues its stream: false for what is there already, an error for a hole.
Result<bool> Ingest::isNew(const Record &record)
{
    std::uint64_t &position = m_streams[{record.epoch, record.rank}];
    if (record.sequence <= position && record.sequence > 0)
        return false;
    if (record.sequence != position + 1) {
        const auto *event = std::get_if<EventRecord>(&record.payload);
        const bool declared = event && event->kind == "gap" && record.sequence > 0
            && event->detail.is_object() && event->detail.contains("from")
            && event->detail["from"].is_number_unsigned()
            && event->detail["from"].get<std::uint64_t>() <= position + 1;
        if (!declared)
            return Error::make(Code::BadData, "records are missing", "rank " + std::to_string(record.rank))
                .withFound("sequence " + std::to_string(record.sequence))
                .withExpected(std::to_string(position + 1));
    }
    position = record.sequence;
    m_moved.insert({record.epoch, record.rank});
    return true;
}

Status Ingest::add(const Record &record)
{
    RY_ASSIGN(const bool fresh, isNew(record));
    if (!fresh)
        return {};
    return std::visit([&](const auto &payload) { return put(record, payload); }, record.payload);
}

Result<bool> Ingest::isSuperseded(std::uint32_t epoch, std::int64_t step) const
{
    for (auto later = m_epochs.upper_bound(epoch); later != m_epochs.end(); ++later) {
        if (step >= later->second)
            return true;
    }
    return false;
}

/// The first step of an epoch supersedes what older epochs ran at and after it.
Status Ingest::meetEpoch(std::uint32_t epoch, std::int64_t step)
{
    const auto known = m_epochs.find(epoch);
    if (known != m_epochs.end() && known->second <= step)
        return {};
    m_epochs[epoch] = step;
    RY_ASSIGN(Statement set,
              m_database.prepare("INSERT OR REPLACE INTO epochs(run, epoch, first_step) VALUES(?1,?2,?3)"));
    set.bind(1, m_key).bind(2, std::int64_t{epoch}).bind(3, step);
    RY_TRY(set.run());
    return m_epochs.begin()->first < epoch ? supersede(epoch, step) : Status();
}

Status Ingest::supersede(std::uint32_t epoch, std::int64_t from)
{
    RY_TRY(writeBuckets());
    std::set<std::int32_t> ranks;
    for (const auto &[stream, sequence] : m_streams)
        ranks.insert(stream.rank);
    for (const std::int32_t rank : ranks) {
        {
            RY_ASSIGN(
                Statement copy,
                m_database.prepare(
                    "INSERT OR REPLACE INTO superseded(run, rank, epoch, step, metrics) SELECT run, rank, epoch, step, metrics"
                    " FROM steps WHERE run=?1 AND rank=?2 AND step>=?3 AND epoch<?4"));
            copy.bind(1, m_key).bind(2, std::int64_t{rank}).bind(3, from).bind(4, std::int64_t{epoch});
            RY_TRY(copy.run());
            if (m_database.changedNow() == 0)
                continue;
        }
        RY_ASSIGN(Statement drop,
                  m_database.prepare("DELETE FROM steps WHERE run=?1 AND rank=?2 AND step>=?3 AND epoch<?4"));
        drop.bind(1, m_key).bind(2, std::int64_t{rank}).bind(3, from).bind(4, std::int64_t{epoch});
        RY_TRY(drop.run());
        RY_TRY(cutPyramid(rank, from));
    }
    RY_ASSIGN(Statement drop, m_database.prepare("DELETE FROM evals WHERE run=?1 AND step>=?2 AND epoch<?3"));
    drop.bind(1, m_key).bind(2, from).bind(3, std::int64_t{epoch});
    return drop.run();
}

/// Takes steps ≥ `from` out of the buckets: those wholly after go, those that `from` cuts are made again from the level below.
Status Ingest::cutPyramid(std::int32_t rank, std::int64_t from)
{
    for (int level = 1; level <= pyramidLevels; ++level) {
        const std::int64_t cut = bucketOf(from, level);
        const std::int64_t begin = cut * bucketSize(level);
        Bucket rebuilt;
        if (level == 1) {
            RY_ASSIGN(
                Statement find,
                m_database.prepare(
                    "SELECT metrics FROM steps WHERE run=?1 AND rank=?2 AND step>=?3 AND step<?4 ORDER BY step"));
            find.bind(1, m_key).bind(2, std::int64_t{rank}).bind(3, begin).bind(4, from);
            for (;;) {
                RY_ASSIGN(const bool row, find.step());
                if (!row)
                    break;
                RY_ASSIGN(const StepRecord step, telemetry::wire::unpackStep(find.blob(0)));
                telemetry::metrics(step, m_values);
                rebuilt.add(step.step, m_values);
            }
        } else {
            RY_ASSIGN(
                Statement find,
                m_database.prepare(
                    "SELECT data FROM pyramid WHERE run=?1 AND rank=?2 AND level=?3 AND bucket>=?4 AND bucket<?5 ORDER BY bucket"));
            const std::int64_t child = begin >> (pyramidShift * (level - 1));
            find.bind(1, m_key)
                .bind(2, std::int64_t{rank})
                .bind(3, std::int64_t{level - 1})
                .bind(4, child)
                .bind(5, child + 8);
            for (;;) {
                RY_ASSIGN(const bool row, find.step());
                if (!row)
                    break;
                Bucket part;
                if (part.unpack(find.blob(0)))
                    rebuilt.add(part);
            }
        }
        RY_ASSIGN(
            Statement drop,
            m_database.prepare("DELETE FROM pyramid WHERE run=?1 AND rank=?2 AND level=?3 AND bucket>=?4"));
        drop.bind(1, m_key).bind(2, std::int64_t{rank}).bind(3, std::int64_t{level}).bind(4, cut);
        RY_TRY(drop.run());
        if (rebuilt.empty())
            continue;
        m_buckets[{rank, level, cut}] = std::move(rebuilt);
        RY_TRY(writeBuckets());
    }
    return {};
}

Result<Bucket *> Ingest::bucket(const BucketKey &key)
{
    const auto [at, inserted] = m_buckets.try_emplace(key);
    if (inserted) {
        RY_ASSIGN(Statement find,
                  m_database.prepare(
                      "SELECT data FROM pyramid WHERE run=?1 AND rank=?2 AND level=?3 AND bucket=?4"));
        find.bind(1, m_key)
            .bind(2, std::int64_t{key.rank})
            .bind(3, std::int64_t{key.level})
            .bind(4, key.bucket);
        RY_ASSIGN(const bool row, find.step());
        if (row && !at->second.unpack(find.blob(0)))
            at->second = {};
    }
    return &at->second;
}

Status Ingest::writeBuckets()
{
    for (const auto &[key, bucket] : m_buckets) {
        RY_ASSIGN(
            Statement set,
            m_database.prepare(
                "INSERT OR REPLACE INTO pyramid(run, rank, level, bucket, data) VALUES(?1,?2,?3,?4,?5)"));
        const std::string bytes = bucket.pack();
        set.bind(1, m_key)
            .bind(2, std::int64_t{key.rank})
            .bind(3, std::int64_t{key.level})
            .bind(4, key.bucket);
        set.bindBlob(5, bytes);
        RY_TRY(set.run());
    }
    m_buckets.clear();
    return {};
}

Status Ingest::put(const Record &record, const StepRecord &step)
{
    if (step.step < 0 || record.rank < 0)
        return Error::make(Code::BadData, "a step's record is malformed",
                           "rank " + std::to_string(record.rank));
    const std::string packed = telemetry::wire::packStep(step);
    RY_TRY(meetEpoch(record.epoch, step.step));
    RY_ASSIGN(const bool late, isSuperseded(record.epoch, step.step));
    if (late) {
        RY_ASSIGN(
            Statement set,
            m_database.prepare(
                "INSERT OR REPLACE INTO superseded(run, rank, epoch, step, metrics) VALUES(?1,?2,?3,?4,?5)"));
        set.bind(1, m_key)
            .bind(2, std::int64_t{record.rank})
            .bind(3, std::int64_t{record.epoch})
            .bind(4, step.step);
        set.bindBlob(5, packed);
        return set.run();
    }
    {
        RY_ASSIGN(
            Statement set,
            m_database.prepare(
                "INSERT OR REPLACE INTO steps(run, rank, step, epoch, metrics) VALUES(?1,?2,?3,?4,?5)"));
        set.bind(1, m_key)
            .bind(2, std::int64_t{record.rank})
            .bind(3, step.step)
            .bind(4, std::int64_t{record.epoch});
        set.bindBlob(5, packed);
        RY_TRY(set.run());
    }
    telemetry::metrics(step, m_values);
    // Every level takes the step itself: minima, maxima and counts do not care, and no level is read back to build the next.
    for (int level = 1; level <= pyramidLevels; ++level) {
        RY_ASSIGN(Bucket * into, bucket({record.rank, level, bucketOf(step.step, level)}));
        into->add(step.step, m_values);
    }
    std::int64_t &newest = m_newestStep[record.rank];
    newest = std::max(newest, step.step);
    if (step.overflow || !std::isfinite(step.loss))
        m_keepSpansOf.insert(step.step);
    m_run.lastSeen = std::max(m_run.lastSeen, step.wallNs);
    if (record.rank != 0 || record.epoch < m_run.epoch)
        return {};
    m_run.epoch = record.epoch;
    m_run.step = step.step;
    m_run.lastLoss = step.loss;
    m_run.tokensPerS = step.tokensPerS;
    if (std::isfinite(step.loss))
        m_run.bestTrain = lower(m_run.bestTrain, step.loss);
    return {};
}

Status Ingest::put(const Record &record, const EvalRecord &eval)
{
    m_run.lastSeen = std::max(m_run.lastSeen, eval.wallNs);
    RY_ASSIGN(const bool late, isSuperseded(record.epoch, eval.step));
    if (late)
        return {};
    if (std::isfinite(eval.loss))
        m_run.bestValid = lower(m_run.bestValid, eval.loss);
    RY_ASSIGN(
        Statement set,
        m_database.prepare(
            "INSERT OR REPLACE INTO evals(run, step, epoch, loss, tokens, wall) VALUES(?1,?2,?3,?4,?5,?6)"));
    set.bind(1, m_key).bind(2, eval.step).bind(3, std::int64_t{record.epoch}).bind(4, eval.loss);
    set.bind(5, eval.tokens).bind(6, eval.wallNs);
    return set.run();
}

Status Ingest::put(const Record &record, const LogRecord &log)
{
    m_run.lastSeen = std::max(m_run.lastSeen, log.wallNs);
    RY_ASSIGN(
        Statement set,
        m_database.prepare("INSERT INTO logs(run, rank, wall, level, step, text) VALUES(?1,?2,?3,?4,?5,?6)"));
    set.bind(1, m_key).bind(2, std::int64_t{record.rank}).bind(3, log.wallNs);
    set.bind(4, static_cast<std::int64_t>(log.level)).bind(5, log.step).bind(6, std::string_view(log.text));
    RY_TRY(set.run());
    m_lastLog = m_database.lastRowId();
    if (m_firstLog == 0)
        m_firstLog = m_lastLog;
    return {};
}

Status Ingest::put(const Record &record, const EventRecord &event)
{
    m_run.lastSeen = std::max(m_run.lastSeen, event.wallNs);
    {
        RY_ASSIGN(
            Statement set,
            m_database.prepare(
                "INSERT INTO events(run, rank, epoch, wall, step, kind, detail) VALUES(?1,?2,?3,?4,?5,?6,?7)"));
        set.bind(1, m_key)
            .bind(2, std::int64_t{record.rank})
            .bind(3, std::int64_t{record.epoch})
            .bind(4, event.wallNs);
        set.bind(5, event.step)
            .bind(6, std::string_view(event.kind))
            .bind(7, std::string_view(dumpJson(event.detail)));
        RY_TRY(set.run());
    }
    if (event.kind != "state" || !event.detail.is_object() || record.epoch < m_run.epoch)
        return {};
    m_run.epoch = record.epoch;
    const auto to = event.detail.find("to");
    telemetry::RunState state{};
    if (to == event.detail.end() || !to->is_string()
        || !telemetry::runStateFromName(to->get<std::string>(), state))
        return {};
    std::optional<Error> error;
    if (const auto at = event.detail.find("error"); at != event.detail.end() && at->is_object())
        error = at->get<Error>();
    return writeState(m_database, m_key, state, error, event.wallNs);
}

Status Ingest::put(const Record &record, const HelloRecord &hello)
{
    m_run.epoch = std::max(m_run.epoch, record.epoch);
    RY_ASSIGN(
        Statement set,
        m_database.prepare("INSERT OR REPLACE INTO hellos(run, epoch, rank, detail) VALUES(?1,?2,?3,?4)"));
    set.bind(1, m_key).bind(2, std::int64_t{record.epoch}).bind(3, std::int64_t{record.rank});
    set.bind(4, std::string_view(dumpJson(hello.detail)));
    return set.run();
}

Status Ingest::put(const Record &record, const SpanRecord &spans)
{
    m_spans.emplace_back(&record, &spans);
    std::int64_t &newest = m_newestStep[record.rank];
    newest = std::max(newest, spans.step);
    return {};
}

/// Only spans that would still be there after trimSpans() become files: catching up with a long run writes few.
Status Ingest::writeSpanFiles()
{
    for (const auto &[record, spans] : m_spans) {
        const bool kept =
            spans->step % spanStepEvery == 0 || spans->step <= 1 || m_keepSpansOf.contains(spans->step);
        if (!kept && spans->step <= m_newestStep[record->rank] - spanStepsKept)
            continue;
        // Spans are an extra: a full disk costs them, not the metrics.
        if (!writeSpans(spanFile(m_folder, record->rank, spans->step, spans->program, record->epoch), *spans))
            continue;
        RY_ASSIGN(
            Statement set,
            m_database.prepare(
                "INSERT OR REPLACE INTO spans(run, rank, step, program, epoch, kept) VALUES(?1,?2,?3,?4,?5,?6)"));
        set.bind(1, m_key).bind(2, std::int64_t{record->rank}).bind(3, spans->step);
        set.bind(4, static_cast<std::int64_t>(spans->program))
            .bind(5, std::int64_t{record->epoch})
            .bind(6, std::int64_t{kept});
        RY_TRY(set.run());
    }
    return {};
}

Status Ingest::trimSpans()
{
    for (const std::int64_t step : m_keepSpansOf) {
        RY_ASSIGN(Statement set,
                  m_database.prepare("UPDATE spans SET kept=1 WHERE run=?1 AND rank=?2 AND step=?3"));
        for (const auto &[rank, newest] : m_newestStep) {
            set.bind(1, m_key).bind(2, std::int64_t{rank}).bind(3, step);
            RY_TRY(set.run());
        }
    }
    if (m_spans.empty())
        return {};
    for (const auto &[rank, newest] : m_newestStep) {
        RY_ASSIGN(
            Statement drop,
            m_database.prepare(
                "DELETE FROM spans WHERE run=?1 AND rank=?2 AND step<=?3 AND kept=0 RETURNING step, program, epoch"));
        drop.bind(1, m_key).bind(2, std::int64_t{rank}).bind(3, newest - spanStepsKept);
        for (;;) {
            RY_ASSIGN(const bool row, drop.step());
            if (!row)
                break;
            m_dead.push_back(spanFile(m_folder, rank, drop.integer(0),
                                      static_cast<plan::ProgramKind>(drop.integer(1)),
                                      static_cast<std::uint32_t>(drop.integer(2))));
        }
    }
    return {};
}

/// Raw rows beyond the limit go; the pyramid stays. Looked at once in 1,024 steps.
Status Ingest::trimSteps()
{
    for (const auto &[rank, newest] : m_newestStep) {
        if (newest <= rawStepsKept || newest / 1024 == m_stepBefore / 1024)
            continue;
        RY_ASSIGN(Statement drop,
                  m_database.prepare("DELETE FROM steps WHERE run=?1 AND rank=?2 AND step<?3"));
        drop.bind(1, m_key).bind(2, std::int64_t{rank}).bind(3, newest - rawStepsKept);
        RY_TRY(drop.run());
    }
    return {};
}

Status Ingest::trimLogs()
{
    constexpr std::int64_t every = 4096;
    if (m_lastLog / every == (m_firstLog - 1) / every)
        return {};
    RY_ASSIGN(
        Statement drop,
        m_database.prepare(
            "DELETE FROM logs WHERE run=?1 AND id<=(SELECT id FROM logs WHERE run=?1 ORDER BY id DESC LIMIT 1 OFFSET ?2)"));
    drop.bind(1, m_key).bind(2, logLinesKept);
    return drop.run();
}

Status Ingest::finish()
{
    RY_TRY(writeBuckets());
    RY_TRY(writeSpanFiles());
    RY_TRY(trimSpans());
    RY_TRY(trimSteps());
    if (m_lastLog != 0)
        RY_TRY(trimLogs());
    for (const StreamKey &stream : m_moved) {
        RY_ASSIGN(Statement set,
                  m_database.prepare(
                      "INSERT OR REPLACE INTO streams(run, epoch, rank, sequence) VALUES(?1,?2,?3,?4)"));
        set.bind(1, m_key).bind(2, std::int64_t{stream.epoch}).bind(3, std::int64_t{stream.rank});
        set.bind(4, static_cast<std::int64_t>(m_streams[stream]));
        RY_TRY(set.run());
    }
    RY_ASSIGN(
        Statement set,
        m_database.prepare(
            "UPDATE runs SET epoch=?2, step=?3, last_seen=?4, last_loss=?5, best_valid=?6, best_train=?7, tokens_per_s=?8 WHERE key=?1"));
    set.bind(1, m_key).bind(2, std::int64_t{m_run.epoch}).bind(3, m_run.step).bind(4, m_run.lastSeen);
    set.bind(5, m_run.lastLoss).bind(6, m_run.bestValid).bind(7, m_run.bestTrain).bind(8, m_run.tokensPerS);
    return set.run();
}

void Ingest::removeFiles() const
{
    for (const auto &file : m_dead) {
        std::error_code ignored;
        std::filesystem::remove(file, ignored);
    }
}

} // namespace

Status RunStore::ingest(const std::string &id, const std::vector<Record> &records)
{
    if (records.empty())
        return {};
    RY_ASSIGN(Transaction transaction, Transaction::begin(d->database));
    RY_ASSIGN(const std::int64_t key, d->keyOf(id));
    Ingest ingest(d->database, key, d->runFolder(id));
    RY_TRY(ingest.load());
    for (const Record &record : records)
        RY_TRY(ingest.add(record));
    RY_TRY(ingest.finish());
    RY_TRY(transaction.commit());
    ingest.removeFiles();
    return {};
}

} // namespace rankyard::store
