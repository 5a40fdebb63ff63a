// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/base/result.h"
#include "engine/store/run_store.h"

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

/// The downsampling pyramid: buckets of 8, 64, 512, … steps with minimum, maximum, last value and the count of what was not finite, for every
/// metric of metricNames(). A bucket of level k covers steps [b·8^k, (b+1)·8^k).
namespace rankyard::store {

constexpr int pyramidLevels = 7;
constexpr int pyramidShift = 3; ///< 8 = 2³ children
constexpr std::int64_t bucketSize(int level) { return std::int64_t{1} << (pyramidShift * level); }
inline std::int64_t bucketOf(std::int64_t step, int level) { return step >> (pyramidShift * level); }

/// One bucket over all metrics.
class Bucket
{
public:
    bool empty() const { return m_first > m_last; }
    /// Steps come in ascending order, so that `last` is the newest.
    void add(std::int64_t step, const std::vector<double> &values);
    /// What came after this bucket.
    void add(const Bucket &later);

    std::string pack() const;
    /// False when the bytes are no bucket. Metrics that the writer did not know stay empty.
    bool unpack(std::string_view bytes);
    /// One metric of a packed bucket, without unpacking the rest.
    static bool peek(std::string_view bytes, std::size_t metric, SeriesPoint &point);

private:
    struct Cell {
        double min = std::numeric_limits<double>::infinity();
        double max = -std::numeric_limits<double>::infinity();
        double last = std::numeric_limits<double>::quiet_NaN();
        std::int64_t nonFinite = 0;
    };

    std::int64_t m_first = std::numeric_limits<std::int64_t>::max();
    std::int64_t m_last = std::numeric_limits<std::int64_t>::min();
    std::vector<Cell> m_cells;
};

/// Of series points: empty is stepBegin > stepEnd; a point without finite samples has NaN in min, max and last.
SeriesPoint emptyPoint();
void addSample(SeriesPoint &point, std::int64_t step, double value);
void addPoint(SeriesPoint &point, const SeriesPoint &later);
/// Over ranks: the same steps seen by another rank.
void addRank(SeriesPoint &point, const SeriesPoint &other);

} // namespace rankyard::store
