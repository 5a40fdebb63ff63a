// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/store/pyramid.h"
#include "engine/store/sqlite.h"
#include "engine/telemetry/record.h"

#include <cstdint>
#include <filesystem>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace rankyard::store {

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
    Status add(const telemetry::Record &record);
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

    Result<bool> isNew(const telemetry::Record &record);
    Status put(const telemetry::Record &record, const telemetry::StepRecord &step);
    Status put(const telemetry::Record &record, const telemetry::EvalRecord &eval);
    Status put(const telemetry::Record &record, const telemetry::LogRecord &log);
    Status put(const telemetry::Record &record, const telemetry::EventRecord &event);
    Status put(const telemetry::Record &record, const telemetry::SpanRecord &spans);
    Status put(const telemetry::Record &record, const telemetry::HelloRecord &hello);

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
    std::vector<std::pair<const telemetry::Record *, const telemetry::SpanRecord *>> m_spans;
    std::vector<std::filesystem::path> m_dead;
    std::int64_t m_firstLog = 0;
    std::int64_t m_lastLog = 0;
    std::vector<double> m_values;
};

} // namespace rankyard::store
