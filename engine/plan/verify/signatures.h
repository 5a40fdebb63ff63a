// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/plan/step_program.h"

#include <string_view>
#include <vector>

/// What each op of a unit reads and writes, as the verifier sees it: the table of units.h a second time, on purpose.
namespace rankyard::plan {

/// Where a read must come from: a parameter, or the op that wrote the buffer last.
struct Source {
    bool param = false;
    Segment segment = Segment::None;
    char direction = 'f';
    std::size_t place = 0;
};

struct Signature {
    std::vector<Source> reads;
    std::string_view writes;
};

/// 'l' load-batch, 'f' forward and recompute, 'b' backward-input, 'w' backward-weight.
char directionOf(OpKind kind);

class Signatures
{
public:
    explicit Signatures(bool train);
    /// Null when no unit has this op.
    const Signature *find(const Op &op) const;

private:
    std::vector<Signature> m_all;
    Signature m_loss;
    Signature m_load;
};

} // namespace rankyard::plan
