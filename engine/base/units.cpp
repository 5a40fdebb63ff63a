// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/base/units.h"

#include <charconv>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <iterator>

namespace rankyard {

namespace {

struct DTypeRow {
    DType type;
    const char *name;
    std::size_t bytes;
};

constexpr DTypeRow dtypeTable[] = {
    {DType::F64, "fp64", 8}, {DType::F32, "fp32", 4}, {DType::BF16, "bf16", 2}, {DType::F16, "fp16", 2},
    {DType::I64, "i64", 8},  {DType::I32, "i32", 4},  {DType::U16, "u16", 2},   {DType::U8, "u8", 1},
};

std::int64_t clockNs(clockid_t clock)
{
    timespec now{};
    ::clock_gettime(clock, &now);
    return static_cast<std::int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

std::string fixed(double value, int digits)
{
    char text[64];
    const auto end = std::to_chars(text, text + sizeof text, value, std::chars_format::fixed, digits);
    return end.ec == std::errc() ? std::string(text, end.ptr) : std::string("?");
}

/// Three significant digits before a prefix.
std::string scaled(double value, double base, const char *const *prefixes, std::size_t count)
{
    std::size_t at = 0;
    while (std::fabs(value) >= base * (1 - 5e-4) && at + 1 < count) {
        value /= base;
        ++at;
    }
    const double size = std::fabs(value);
    const int digits = at == 0 && size == std::floor(size) ? 0 : size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2;
    return fixed(value, digits) + " " + prefixes[at];
}

} // namespace

std::size_t bytesOf(DType type) { return dtypeTable[static_cast<std::size_t>(type)].bytes; }
const char *nameOf(DType type) { return dtypeTable[static_cast<std::size_t>(type)].name; }

bool dtypeFromName(const std::string &name, DType &type)
{
    for (const DTypeRow &row : dtypeTable) {
        if (name == row.name) {
            type = row.type;
            return true;
        }
    }
    return false;
}

std::int64_t monotonicNs() { return clockNs(CLOCK_MONOTONIC); }
std::int64_t wallNs() { return clockNs(CLOCK_REALTIME); }

std::string bootId()
{
    std::ifstream in("/proc/sys/kernel/random/boot_id");
    std::string id;
    std::getline(in, id);
    return id;
}

std::string formatBytes(double bytes)
{
    static const char *const prefixes[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    return std::isfinite(bytes) ? scaled(bytes, 1024, prefixes, std::size(prefixes)) : "?";
}

std::string formatCount(double count)
{
    static const char *const prefixes[] = {"", "k", "M", "G", "T", "P"};
    if (!std::isfinite(count))
        return "?";
    std::string text = scaled(count, 1000, prefixes, std::size(prefixes));
    return text.back() == ' ' ? text.substr(0, text.size() - 1) : text;
}

std::string formatDuration(double seconds)
{
    if (!std::isfinite(seconds) || seconds < 0)
        return "?";
    if (seconds < 1e-3)
        return fixed(seconds * 1e6, 0) + " µs";
    if (seconds < 0.9995)
        return fixed(seconds * 1e3, seconds < 0.00995 ? 1 : 0) + " ms";
    if (seconds < 59.95)
        return fixed(seconds, seconds < 9.95 ? 1 : 0) + " s";
    const auto whole = static_cast<long long>(std::llround(seconds));
    if (whole < 3600)
        return std::to_string(whole / 60) + " min " + std::to_string(whole % 60) + " s";
    if (whole < 86400)
        return std::to_string(whole / 3600) + " h " + std::to_string(whole / 60 % 60) + " min";
    return std::to_string(whole / 86400) + " d " + std::to_string(whole / 3600 % 24) + " h";
}

std::string formatNumber(double value, int significant)
{
    if (std::isnan(value))
        return "NaN";
    if (std::isinf(value))
        return value > 0 ? "Inf" : "-Inf";
    char text[64];
    const auto end = std::to_chars(text, text + sizeof text, value, std::chars_format::general, significant);
    return end.ec == std::errc() ? std::string(text, end.ptr) : std::string("?");
}

std::string formatPercent(double share, int significant)
{
    const double percent = 100 * share;
    if (std::isfinite(percent) && std::fabs(percent) < 1e-3)
        return "0 %";
    // Whole numbers beyond the digits asked for: no exponents.
    if (std::isfinite(percent) && std::fabs(percent) >= std::pow(10.0, significant) - 0.5
        && std::fabs(percent) < 1e15)
        return std::to_string(std::llround(percent)) + " %";
    return formatNumber(percent, significant) + " %";
}

} // namespace rankyard
