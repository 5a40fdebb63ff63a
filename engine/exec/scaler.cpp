// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/exec/scaler.h"

#include <algorithm>
#include <cmath>

namespace rankyard::exec {

LossScaler::LossScaler(const spec::Precision &precision, bool consecutive) : m_consecutive(consecutive)
{
    if (precision.compute != DType::F16)
        return;
    const spec::LossScale &settings = precision.lossScale;
    if (settings.mode == "static") {
        m_scale = settings.value.value_or(std::ldexp(1.0, static_cast<int>(settings.initPower)));
        return;
    }
    m_rule = settings.rule == "megatron" ? Rule::Megatron
        : settings.rule == "simple"      ? Rule::Simple
                                         : Rule::DeepSpeed;
    m_scale = std::ldexp(1.0, static_cast<int>(settings.initPower));
    m_min = settings.min;
    m_max = settings.maxPower ? std::ldexp(1.0, static_cast<int>(*settings.maxPower)) : 0;
    m_window = settings.window;
    m_hysteresis = settings.hysteresis;
    m_left = m_hysteresis;
}

Status LossScaler::update(bool overflow)
{
    switch (m_rule) {
    case Rule::DeepSpeed:
        return updateDeepSpeed(overflow);
    case Rule::Megatron:
        updateMegatron(overflow);
        break;
    case Rule::Simple:
        updateSimple(overflow);
        break;
    case Rule::Static:
        break;
    }
    return {};
}

void LossScaler::grow()
{
    if (std::isfinite(m_scale * 2)) // half of infinity would never come back
        m_scale *= 2;
    if (m_max > 0)
        m_scale = std::min(m_scale, m_max);
}

void LossScaler::shrink() { m_scale = std::max(m_scale / 2, m_min); }

/// deepspeed/runtime/fp16/loss_scaler.py, DynamicLossScaler.update_scale, as ZeRO uses it.
Status LossScaler::updateDeepSpeed(bool overflow)
{
    if (overflow) {
        if (m_hysteresis == 1 || m_left == 1) {
            if (m_scale == m_min)
                return Error::make(Code::RankFailed,
                                   "the loss scale is at its minimum and the gradients still overflow",
                                   "precision.loss_scale")
                    .withFound(formatNumber(m_scale, 6))
                    .withHint("A lower learning rate, or bf16 or fp32 compute, keeps the gradients finite");
            shrink();
        } else {
            --m_left;
        }
        m_good = 0;
        return {};
    }
    if (m_consecutive)
        m_left = m_hysteresis;
    // Its count of good steps before this one: so the first growth takes window + 1 of them, later ones
    // `window`.
    if (m_good > 0 && m_good % m_window == 0) {
        m_left = m_hysteresis;
        grow();
    }
    ++m_good;
    return {};
}

/// megatron/core/optimizer/grad_scaler.py, DynamicGradScaler.update.
void LossScaler::updateMegatron(bool overflow)
{
    if (overflow) {
        m_good = 0;
        if (--m_left <= 0)
            shrink();
    } else if (++m_good == m_window) {
        m_good = 0;
        m_left = m_hysteresis;
        grow();
    }
}

void LossScaler::updateSimple(bool overflow)
{
    if (overflow) {
        m_good = 0;
        shrink();
    } else if (++m_good == m_window) {
        m_good = 0;
        grow();
    }
}

LossScaler::State LossScaler::state() const { return {m_scale, m_good, m_left}; }

void LossScaler::restore(const State &state)
{
    if (m_rule == Rule::Static)
        return;
    m_scale = state.scale;
    m_good = state.goodSteps;
    m_left = state.hysteresis;
}

} // namespace rankyard::exec
