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
    std::string writes;
};

/// What of the table a program has.
struct Variant {
    bool train = true;
    bool biases = true; ///< gpt2; without: llama
    bool dropout = false;
    bool tensor = false;   ///< a tensor group of more than one
    std::int32_t ring = 1; ///< ranks of the context group
    /// Read off the program: from its tensors' names, its groups, and whether joins have gradients of their own.
    explicit Variant(const StepProgram &program);
};

/// 'l' load-batch, 'f' forward and recompute, 'b' backward-input, 'w' backward-weight. A Recv is what it carries.
char directionOf(const Op &op);

class Signatures
{
public:
    explicit Signatures(const Variant &variant);
    /// Null when no unit has this op.
    const Signature *find(const Op &op) const;

private:
    struct Entry {
        UnitKind unit;
        Segment segment;
        OpKind kind;
        Signature signature;
    };
    std::vector<Entry> m_all;
};

} // namespace rankyard::plan
