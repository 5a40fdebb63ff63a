// SPDX-License-Identifier: GPL-3.0-or-later
#include "ui/plot/ticks.h"

#include <algorithm>
#include <cmath>

namespace rankyard::ui {

namespace {

struct Scale {
    double factor = 1;
    QString each; ///< suffix of every label
    QString last; ///< suffix of the last one only
};

Scale scaleOf(double size, Unit unit)
{
    const auto prefixed = [size](double base, std::initializer_list<const char *> names) {
        Scale scale;
        auto name = names.begin();
        // 943 KiB would end at "1,000 KiB", which is wider than the margin: already a part of the next unit.
        const double full = base == 1024 ? 900 : base;
        while (size >= full * scale.factor && name + 1 != names.end()) {
            scale.factor *= base;
            ++name;
        }
        scale.each = QString::fromUtf8(*name);
        return scale;
    };
    switch (unit) {
    case Unit::Bytes: {
        Scale scale = prefixed(1024, {" B", " KiB", " MiB", " GiB", " TiB"});
        scale.last = scale.each;
        scale.each.clear();
        return scale;
    }
    case Unit::Count:
    case Unit::TokensPerSecond:
        return prefixed(1000, {"", " k", " M", " G", " T"});
    case Unit::Milliseconds:
        return size >= 2000 ? Scale{1000, {}, QStringLiteral(" s")} : Scale{1, {}, QStringLiteral(" ms")};
    case Unit::Percent:
        return {1, {}, QStringLiteral(" %")};
    case Unit::Seconds:
        return size >= 3 * 3600 ? Scale{3600, {}, QStringLiteral(" h")}
            : size >= 180       ? Scale{60, {}, QStringLiteral(" min")}
                                : Scale{1, {}, QStringLiteral(" s")};
    default:
        return {};
    }
}

QString superscript(long power)
{
    static const char16_t digits[] = u"⁰¹²³⁴⁵⁶⁷⁸⁹";
    QString text;
    for (const QChar c : QString::number(power))
        text += c == QLatin1Char('-') ? QStringLiteral("⁻") : QString(QChar(digits[c.digitValue()]));
    return text;
}

/// Numbers without prefixes of their own: from here on they are written as powers of ten.
constexpr double mostPlain = 1e5;

bool asPowers(double size, Unit unit)
{
    return size >= mostPlain && (unit == Unit::Number || unit == Unit::Scientific);
}

/// "1.6e15", with the digits that tell ticks of this step apart.
QString powerOfTen(double value, double step)
{
    const int power = static_cast<int>(std::floor(std::log10(std::fabs(value)) + 1e-9));
    const int digits = std::clamp(power - static_cast<int>(std::floor(std::log10(step) + 1e-9)) + 2, 1, 15);
    return QString::number(value / std::pow(10, power), 'g', digits) + QStringLiteral("e")
        + QString::number(power);
}

QString number(double value, double step, Unit unit = Unit::Number)
{
    if (std::fabs(value) < step * 1e-9)
        value = 0;
    if (value == 0)
        return QStringLiteral("0");
    if (unit == Unit::Scientific && std::fabs(value) < 0.01) {
        // "2.5e-4": a mantissa without zeros behind it.
        const int power = static_cast<int>(std::floor(std::log10(std::fabs(value)) + 1e-9));
        return QString::number(value / std::pow(10, power), 'g', 3) + QStringLiteral("e")
            + QString::number(power);
    }
    if (step >= 1 && std::fabs(value) < 1e15) {
        const double rounded = std::round(value * 10) / 10;
        return rounded == std::round(rounded) ? formatStep(std::llround(rounded))
                                              : QString::number(rounded, 'f', 1);
    }
    const int digits = std::clamp(static_cast<int>(std::ceil(-std::log10(step) - 1e-9)), 0, 12);
    if (digits > 5)
        return formatShort(value, Unit::Scientific);
    // 0.25 needs one digit more than its power of ten says.
    const double shifted = step * std::pow(10, digits);
    return QString::number(value, 'f', std::fabs(shifted - std::round(shifted)) > 1e-6 ? digits + 1 : digits);
}

} // namespace

double niceStep(double span, int most)
{
    if (!(span > 0) || !std::isfinite(span))
        return 1;
    const double rough = span / std::max(1, most);
    const double power = std::pow(10, std::floor(std::log10(rough)));
    for (double factor : {1.0, 2.0, 2.5, 5.0}) {
        if (factor * power >= rough * (1 - 1e-9))
            return factor * power;
    }
    return 10 * power;
}

TickSet linearTicks(double lo, double hi, Unit unit, int most)
{
    TickSet ticks;
    const Scale scale = scaleOf(std::max(std::fabs(lo), std::fabs(hi)), unit);
    double step = niceStep((hi - lo) / scale.factor, most);
    if (unit == Unit::Step)
        step = std::max(1.0, std::ceil(step));
    const double first = std::ceil(lo / scale.factor / step - 1e-6);
    for (double k = first; k * step <= hi / scale.factor + step * 1e-6 && ticks.at.size() < 100; ++k) {
        const double value = k * step;
        ticks.at.push_back(value * scale.factor);
        const bool powers = asPowers(std::max(std::fabs(lo), std::fabs(hi)), unit) && k != 0;
        ticks.label.push_back((powers ? powerOfTen(value, step) : number(value, step, unit))
                              + (value == 0 ? QString() : scale.each));
    }
    if (!ticks.label.empty())
        ticks.label.back() += scale.last;
    return ticks;
}

TickSet decadeTicks(double lo, double hi, int most)
{
    TickSet ticks;
    if (!(lo > 0) || !(hi > lo))
        return ticks;
    const long first = std::lround(std::ceil(std::log10(lo) - 1e-9));
    const long last = std::lround(std::floor(std::log10(hi) + 1e-9));
    const long every = std::max<long>(1, (last - first + most) / std::max(1, most));
    const auto put = [&](double value) {
        if (value < lo * (1 - 1e-9) || value > hi * (1 + 1e-9))
            return;
        ticks.at.push_back(value);
        const double power = std::log10(value);
        ticks.label.push_back(power > -4 && power < 5 ? QString::number(value, 'g', 4)
                                  : std::fabs(power - std::round(power)) < 1e-9
                                  ? QStringLiteral("10") + superscript(std::lround(power))
                                  : formatShort(value, Unit::Scientific));
    };
    if (last - first + 1 >= 2) {
        for (long k = first; k <= last; k += every)
            put(std::pow(10, k));
    } else if (std::log10(hi / lo) > 0.5) {
        for (long k = first - 1; k <= last + 1; ++k) {
            for (double factor : {1.0, 2.0, 5.0})
                put(factor * std::pow(10, k));
        }
    } else {
        const double step = niceStep(hi - lo, most);
        for (double value = std::ceil(lo / step) * step; value <= hi * (1 + 1e-9); value += step)
            put(value);
    }
    return ticks;
}

TickSet powerTicks(double lo, double hi, int most)
{
    TickSet ticks;
    if (!(lo > 0) || !(hi > lo))
        return ticks;
    const long first = std::lround(std::ceil(std::log2(lo) - 1e-9));
    const long last = std::lround(std::floor(std::log2(hi) + 1e-9));
    const long every = std::max<long>(1, (last - first + most) / std::max(1, most));
    for (long k = first; k <= last; k += every) {
        ticks.at.push_back(std::exp2(k));
        ticks.label.push_back(QStringLiteral("2") + superscript(k));
    }
    return ticks;
}

NiceRange niceRange(double lo, double hi, Unit unit, int most, bool zeroBased)
{
    if (zeroBased) {
        lo = std::min(lo, 0.0);
        hi = std::max(hi, 0.0);
    }
    if (!(hi > lo)) {
        const double half = lo == 0 ? 0.5 : std::fabs(lo) * 0.1;
        lo -= half;
        hi += half;
        if (zeroBased && lo < 0 && hi > 0)
            lo = 0;
    }
    const double factor = scaleOf(std::max(std::fabs(lo), std::fabs(hi)), unit).factor;
    const double step = niceStep((hi - lo) / factor, most) * factor;
    // The axis ends on ticks. Data that passes an end by a hair does not need another step.
    return {std::floor(lo / step + 0.02) * step, std::ceil(hi / step - 0.02) * step};
}

NiceRange niceLogRange(double lo, double hi, double base)
{
    if (!(lo > 0))
        return {1 / base, base};
    const double pad = base == 2 ? 0.5 : 0.08;
    const double a = std::log(lo) / std::log(base);
    const double b = std::log(hi) / std::log(base);
    if (base == 2)
        return {std::pow(base, std::floor(a - pad)), std::pow(base, std::ceil(b + pad))};
    // Half decades: whole ones would leave a third of the panel empty.
    const auto half = [](double v) { return std::floor(v * 4) / 4; };
    return {std::pow(base, half(a - pad)), std::pow(base, -half(-(b + pad)))};
}

} // namespace rankyard::ui
