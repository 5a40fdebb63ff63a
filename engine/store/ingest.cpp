// SPDX-License-Identifier: GPL-3.0-or-later
// Records into the store: one batch of one run is one transaction.
#include "engine/store/ingest.h"

#include "engine/base/json.h"
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

double lower(double a, double b) { return std::fmin(a, b); }

} // namespace

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
