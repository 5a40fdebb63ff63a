// SPDX-License-Identifier: GPL-3.0-or-later
#include "ui/common/format.h"

#include "engine/base/units.h"

#include <QCoreApplication>
#include <QDateTime>

#include <cmath>

namespace rankyard::ui {

namespace {

QString text(const std::string &value) { return QString::fromStdString(value); }

QString special(double value)
{
    if (std::isnan(value))
        return QStringLiteral("NaN");
    return value > 0 ? QStringLiteral("Inf") : QStringLiteral("−Inf");
}

QString fixed(double value, int digits) { return QString::number(value, 'f', digits); }

/// Three to four significant digits, plain where that is readable.
QString plain(double value)
{
    const double size = std::fabs(value);
    if (size == 0)
        return QStringLiteral("0");
    if (size >= 1e6 || size < 1e-3)
        return QString::number(value, 'e', 2)
            .replace(QStringLiteral("e-0"), QStringLiteral("e-"))
            .replace(QStringLiteral("e+0"), QStringLiteral("e"));
    if (size >= 1000)
        return formatStep(static_cast<std::int64_t>(std::llround(value)));
    return fixed(value, size >= 100 ? 1 : size >= 10 ? 2 : size >= 0.1 ? 3 : 4);
}

} // namespace

QString formatStep(std::int64_t step)
{
    QString digits = QString::number(step);
    const qsizetype stop = step < 0 ? 1 : 0;
    for (qsizetype at = digits.size() - 3; at > stop; at -= 3)
        digits.insert(at, QLatin1Char(','));
    return digits;
}

QString formatLoss(double loss)
{
    if (!std::isfinite(loss))
        return special(loss);
    return std::fabs(loss) < 1e-3 || std::fabs(loss) >= 1e4 ? plain(loss)
                                                            : fixed(loss, std::fabs(loss) < 100 ? 3 : 1);
}

QString formatValue(double value, Unit unit)
{
    if (!std::isfinite(value))
        return special(value);
    switch (unit) {
    case Unit::Bytes:
        return text(formatBytes(value));
    case Unit::TokensPerSecond:
        return text(formatCount(value)) + QStringLiteral(" tokens/s");
    case Unit::Milliseconds:
        return text(formatDuration(value / 1e3));
    case Unit::Seconds:
        return text(formatDuration(value));
    case Unit::Step:
        return formatStep(std::llround(value));
    case Unit::Count:
        return text(formatCount(value));
    default:
        return formatShort(value, unit);
    }
}

QString formatShort(double value, Unit unit)
{
    if (!std::isfinite(value))
        return special(value);
    switch (unit) {
    case Unit::Bytes:
        return text(formatBytes(value));
    case Unit::TokensPerSecond:
    case Unit::Count:
        return text(formatCount(value));
    case Unit::Milliseconds:
        return text(formatDuration(value / 1e3));
    case Unit::Seconds:
        return text(formatDuration(value));
    case Unit::Step:
        return formatStep(std::llround(value));
    case Unit::Percent:
        return fixed(value, std::fabs(value) < 10 ? 1 : 0) + QStringLiteral(" %");
    case Unit::Power2: {
        const double power = std::log2(value);
        return std::fabs(power - std::round(power)) < 1e-9
            ? QStringLiteral("2^") + QString::number(std::llround(power))
            : plain(value);
    }
    case Unit::Scientific:
        return QString::number(value, 'e', 1)
            .replace(QStringLiteral("e-0"), QStringLiteral("e-"))
            .replace(QStringLiteral("e+0"), QStringLiteral("e"));
    case Unit::Number:
        break;
    }
    return plain(value);
}

QString formatSeconds(double seconds) { return text(formatDuration(seconds)); }

QString formatAge(std::int64_t thenNs, std::int64_t nowNs)
{
    const double seconds = static_cast<double>(nowNs - thenNs) / 1e9;
    if (seconds < 5)
        return QCoreApplication::translate("Format", "just now");
    // The larger unit alone says enough.
    const double unit = seconds < 60 ? 1 : seconds < 3600 ? 60 : seconds < 86400 ? 3600 : 86400;
    QString span = seconds < 60 ? QStringLiteral("%1 s").arg(std::floor(seconds))
                                : formatSeconds(std::floor(seconds / unit) * unit);
    for (const QLatin1String zero : {QLatin1String(" 0 s"), QLatin1String(" 0 min"), QLatin1String(" 0 h")}) {
        if (span.endsWith(zero))
            span.chop(zero.size());
    }
    return QCoreApplication::translate("Format", "%1 ago").arg(span);
}

QString formatWhen(std::int64_t wallNs)
{
    if (wallNs <= 0)
        return QStringLiteral("–");
    return QDateTime::fromMSecsSinceEpoch(wallNs / 1'000'000).toString(QStringLiteral("yyyy-MM-dd HH:mm"));
}

StateLook lookOf(telemetry::RunState state)
{
    using telemetry::RunState;
    const auto tr = [](const char *word) { return QCoreApplication::translate("RunState", word); };
    const QString waiting = QStringLiteral("state_waiting");
    switch (state) {
    case RunState::Draft:
        return {tr("draft"), waiting, Token::Muted};
    case RunState::Deploying:
        return {tr("deploying"), waiting, Token::Accent};
    case RunState::Preflight:
        return {tr("checking"), waiting, Token::Accent};
    case RunState::Starting:
        return {tr("starting"), waiting, Token::Accent};
    case RunState::Running:
        return {tr("running"), QStringLiteral("state_running"), Token::Good};
    case RunState::Degraded:
        return {tr("degraded"), QStringLiteral("warning"), Token::Warn};
    case RunState::Pausing:
        return {tr("pausing"), QStringLiteral("state_paused"), Token::Warn};
    case RunState::Paused:
        return {tr("paused"), QStringLiteral("state_paused"), Token::Warn};
    case RunState::Stopping:
        return {tr("stopping"), QStringLiteral("state_stopped"), Token::Warn};
    case RunState::Finished:
        return {tr("finished"), QStringLiteral("state_finished"), Token::Accent};
    case RunState::Failed:
        return {tr("failed"), QStringLiteral("state_failed"), Token::Bad};
    case RunState::FailedResumable:
        return {tr("failed, can resume"), QStringLiteral("state_failed"), Token::Bad};
    case RunState::Stopped:
        return {tr("stopped"), QStringLiteral("state_stopped"), Token::Muted};
    case RunState::Preempted:
        return {tr("preempted"), QStringLiteral("state_stopped"), Token::Warn};
    case RunState::Lost:
        return {tr("lost contact"), QStringLiteral("state_lost"), Token::Bad};
    }
    return {tr("unknown"), QStringLiteral("state_lost"), Token::Muted};
}

} // namespace rankyard::ui
