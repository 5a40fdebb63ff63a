// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/store/pyramid.h"

#include "engine/telemetry/bytes.h"

#include <algorithm>
#include <cmath>

namespace rankyard::store {

using telemetry::ByteReader;
using telemetry::put;

namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();
constexpr std::size_t headBytes = 8 + 8 + 2;
constexpr std::size_t cellBytes = 3 * 8 + 8;

} // namespace

void Bucket::add(std::int64_t step, const std::vector<double> &values)
{
    m_first = std::min(m_first, step);
    m_last = std::max(m_last, step);
    if (m_cells.size() < values.size())
        m_cells.resize(values.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
        Cell &cell = m_cells[i];
        if (!std::isfinite(values[i])) {
            ++cell.nonFinite;
            continue;
        }
        cell.min = std::min(cell.min, values[i]);
        cell.max = std::max(cell.max, values[i]);
        cell.last = values[i];
    }
}

void Bucket::add(const Bucket &later)
{
    m_first = std::min(m_first, later.m_first);
    m_last = std::max(m_last, later.m_last);
    if (m_cells.size() < later.m_cells.size())
        m_cells.resize(later.m_cells.size());
    for (std::size_t i = 0; i < later.m_cells.size(); ++i) {
        m_cells[i].min = std::min(m_cells[i].min, later.m_cells[i].min);
        m_cells[i].max = std::max(m_cells[i].max, later.m_cells[i].max);
        if (!std::isnan(later.m_cells[i].last))
            m_cells[i].last = later.m_cells[i].last;
        m_cells[i].nonFinite += later.m_cells[i].nonFinite;
    }
}

std::string Bucket::pack() const
{
    std::string out;
    out.reserve(headBytes + m_cells.size() * cellBytes);
    put(out, m_first);
    put(out, m_last);
    put(out, static_cast<std::uint16_t>(m_cells.size()));
    for (const Cell &cell : m_cells) {
        put(out, cell.min);
        put(out, cell.max);
        put(out, cell.last);
        put(out, cell.nonFinite);
    }
    return out;
}

bool Bucket::unpack(std::string_view bytes)
{
    ByteReader in(bytes);
    m_first = in.get<std::int64_t>();
    m_last = in.get<std::int64_t>();
    const std::size_t count = in.get<std::uint16_t>();
    if (!in.ok() || in.left() < count * cellBytes)
        return false;
    m_cells.assign(count, {});
    for (Cell &cell : m_cells) {
        cell.min = in.get<double>();
        cell.max = in.get<double>();
        cell.last = in.get<double>();
        cell.nonFinite = in.get<std::int64_t>();
    }
    return true;
}

bool Bucket::peek(std::string_view bytes, std::size_t metric, SeriesPoint &point)
{
    point = emptyPoint();
    ByteReader head(bytes);
    point.stepBegin = head.get<std::int64_t>();
    point.stepEnd = head.get<std::int64_t>();
    const std::size_t count = head.get<std::uint16_t>();
    if (!head.ok() || bytes.size() < headBytes + count * cellBytes)
        return false;
    if (metric >= count)
        return true;
    ByteReader cell(bytes.substr(headBytes + metric * cellBytes));
    point.min = cell.get<double>();
    point.max = cell.get<double>();
    point.last = cell.get<double>();
    point.nonFinite = cell.get<std::int64_t>();
    if (std::isnan(point.last)) {
        point.min = nan;
        point.max = nan;
    }
    return true;
}

SeriesPoint emptyPoint()
{
    SeriesPoint point;
    point.stepBegin = std::numeric_limits<std::int64_t>::max();
    point.stepEnd = std::numeric_limits<std::int64_t>::min();
    point.min = nan;
    point.max = nan;
    point.last = nan;
    return point;
}

void addSample(SeriesPoint &point, std::int64_t step, double value)
{
    SeriesPoint one = emptyPoint();
    one.stepBegin = step;
    one.stepEnd = step;
    if (std::isfinite(value))
        one.min = one.max = one.last = value;
    else
        one.nonFinite = 1;
    addPoint(point, one);
}

void addPoint(SeriesPoint &point, const SeriesPoint &later)
{
    const double last = point.last;
    addRank(point, later);
    point.last = std::isnan(later.last) ? last : later.last;
}

void addRank(SeriesPoint &point, const SeriesPoint &other)
{
    point.stepBegin = std::min(point.stepBegin, other.stepBegin);
    point.stepEnd = std::max(point.stepEnd, other.stepEnd);
    point.min = std::fmin(point.min, other.min); // fmin and fmax prefer the number to NaN
    point.max = std::fmax(point.max, other.max);
    if (std::isnan(point.last))
        point.last = other.last;
    point.nonFinite += other.nonFinite;
}

} // namespace rankyard::store
