// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <cmath>
#include <cstdint>

namespace rankyard::exec {

/// What ranks ask for at the end of a step. Each rank's word goes into the step's own all-reduce as one
/// number that can be summed; so all ranks read the same decision at the same step boundary, and no message
/// of its own is needed.
struct Vote {
    bool stop = false;
    bool checkpoint = false;
    bool pause = false;

    /// Up to 131,071 ranks: three counts of 17 bits fit a double exactly.
    double encode() const { return (stop ? 1 : 0) + (checkpoint ? base : 0) + (pause ? base * base : 0); }
    /// Of the sum over all ranks: what any of them asked for.
    static Vote decode(double sum)
    {
        const auto whole = std::isfinite(sum) && sum > 0 ? static_cast<std::uint64_t>(sum) : 0;
        constexpr auto unit = static_cast<std::uint64_t>(base);
        return {whole % unit > 0, whole / unit % unit > 0, whole / unit / unit > 0};
    }

private:
    static constexpr double base = 131072;
};

} // namespace rankyard::exec
