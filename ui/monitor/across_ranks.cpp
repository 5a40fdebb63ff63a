// SPDX-License-Identifier: GPL-3.0-or-later
#include "ui/monitor/across_ranks.h"

#include <algorithm>

namespace rankyard::ui {

bool AcrossRanks::nextCommonStep(const std::map<int, RankColumns> &ranks)
{
    std::int64_t wanted = 0;
    for (bool agreed = false; !agreed;) {
        agreed = true;
        for (const auto &[rank, columns] : ranks) {
            std::size_t &at = m_at[rank];
            while (at < columns.size() && columns.step[at] < wanted)
                ++at;
            if (at == columns.size())
                return false;
            if (columns.step[at] > wanted) {
                wanted = columns.step[at];
                agreed = false;
            }
        }
    }
    return !ranks.empty();
}

void AcrossRanks::update(const std::map<int, RankColumns> &ranks, const Put &put)
{
    std::vector<Spread> spreads(m_figures.size());
    std::vector<double> values(ranks.size());
    while (nextCommonStep(ranks)) {
        for (std::size_t figure = 0; figure < m_figures.size(); ++figure) {
            values.clear();
            for (const auto &[rank, columns] : ranks)
                values.push_back(m_figures[figure](columns, m_at[rank]));
            const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
            std::nth_element(values.begin(), middle, values.end());
            spreads[figure] = {*std::min_element(values.begin(), middle + 1), *middle,
                               *std::max_element(middle, values.end())};
        }
        const auto &[first, columns] = *ranks.begin();
        const std::size_t at = m_at[first];
        put(columns.step[at], columns.wallNs[at], spreads);
        for (const auto &[rank, unused] : ranks)
            ++m_at[rank];
    }
}

} // namespace rankyard::ui
