// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "ui/common/format.h"

#include <QString>

#include <vector>

/// Where ticks stand and what they say: round numbers, the unit on the last one only.
namespace rankyard::ui {

struct TickSet {
    std::vector<double> at;
    std::vector<QString> label;
};

/// 1, 2, 2.5 or 5 times a power of ten, so that `span` has at most `most` steps.
double niceStep(double span, int most);
/// The ticks inside [lo, hi].
TickSet linearTicks(double lo, double hi, Unit unit, int most);
/// Powers of ten; with less than two of them in range also 2 and 5. lo > 0.
TickSet decadeTicks(double lo, double hi, int most);
/// Powers of two, "2¹⁶". lo > 0.
TickSet powerTicks(double lo, double hi, int most);

/// A range with round ends around [lo, hi]; a flat one is widened.
struct NiceRange {
    double lo = 0;
    double hi = 1;
};
NiceRange niceRange(double lo, double hi, Unit unit, int most, bool zeroBased);
NiceRange niceLogRange(double lo, double hi, double base);

} // namespace rankyard::ui
