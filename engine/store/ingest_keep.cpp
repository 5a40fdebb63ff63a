// SPDX-License-Identifier: GPL-3.0-or-later
// What of a run stays in the store and what goes: superseded steps, old raw rows, lines and spans.
#include "engine/store/ingest.h"
#include "engine/store/run_store_private.h"
#include "engine/store/span_files.h"
#include "engine/telemetry/wire.h"

#include <set>

namespace rankyard::store {

using telemetry::StepRecord;

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

} // namespace rankyard::store
