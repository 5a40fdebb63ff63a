// SPDX-License-Identifier: GPL-3.0-or-later
#include "ui/plot/series_model.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace rankyard::ui {

namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();
/// QCustomPlot's ranges are valid below this; larger values are drawn as gaps with a marker, like infinities.
constexpr double largest = 1e250;

bool drawable(double value) { return std::isfinite(value) && std::fabs(value) <= largest; }

void take(MinMaxPyramid::Extremes &into, double value, std::size_t at)
{
    if (!drawable(value))
        return;
    if (!into.any || value < into.min) {
        into.min = value;
        into.minAt = at;
    }
    if (!into.any || value > into.max) {
        into.max = value;
        into.maxAt = at;
    }
    into.any = true;
}

void take(MinMaxPyramid::Extremes &into, const MinMaxPyramid::Extremes &other)
{
    if (!other.any)
        return;
    take(into, other.min, other.minAt);
    take(into, other.max, other.maxAt);
}

} // namespace

void MinMaxPyramid::append(double value)
{
    const std::size_t at = m_size++;
    std::size_t span = fanout;
    for (std::size_t level = 0;; ++level, span *= fanout) {
        if (level == m_levels.size()) {
            // A level is worth having once the one below has more than one node.
            if (level > 0 && m_levels[level - 1].size() <= 1)
                return;
            m_levels.emplace_back();
            if (level > 0) {
                for (std::size_t i = 0; i + 1 < m_levels[level - 1].size(); ++i) {
                    if (i / fanout == m_levels[level].size())
                        m_levels[level].emplace_back();
                    take(m_levels[level].back(), m_levels[level - 1][i]);
                }
            }
        }
        auto &nodes = m_levels[level];
        if (at / span == nodes.size())
            nodes.emplace_back();
        take(nodes.back(), value, at);
    }
}

MinMaxPyramid::Extremes MinMaxPyramid::query(std::span<const double> values, std::size_t first,
                                             std::size_t last) const
{
    Extremes out;
    while (first < last) {
        // The widest node that begins here and fits.
        std::size_t span = 1;
        std::size_t level = 0;
        while (level < m_levels.size() && first % (span * fanout) == 0 && first + span * fanout <= last) {
            span *= fanout;
            ++level;
        }
        if (level == 0)
            take(out, values[first], first);
        else
            take(out, m_levels[level - 1][first / span]);
        first += span;
    }
    return out;
}

double ColumnMap::edge(int column) const
{
    const double t = static_cast<double>(column) / columns;
    return log ? lo * std::pow(hi / lo, t) : lo + (hi - lo) * t;
}

void SeriesModel::clear()
{
    m_x.clear();
    m_y.clear();
    m_smooth.clear();
    m_nonFinite.clear();
    m_rawPyramid.clear();
    m_smoothPyramid.clear();
    m_moment = 0;
    m_debias = 0;
}

void SeriesModel::reserve(std::size_t count)
{
    m_x.reserve(count);
    m_y.reserve(count);
    m_smooth.reserve(count);
}

bool SeriesModel::append(double x, double y)
{
    if (!std::isfinite(x) || (!m_x.empty() && x <= m_x.back()))
        return false;
    if (!std::isfinite(y))
        m_nonFinite.push_back(m_x.size());
    m_x.push_back(x);
    m_y.push_back(y);
    m_rawPyramid.append(y);
    smoothOne(y);
    return true;
}

void SeriesModel::smoothOne(double value)
{
    double smoothed = nan;
    if (drawable(value)) {
        m_moment = m_weight * m_moment + (1 - m_weight) * value;
        m_debias = m_weight * m_debias + (1 - m_weight);
        smoothed = m_moment / m_debias;
    }
    m_smooth.push_back(smoothed);
    m_smoothPyramid.append(smoothed);
}

bool SeriesModel::setSmoothing(double weight)
{
    if (!(weight >= 0 && weight < 1))
        return false;
    if (weight == m_weight)
        return true;
    m_weight = weight;
    m_moment = 0;
    m_debias = 0;
    m_smooth.clear();
    m_smoothPyramid.clear();
    for (double value : m_y)
        smoothOne(value);
    return true;
}

void SeriesModel::decimate(const ColumnMap &map, Which which, bool positive, std::vector<Sample> &out) const
{
    out.clear();
    const auto first =
        static_cast<std::size_t>(std::lower_bound(m_x.begin(), m_x.end(), map.lo) - m_x.begin());
    const auto last =
        static_cast<std::size_t>(std::upper_bound(m_x.begin(), m_x.end(), map.hi) - m_x.begin());
    const std::vector<double> &values = this->values(which);
    const MinMaxPyramid &pyramid = which == Which::Raw ? m_rawPyramid : m_smoothPyramid;
    const auto put = [&](std::size_t at) {
        const double y = values[at];
        out.push_back({m_x[at], drawable(y) && !(positive && y <= 0) ? y : nan});
    };
    if (first > 0)
        put(first - 1);
    if (last - first <= 2 * static_cast<std::size_t>(std::max(1, map.columns))) {
        for (std::size_t at = first; at < last; ++at)
            put(at);
    } else {
        std::size_t begin = first;
        for (int column = 0; column < map.columns && begin < last; ++column) {
            const std::size_t end = column + 1 == map.columns
                ? last
                : static_cast<std::size_t>(std::lower_bound(m_x.begin() + static_cast<std::ptrdiff_t>(begin),
                                                            m_x.begin() + static_cast<std::ptrdiff_t>(last),
                                                            map.edge(column + 1))
                                           - m_x.begin());
            if (end == begin)
                continue;
            const auto extremes = pyramid.query(values, begin, end);
            if (!extremes.any) {
                put(begin);
            } else {
                put(std::min(extremes.minAt, extremes.maxAt));
                if (extremes.minAt != extremes.maxAt)
                    put(std::max(extremes.minAt, extremes.maxAt));
            }
            begin = end;
        }
    }
    if (last < m_x.size())
        put(last);
}

void SeriesModel::peaks(const ColumnMap &map, std::vector<std::size_t> &out) const
{
    out.clear();
    const auto first =
        static_cast<std::size_t>(std::lower_bound(m_x.begin(), m_x.end(), map.lo) - m_x.begin());
    const auto last =
        static_cast<std::size_t>(std::upper_bound(m_x.begin(), m_x.end(), map.hi) - m_x.begin());
    if (first > 0)
        out.push_back(first - 1);
    if (last - first <= static_cast<std::size_t>(std::max(1, map.columns))) {
        for (std::size_t at = first; at < last; ++at)
            out.push_back(at);
    } else {
        std::size_t begin = first;
        for (int column = 0; column < map.columns && begin < last; ++column) {
            const auto from = m_x.begin() + static_cast<std::ptrdiff_t>(begin);
            const auto to = m_x.begin() + static_cast<std::ptrdiff_t>(last);
            const std::size_t end = column + 1 == map.columns
                ? last
                : static_cast<std::size_t>(std::lower_bound(from, to, map.edge(column + 1)) - m_x.begin());
            if (end == begin)
                continue;
            const auto extremes = m_rawPyramid.query(m_y, begin, end);
            out.push_back(extremes.any ? extremes.maxAt : begin);
            begin = end;
        }
    }
    if (last < m_x.size())
        out.push_back(last);
}

MinMaxPyramid::Extremes SeriesModel::extremes(Which which, double lo, double hi, bool positive) const
{
    const auto first = static_cast<std::size_t>(std::lower_bound(m_x.begin(), m_x.end(), lo) - m_x.begin());
    const auto last = static_cast<std::size_t>(std::upper_bound(m_x.begin(), m_x.end(), hi) - m_x.begin());
    const std::vector<double> &values = this->values(which);
    auto found =
        (which == Which::Raw ? m_rawPyramid : m_smoothPyramid).query(values, first, std::max(first, last));
    if (positive && found.any && found.min <= 0) {
        found = {};
        for (std::size_t at = first; at < last; ++at) {
            if (values[at] > 0)
                take(found, values[at], at);
        }
    }
    return found;
}

std::size_t SeriesModel::nearest(double x) const
{
    if (m_x.empty())
        return 0;
    const auto after = std::lower_bound(m_x.begin(), m_x.end(), x);
    if (after == m_x.begin())
        return 0;
    if (after == m_x.end())
        return m_x.size() - 1;
    const auto at = static_cast<std::size_t>(after - m_x.begin());
    return m_x[at] - x < x - m_x[at - 1] ? at : at - 1;
}

std::size_t SeriesModel::atOrBefore(double x) const
{
    const auto after = std::upper_bound(m_x.begin(), m_x.end(), x);
    return after == m_x.begin() ? m_x.size() : static_cast<std::size_t>(after - m_x.begin()) - 1;
}

} // namespace rankyard::ui
