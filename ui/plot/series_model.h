// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace rankyard::ui {

struct Sample {
    double x = 0;
    double y = 0;
};

/// Minimum and maximum of any range of a growing array in O(log n). Non-finite values are left out.
class MinMaxPyramid
{
public:
    struct Extremes {
        bool any = false;
        double min = 0;
        double max = 0;
        std::size_t minAt = 0;
        std::size_t maxAt = 0;
    };

    void clear()
    {
        m_levels.clear();
        m_size = 0;
    }
    void append(double value);
    /// Of values[first, last), where `values` is what was appended.
    Extremes query(std::span<const double> values, std::size_t first, std::size_t last) const;

private:
    static constexpr std::size_t fanout = 16;
    std::vector<std::vector<Extremes>> m_levels; ///< [k][i] covers fanout^(k+1) values
    std::size_t m_size = 0;
};

/// Which pixel columns an x range falls into.
struct ColumnMap {
    double lo = 0;
    double hi = 1;
    bool log = false;
    int columns = 1;

    double edge(int column) const; ///< x where `column` begins
};

/// One series in full: x strictly ascending, y raw, and the debiased exponential moving average over all of it. Drawing takes
/// at most one minimum and one maximum per pixel column from it; values that are read back are the stored ones.
class SeriesModel
{
public:
    enum class Which { Raw, Smooth };

    void clear();
    /// x must be greater than the last one; otherwise the sample is ignored and false is returned.
    bool append(double x, double y);
    void reserve(std::size_t count);

    std::size_t size() const { return m_x.size(); }
    bool empty() const { return m_x.empty(); }
    const std::vector<double> &x() const { return m_x; }
    const std::vector<double> &y() const { return m_y; }
    const std::vector<double> &smooth() const { return m_smooth; }
    const std::vector<double> &values(Which which) const { return which == Which::Raw ? m_y : m_smooth; }
    /// Places of NaN and infinities.
    const std::vector<std::size_t> &nonFinite() const { return m_nonFinite; }

    /// s_n = m_n / d_n with m_n = w·m_(n−1) + (1−w)·y_n and d_n = w·d_(n−1) + (1−w): the average with its start-up bias removed
    /// (Kingma & Ba 2015, section 3). 0 ≤ w < 1; anything else is refused.
    bool setSmoothing(double weight);
    double smoothing() const { return m_weight; }

    /// What to draw of the visible range, one sample beyond each side, gaps as NaN. Never infinite. `positive`: values ≤ 0 become gaps.
    void decimate(const ColumnMap &map, Which which, bool positive, std::vector<Sample> &out) const;
    /// One index per pixel column in view, that of the largest value, or every index when they are few; one more on each side.
    void peaks(const ColumnMap &map, std::vector<std::size_t> &out) const;
    /// Finite extremes over xs in [lo, hi].
    MinMaxPyramid::Extremes extremes(Which which, double lo, double hi, bool positive = false) const;
    /// Index of the sample nearest to x; size() when empty.
    std::size_t nearest(double x) const;
    /// Index of the last sample with x ≤ `x`; size() when there is none.
    std::size_t atOrBefore(double x) const;

private:
    void smoothOne(double value);

    std::vector<double> m_x;
    std::vector<double> m_y;
    std::vector<double> m_smooth;
    std::vector<std::size_t> m_nonFinite;
    MinMaxPyramid m_rawPyramid;
    MinMaxPyramid m_smoothPyramid;
    double m_weight = 0;
    double m_moment = 0;
    double m_debias = 0;
};

} // namespace rankyard::ui
