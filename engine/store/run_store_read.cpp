// SPDX-License-Identifier: GPL-3.0-or-later
// What charts and tables ask of the store.
#include "engine/base/json.h"
#include "engine/store/pyramid.h"
#include "engine/store/run_store_private.h"
#include "engine/store/span_files.h"
#include "engine/telemetry/wire.h"

#include <algorithm>

namespace rankyard::store {

using telemetry::wire::unpackStep;

namespace {

Status readSteps(Database &database, std::int64_t key, std::int32_t rank, std::int64_t first,
                 std::int64_t last, std::vector<StepRow> &rows)
{
    RY_ASSIGN(
        Statement find,
        database.prepare(
            "SELECT epoch, metrics FROM steps WHERE run=?1 AND rank=?2 AND step BETWEEN ?3 AND ?4 ORDER BY step"));
    find.bind(1, key).bind(2, std::int64_t{rank}).bind(3, first).bind(4, last);
    for (;;) {
        RY_ASSIGN(const bool row, find.step());
        if (!row)
            return {};
        RY_ASSIGN(telemetry::StepRecord record, unpackStep(find.blob(1)));
        rows.push_back({rank, static_cast<std::uint32_t>(find.integer(0)), std::move(record)});
    }
}

/// Points of one rank in [first, last], from the coarsest buckets that fit, down to single steps at both ends.
class SeriesReader
{
public:
    SeriesReader(Database &database, std::int64_t key, std::int32_t rank, const std::string &metric)
        : m_database(database),
          m_key(key),
          m_rank(rank),
          m_metric(metric)
    {
        const auto &names = telemetry::metricNames();
        m_index = static_cast<std::size_t>(std::find(names.begin(), names.end(), metric) - names.begin());
    }

    /// Whether the pyramid has the metric at all; others come from the raw rows.
    bool inPyramid() const { return m_index < telemetry::metricNames().size(); }

    Status read(int level, std::int64_t first, std::int64_t last, std::vector<SeriesPoint> &points)
    {
        if (first > last)
            return {};
        if (level == 0)
            return readRaw(first, last, points);
        const std::int64_t size = bucketSize(level);
        const std::int64_t begin = bucketOf(first + size - 1, level); // first bucket wholly inside
        const std::int64_t end = bucketOf(last + 1, level);           // one past the last
        if (begin >= end)
            return read(level - 1, first, last, points);
        RY_TRY(read(level - 1, first, begin * size - 1, points));
        RY_TRY(readBuckets(level, begin, end, points));
        return read(level - 1, end * size, last, points);
    }

    Result<std::pair<std::int64_t, std::int64_t>> extent()
    {
        RY_ASSIGN(Statement find,
                  m_database.prepare(
                      "SELECT (SELECT min(bucket) FROM pyramid WHERE run=?1 AND rank=?2 AND level=1),"
                      " (SELECT max(bucket) FROM pyramid WHERE run=?1 AND rank=?2 AND level=1)"));
        find.bind(1, m_key).bind(2, std::int64_t{m_rank});
        RY_ASSIGN(const bool row, find.step());
        if (!row || find.isNull(0))
            return std::make_pair(std::int64_t{0}, std::int64_t{-1});
        return std::make_pair(find.integer(0) * bucketSize(1), (find.integer(1) + 1) * bucketSize(1) - 1);
    }

private:
    Status readRaw(std::int64_t first, std::int64_t last, std::vector<SeriesPoint> &points)
    {
        std::vector<StepRow> rows;
        RY_TRY(readSteps(m_database, m_key, m_rank, first, last, rows));
        for (const StepRow &row : rows) {
            points.push_back(emptyPoint());
            addSample(points.back(), row.record.step, telemetry::metric(row.record, m_metric));
        }
        if (!rows.empty() || !inPyramid())
            return {};
        // Raw rows this old are gone: a bucket of 8 that overlaps is the finest that there is.
        std::vector<SeriesPoint> coarse;
        RY_TRY(readBuckets(1, bucketOf(first, 1), bucketOf(last, 1) + 1, coarse));
        for (const SeriesPoint &point : coarse) {
            if (point.stepBegin <= last && point.stepEnd >= first)
                points.push_back(point);
        }
        return {};
    }

    Status readBuckets(int level, std::int64_t begin, std::int64_t end, std::vector<SeriesPoint> &points)
    {
        RY_ASSIGN(
            Statement find,
            m_database.prepare(
                "SELECT data FROM pyramid WHERE run=?1 AND rank=?2 AND level=?3 AND bucket>=?4 AND bucket<?5 ORDER BY bucket"));
        find.bind(1, m_key)
            .bind(2, std::int64_t{m_rank})
            .bind(3, std::int64_t{level})
            .bind(4, begin)
            .bind(5, end);
        for (;;) {
            RY_ASSIGN(const bool row, find.step());
            if (!row)
                return {};
            SeriesPoint point;
            if (Bucket::peek(find.blob(0), m_index, point))
                points.push_back(point);
        }
    }

    Database &m_database;
    std::int64_t m_key;
    std::int32_t m_rank;
    const std::string &m_metric;
    std::size_t m_index;
};

/// Output buckets of `width` steps, aligned to multiples of it, so that none cuts a bucket of the pyramid.
void gather(const std::vector<SeriesPoint> &points, std::int64_t width, bool otherRank,
            std::map<std::int64_t, SeriesPoint> &out)
{
    std::map<std::int64_t, SeriesPoint> mine;
    for (const SeriesPoint &point : points)
        addPoint(mine.try_emplace(point.stepBegin / width, emptyPoint()).first->second, point);
    for (const auto &[at, point] : mine) {
        SeriesPoint &into = out.try_emplace(at, emptyPoint()).first->second;
        otherRank ? addRank(into, point) : addPoint(into, point);
    }
}

} // namespace

Result<std::vector<StepRow>> RunStore::steps(const std::string &id, std::int32_t rank, std::int64_t first,
                                             std::int64_t last)
{
    RY_ASSIGN(const std::int64_t key, d->keyOf(id));
    std::vector<std::int32_t> ranks{rank};
    if (rank < 0) {
        RY_ASSIGN(ranks, d->ranksOf(key));
    }
    std::vector<StepRow> rows;
    for (const std::int32_t one : ranks)
        RY_TRY(readSteps(d->database, key, one, first, last, rows));
    if (ranks.size() > 1)
        std::stable_sort(rows.begin(), rows.end(),
                         [](const StepRow &a, const StepRow &b) { return a.record.step < b.record.step; });
    return rows;
}

Result<std::vector<StepRow>> RunStore::superseded(const std::string &id, std::int32_t rank)
{
    RY_ASSIGN(const std::int64_t key, d->keyOf(id));
    RY_ASSIGN(
        Statement find,
        d->database.prepare(
            "SELECT rank, epoch, metrics FROM superseded WHERE run=?1 AND (?2<0 OR rank=?2) ORDER BY epoch, step, rank"));
    find.bind(1, key).bind(2, std::int64_t{rank});
    std::vector<StepRow> rows;
    for (;;) {
        RY_ASSIGN(const bool row, find.step());
        if (!row)
            return rows;
        RY_ASSIGN(telemetry::StepRecord record, unpackStep(find.blob(2)));
        rows.push_back({static_cast<std::int32_t>(find.integer(0)),
                        static_cast<std::uint32_t>(find.integer(1)), std::move(record)});
    }
}

Result<std::vector<telemetry::EvalRecord>> RunStore::evals(const std::string &id)
{
    RY_ASSIGN(const std::int64_t key, d->keyOf(id));
    RY_ASSIGN(Statement find,
              d->database.prepare("SELECT step, loss, tokens, wall FROM evals WHERE run=?1 ORDER BY step"));
    find.bind(1, key);
    std::vector<telemetry::EvalRecord> all;
    for (;;) {
        RY_ASSIGN(const bool row, find.step());
        if (!row)
            return all;
        all.push_back({find.integer(0), find.real(1), find.integer(2), find.integer(3)});
    }
}

Result<std::vector<telemetry::EventRecord>> RunStore::events(const std::string &id)
{
    RY_ASSIGN(const std::int64_t key, d->keyOf(id));
    RY_ASSIGN(Statement find,
              d->database.prepare("SELECT wall, step, kind, detail FROM events WHERE run=?1 ORDER BY id"));
    find.bind(1, key);
    std::vector<telemetry::EventRecord> all;
    for (;;) {
        RY_ASSIGN(const bool row, find.step());
        if (!row)
            return all;
        const auto detail = parseJson(find.text(3), id);
        all.push_back({find.integer(0), find.integer(1), find.text(2), detail ? *detail : Json()});
    }
}

Result<std::vector<HelloRow>> RunStore::hellos(const std::string &id)
{
    RY_ASSIGN(const std::int64_t key, d->keyOf(id));
    RY_ASSIGN(
        Statement find,
        d->database.prepare("SELECT epoch, rank, detail FROM hellos WHERE run=?1 ORDER BY epoch, rank"));
    find.bind(1, key);
    std::vector<HelloRow> all;
    for (;;) {
        RY_ASSIGN(const bool row, find.step());
        if (!row)
            return all;
        const auto detail = parseJson(find.text(2), id);
        all.push_back({static_cast<std::uint32_t>(find.integer(0)),
                       static_cast<std::int32_t>(find.integer(1)), detail ? *detail : Json()});
    }
}

Result<std::vector<LogRow>> RunStore::logs(const std::string &id, std::int64_t after, int limit)
{
    RY_ASSIGN(const std::int64_t key, d->keyOf(id));
    RY_ASSIGN(
        Statement find,
        d->database.prepare(
            "SELECT id, rank, wall, level, step, text FROM logs WHERE run=?1 AND id>?2 ORDER BY id DESC LIMIT ?3"));
    find.bind(1, key).bind(2, after).bind(3, std::int64_t{limit});
    std::vector<LogRow> rows;
    for (;;) {
        RY_ASSIGN(const bool more, find.step());
        if (!more)
            break;
        LogRow row;
        row.id = find.integer(0);
        row.rank = static_cast<std::int32_t>(find.integer(1));
        row.record = {find.integer(2), static_cast<telemetry::Level>(find.integer(3)), find.integer(4),
                      find.text(5)};
        rows.push_back(std::move(row));
    }
    std::reverse(rows.begin(), rows.end());
    return rows;
}

Result<std::vector<StreamPosition>> RunStore::positions(const std::string &id)
{
    RY_ASSIGN(const std::int64_t key, d->keyOf(id));
    RY_ASSIGN(
        Statement find,
        d->database.prepare("SELECT epoch, rank, sequence FROM streams WHERE run=?1 ORDER BY epoch, rank"));
    find.bind(1, key);
    std::vector<StreamPosition> all;
    for (;;) {
        RY_ASSIGN(const bool row, find.step());
        if (!row)
            return all;
        all.push_back({static_cast<std::uint32_t>(find.integer(0)),
                       static_cast<std::int32_t>(find.integer(1)),
                       static_cast<std::uint64_t>(find.integer(2))});
    }
}

Result<std::vector<SeriesPoint>> RunStore::series(const std::string &id, const std::string &metric,
                                                  std::int32_t rank, std::int64_t first, std::int64_t last,
                                                  int points)
{
    RY_ASSIGN(const std::int64_t key, d->keyOf(id));
    std::vector<std::int32_t> ranks{rank};
    if (rank < 0) {
        RY_ASSIGN(ranks, d->ranksOf(key));
    }
    points = std::max(points, 2);
    std::int64_t low = std::numeric_limits<std::int64_t>::max();
    std::int64_t high = std::numeric_limits<std::int64_t>::min();
    for (const std::int32_t one : ranks) {
        RY_ASSIGN(const auto extent, SeriesReader(d->database, key, one, metric).extent());
        if (extent.first <= extent.second) {
            low = std::min(low, extent.first);
            high = std::max(high, extent.second);
        }
    }
    first = std::max(first, low);
    last = std::min(last, high);
    if (first > last)
        return std::vector<SeriesPoint>();
    std::int64_t width = 1;
    int level = 0;
    // Buckets aligned to `width` over n steps are at most n/width + 1 (rounded up). A step more than the alignment needs costs nothing.
    const std::int64_t steps = last - first + 1;
    if (steps > points) {
        width = (steps + points - 2) / (points - 1);
        while (level < pyramidLevels && bucketSize(level + 1) <= width)
            ++level;
        width = (width + bucketSize(level) - 1) / bucketSize(level) * bucketSize(level);
    }
    std::map<std::int64_t, SeriesPoint> gathered;
    bool otherRank = false;
    for (const std::int32_t one : ranks) {
        SeriesReader reader(d->database, key, one, metric);
        std::vector<SeriesPoint> raw;
        RY_TRY(reader.read(reader.inPyramid() ? level : 0, first, last, raw));
        gather(raw, width, otherRank, gathered);
        otherRank = true;
    }
    std::vector<SeriesPoint> all;
    for (const auto &[at, point] : gathered)
        all.push_back(point);
    return all;
}

Result<std::vector<telemetry::SpanRecord>> RunStore::spans(const std::string &id, std::int32_t rank,
                                                           std::int64_t step)
{
    RY_ASSIGN(const std::int64_t key, d->keyOf(id));
    RY_ASSIGN(
        Statement find,
        d->database.prepare(
            "SELECT step, program, epoch FROM spans WHERE run=?1 AND rank=?2 AND (?3<0 OR step=?3) ORDER BY step DESC, program"));
    find.bind(1, key).bind(2, std::int64_t{rank}).bind(3, step);
    std::vector<telemetry::SpanRecord> all;
    for (;;) {
        RY_ASSIGN(const bool row, find.step());
        if (!row)
            return all;
        // The file may be gone, by another process's ingest or a power failure: then there are none for that step.
        auto spans = readSpans(spanFile(d->runFolder(id), rank, find.integer(0),
                                        static_cast<plan::ProgramKind>(find.integer(1)),
                                        static_cast<std::uint32_t>(find.integer(2))));
        if (spans)
            all.push_back(std::move(spans).value());
    }
}

} // namespace rankyard::store
