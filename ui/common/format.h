// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/telemetry/run_state.h"
#include "ui/common/theme.h"

#include <QString>

#include <cstdint>

/// Numbers and states as people read them. Always a decimal point; groups of three by comma.
namespace rankyard::ui {

enum class Unit {
    Number,
    Count,
    Step,
    Bytes,
    Milliseconds,
    Seconds,
    TokensPerSecond,
    Percent,
    Power2,
    Scientific
};

QString formatStep(std::int64_t step);                      ///< "1,234"
QString formatLoss(double loss);                            ///< "1.874"; "NaN"; "–" is the caller's matter
QString formatValue(double value, Unit unit);               ///< with its unit: "4.12 k/s", "3.41 GiB", "2^16"
QString formatShort(double value, Unit unit);               ///< for legends: "4.12 k", "71 %"
QString formatSeconds(double seconds);                      ///< "9 min 40 s"
QString formatAge(std::int64_t thenNs, std::int64_t nowNs); ///< "3 min ago"
QString formatWhen(std::int64_t wallNs);                    ///< "2026-11-30 15:25", local time

struct StateLook {
    QString word;
    QString icon;
    Token tone;
};
StateLook lookOf(telemetry::RunState state);

} // namespace rankyard::ui
