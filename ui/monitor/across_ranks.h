// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "ui/data/run_update.h"

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

namespace rankyard::ui {

/// A figure over all ranks, step by step: for runs whose ranks are too many to be looked at one by one. Reads each row once, as
/// it comes; a step counts when every rank has it.
class AcrossRanks
{
public:
    struct Spread {
        double least = 0;
        double median = 0; ///< the upper one of an even number
        double most = 0;
    };
    /// Of the row `at` of a rank's columns.
    using Figure = double (*)(const RankColumns &columns, std::size_t at);
    /// `step` and `wallNs` are the lowest rank's.
    using Put =
        std::function<void(std::int64_t step, std::int64_t wallNs, const std::vector<Spread> &figures)>;

    explicit AcrossRanks(std::vector<Figure> figures) : m_figures(std::move(figures)) {}

    void clear() { m_at.clear(); }
    /// Goes through the steps that all of `ranks` have and that were not put before. Ranks only ever grow.
    void update(const std::map<int, RankColumns> &ranks, const Put &put);

private:
    bool nextCommonStep(const std::map<int, RankColumns> &ranks);

    std::vector<Figure> m_figures;
    std::map<int, std::size_t> m_at;
};

} // namespace rankyard::ui
