// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/base/result.h"
#include "engine/spec/job.h"

#include <cstdint>

namespace rankyard::exec {

/// The loss scale of fp16 training, after each step by one of three rules (DESIGN section 4):
///   deepspeed  DeepSpeed's DynamicLossScaler: hysteresis is spent on overflows and refilled at growth only
///   megatron   Megatron-LM's DynamicGradScaler
///   simple     half on overflow, twice after `window` good steps in a row
/// A static scale never changes. Every rank keeps its own and they agree, since all see the same overflow.
class LossScaler
{
public:
    /// Scale 1, static: every precision but fp16.
    LossScaler() = default;
    /// By the job: dynamic or static for fp16 compute, else scale 1. `consecutive`: DeepSpeed's
    /// consecutive_hysteresis.
    explicit LossScaler(const spec::Precision &precision, bool consecutive = false);

    double scale() const { return m_scale; } ///< for the next step's backward
    bool dynamic() const { return m_rule != Rule::Static; }

    /// After a step. RankFailed (deepspeed rule only) when the scale cannot shrink any more: the run should
    /// save and end.
    Status update(bool overflow);

    /// For checkpoints: all that the next steps depend on.
    struct State {
        double scale = 1;
        std::int64_t goodSteps = 0;  ///< since the last overflow (deepspeed) or since that or growth (others)
        std::int64_t hysteresis = 0; ///< what is left of it
    };
    State state() const;
    void restore(const State &state);

private:
    enum class Rule : std::uint8_t { Static, DeepSpeed, Megatron, Simple };

    Status updateDeepSpeed(bool overflow);
    void updateMegatron(bool overflow);
    void updateSimple(bool overflow);
    void grow();
    void shrink();

    Rule m_rule = Rule::Static;
    bool m_consecutive = false;
    double m_scale = 1;
    double m_min = 1;
    double m_max = 0; ///< 0: none
    std::int64_t m_window = 1000;
    std::int64_t m_hysteresis = 2;

    std::int64_t m_left = 2; ///< deepspeed, megatron: hysteresis that is left
    std::int64_t m_good = 0; ///< State::goodSteps
};

} // namespace rankyard::exec
