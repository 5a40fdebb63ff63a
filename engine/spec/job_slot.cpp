// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/spec/job_table.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

namespace rankyard::spec {

namespace {

template<typename... F>
struct Overload : F... {
    using F::operator()...;
};

template<typename T>
struct IsOptional : std::false_type {};
template<typename T>
struct IsOptional<std::optional<T>> : std::true_type {};

// ---- reading one JSON value into one C++ type: nothing on success, else the reason ----

/// Integers may be written as floats (5e8) when they are whole and in range of the type.
template<typename Int>
bool readInteger(const Json &json, Int &out)
{
    constexpr bool isSigned = std::is_signed_v<Int>;
    if (json.is_number_unsigned()) {
        const auto value = json.get<std::uint64_t>();
        if (value > static_cast<std::uint64_t>(std::numeric_limits<Int>::max()))
            return false;
        out = static_cast<Int>(value);
        return true;
    }
    if (json.is_number_integer()) {
        const auto value = json.get<std::int64_t>();
        if (!isSigned && value < 0)
            return false;
        out = static_cast<Int>(value);
        return true;
    }
    if (!json.is_number_float())
        return false;
    const double value = json.get<double>();
    const double top = isSigned ? 0x1p63 : 0x1p64;
    if (!std::isfinite(value) || value != std::floor(value) || value >= top
        || value < (isSigned ? -0x1p63 : 0.0))
        return false;
    out = static_cast<Int>(value);
    return true;
}

bool readValue(const Json &json, std::int64_t &out) { return readInteger(json, out); }
bool readValue(const Json &json, std::uint64_t &out) { return readInteger(json, out); }

bool readValue(const Json &json, bool &out)
{
    if (!json.is_boolean())
        return false;
    out = json.get<bool>();
    return true;
}

bool readValue(const Json &json, double &out)
{
    if (!json.is_number())
        return false;
    out = json.get<double>();
    return std::isfinite(out);
}

bool readValue(const Json &json, std::string &out)
{
    if (!json.is_string())
        return false;
    out = json.get<std::string>();
    return true;
}

bool readValue(const Json &json, DType &out)
{
    return json.is_string() && dtypeFromName(json.get<std::string>(), out);
}

template<typename T>
bool readValue(const Json &json, std::vector<T> &out)
{
    if (!json.is_array())
        return false;
    std::vector<T> list;
    for (const Json &entry : json) {
        T value{};
        if (!readValue(entry, value))
            return false;
        list.push_back(std::move(value));
    }
    out = std::move(list);
    return true;
}

bool readValue(const Json &json, Environment &out)
{
    if (!json.is_object())
        return false;
    Environment list;
    for (const auto &[key, value] : json.items()) {
        if (!value.is_string())
            return false;
        list.emplace_back(key, value.get<std::string>());
    }
    out = std::move(list);
    return true;
}

template<typename T>
bool readValue(const Json &json, std::optional<T> &out)
{
    if (json.is_null()) {
        out.reset();
        return true;
    }
    T value{};
    if (!readValue(json, value))
        return false;
    out = std::move(value);
    return true;
}

bool readValue(const Json &json, Json &out)
{
    if (!json.is_null() && !json.is_object())
        return false;
    out = json;
    return true;
}

// ---- writing ----

template<typename T>
Json toJson(const T &value)
{
    if constexpr (IsOptional<T>::value)
        return value ? toJson(*value) : Json();
    else if constexpr (std::is_same_v<T, DType>)
        return nameOf(value);
    else
        return value;
}

Json toJson(const Environment &environment)
{
    Json json = Json::object();
    for (const auto &[key, value] : environment)
        json[key] = value;
    return json;
}

// ---- types in words ----

template<typename T>
std::vector<std::string> typesOf()
{
    if constexpr (IsOptional<T>::value) {
        auto types = typesOf<typename T::value_type>();
        types.push_back("null");
        return types;
    } else if constexpr (std::is_same_v<T, bool>) {
        return {"boolean"};
    } else if constexpr (std::is_integral_v<T>) {
        return {"integer"};
    } else if constexpr (std::is_same_v<T, double>) {
        return {"number"};
    } else if constexpr (std::is_same_v<T, Json>) {
        return {"object", "null"};
    } else if constexpr (std::is_same_v<T, Environment>) {
        return {"object"};
    } else if constexpr (std::is_same_v<T, std::string> || std::is_same_v<T, DType>) {
        return {"string"};
    } else {
        return {"array"};
    }
}

std::string numberText(double value)
{
    // Bounds are whole or short: print whole ones without an exponent.
    if (std::fabs(value) < 0x1p53 && value == std::floor(value))
        return std::to_string(static_cast<std::int64_t>(value));
    return formatNumber(value, 17).size() > 8 ? formatNumber(value, 6) : formatNumber(value, 17);
}

std::string rangeText(const Rule &rule)
{
    const bool low = std::isfinite(rule.low);
    const bool high = std::isfinite(rule.high);
    std::string text;
    if (low)
        text = (rule.lowOpen ? "more than " : "at least ") + numberText(rule.low);
    if (high)
        text += (low ? " and " : "") + std::string(rule.highOpen ? "less than " : "at most ")
            + numberText(rule.high);
    return text;
}

bool inRange(const Rule &rule, double value)
{
    if (!std::isfinite(value))
        return false;
    const bool low = rule.lowOpen ? value > rule.low : value >= rule.low;
    const bool high = rule.highOpen ? value < rule.high : value <= rule.high;
    return low && high;
}

/// The range and, where the bound that was crossed is itself allowed, the nearest value: "at least 1 and at most 8; nearest: 8".
std::string rangeText(const Rule &rule, double value)
{
    std::string text = rangeText(rule);
    if (value < rule.low && !rule.lowOpen)
        text += "; nearest: " + numberText(rule.low);
    else if (value > rule.high && !rule.highOpen)
        text += "; nearest: " + numberText(rule.high);
    return text;
}

/// A character that has no place in a name or path.
bool hasControl(std::string_view text)
{
    return std::any_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20; });
}

Status checkText(const Field &field, const std::string &value)
{
    if (value.empty() && !field.rule.mayBeEmpty)
        return jobError(field.path, "must not be empty", "\"\"", "a string of at least one character");
    if (hasControl(value))
        return jobError(field.path, "holds a control character", shown(value), "printable text");
    return {};
}

Status checkScalar(const Field &field, const Json &value)
{
    if (value.is_number() && !inRange(field.rule, value.get<double>()))
        return jobError(field.path, "out of range", shown(value), rangeText(field.rule, value.get<double>()));
    if (value.is_string())
        return checkText(field, value.get_ref<const std::string &>());
    return {};
}

std::string quotedList(const std::vector<std::string> &values)
{
    std::string text;
    for (const std::string &value : values)
        text += (text.empty() ? "\"" : ", \"") + value + "\"";
    return text;
}

bool contains(const std::vector<Json> &list, const Json &value)
{
    return std::find(list.begin(), list.end(), value) != list.end();
}

/// The supported value that is nearest: by distance for numbers, by spelling for strings, else the first.
Json nearest(const std::vector<Json> &supported, const Json &value)
{
    Json best = supported.front();
    if (value.is_number()) {
        double distance = std::numeric_limits<double>::infinity();
        for (const Json &candidate : supported) {
            const double d =
                candidate.is_number() ? std::fabs(candidate.get<double>() - value.get<double>()) : 1e300;
            if (d < distance) {
                distance = d;
                best = candidate;
            }
        }
    } else if (value.is_string()) {
        std::vector<std::string> words;
        for (const Json &candidate : supported) {
            if (candidate.is_string())
                words.push_back(candidate.get<std::string>());
        }
        if (const std::string word = closest(value.get<std::string>(), words); !word.empty())
            best = word;
    }
    return best;
}

} // namespace

Json slotValue(const Slot &slot)
{
    return std::visit(Overload{
                          [](const PairSlot &pair) {
                              return Json::array({*pair.first, *pair.second});
                          },
                          [](const auto *member) { return toJson(*member); },
                      },
                      slot);
}

std::vector<std::string> schemaTypes(const Slot &slot)
{
    return std::visit(Overload{
                          [](const PairSlot &) { return std::vector<std::string>{"array"}; },
                          [](auto *member) { return typesOf<std::remove_pointer_t<decltype(member)>>(); },
                      },
                      slot);
}

std::string typeText(const Slot &slot)
{
    if (std::holds_alternative<PairSlot>(slot))
        return "a list of two numbers";
    if (std::holds_alternative<std::vector<std::string> *>(slot))
        return "a list of strings";
    if (std::holds_alternative<Environment *>(slot))
        return "an object whose values are strings";
    if (std::holds_alternative<std::optional<std::vector<std::int64_t>> *>(slot))
        return "null or a list of integers";
    static const std::pair<const char *, const char *> words[] = {
        {"boolean", "true or false"}, {"integer", "an integer"}, {"number", "a number"},
        {"string", "a string"},       {"object", "an object"},   {"null", "null"}};
    std::string text;
    auto types = schemaTypes(slot);
    std::reverse(types.begin(), types.end());
    for (const std::string &type : types) {
        for (const auto &[name, word] : words) {
            if (type == name)
                text += (text.empty() ? "" : " or ") + std::string(word);
        }
    }
    return text;
}

namespace {

/// What JSON has no number for, as C writes it: --set optimizer.lr=NaN, 1e999.
bool isNotFinite(const std::string &text)
{
    char *end = nullptr;
    const double value = std::strtod(text.c_str(), &end);
    return end != text.c_str() && *end == '\0' && !std::isfinite(value);
}

} // namespace

Status storeSlot(const Field &field, const Json &value)
{
    const bool stored = std::visit(Overload{
                                       [&value](const PairSlot &pair) {
                                           return value.is_array() && value.size() == 2
                                               && readValue(value[0], *pair.first)
                                               && readValue(value[1], *pair.second);
                                       },
                                       [&value](auto *member) { return readValue(value, *member); },
                                   },
                                   field.slot);
    if (stored)
        return {};
    if (std::holds_alternative<DType *>(field.slot)) {
        std::string expected = "one of " + quotedList(field.rule.values);
        const std::string word =
            value.is_string() ? closest(value.get<std::string>(), field.rule.values) : std::string();
        if (!word.empty())
            expected = "\"" + word + "\"";
        return jobError(field.path, value.is_string() ? "unknown value" : "wrong type", shown(value),
                        expected);
    }
    const bool whole = value.is_number_float() && std::isfinite(value.get<double>());
    const auto types = schemaTypes(field.slot);
    if (value.is_number() && types.front() == "integer") {
        const double number = value.get<double>();
        if (whole && std::fabs(number) < 0x1p53 && number != std::floor(number))
            return jobError(field.path, "not a whole number", shown(value), numberText(std::round(number)));
        const std::string range = rangeText(field.rule, number);
        return jobError(field.path, "out of range", shown(value),
                        range.empty() ? "0 to 18446744073709551615" : range);
    }
    if (value.is_number() && types.front() == "number")
        return jobError(field.path, "not a finite number", shown(value), typeText(field.slot));
    const bool word = value.is_string() && types.front() != "string" && types.front() != "array";
    if (word && isNotFinite(value.get<std::string>()))
        return jobError(field.path, "not a finite number", value.get<std::string>(), typeText(field.slot));
    Error error = jobError(field.path, "wrong type", shown(value), typeText(field.slot));
    if (word && Json::accept(value.get<std::string>())) // another word would not fit without them either
        error.hint = "Write the value without quotes";
    return error;
}

Status checkRule(const Field &field)
{
    const Json value = slotValue(field.slot);
    const Rule &rule = field.rule;
    if (value.is_array()) {
        for (std::size_t i = 0; i < value.size(); ++i) {
            Field entry = field;
            entry.path += "[" + std::to_string(i) + "]";
            RY_TRY(checkScalar(entry, value[i]));
        }
    } else if (value.is_object()) {
        for (const auto &[key, entry] : value.items()) {
            if (entry.is_string() && (hasControl(key) || hasControl(entry.get_ref<const std::string &>())))
                return jobError(field.path, "holds a control character", shown(key), "printable text");
        }
    } else if (rule.values.empty()) {
        RY_TRY(checkScalar(field, value));
    } else if (value.is_string()) {
        const auto &word = value.get_ref<const std::string &>();
        if (std::find(rule.values.begin(), rule.values.end(), word) == rule.values.end()) {
            const std::string meant = closest(word, rule.values);
            return jobError(field.path, "unknown value", shown(value),
                            meant.empty() ? "one of " + quotedList(rule.values) : "\"" + meant + "\"");
        }
    }
    if (!rule.supported.empty() && !contains(rule.supported, value))
        return jobError(field.path, "not in this version", shown(value),
                        shown(nearest(rule.supported, value)));
    return {};
}

std::string closest(std::string_view word, const std::vector<std::string> &choices)
{
    std::string best;
    std::size_t bestDistance = std::numeric_limits<std::size_t>::max();
    if (word.size() > 64)
        return best;
    for (const std::string &choice : choices) {
        // Optimal string alignment: insert, delete, replace, swap of neighbours; case counts nothing.
        const std::size_t rows = word.size() + 1;
        const std::size_t columns = choice.size() + 1;
        std::vector<std::size_t> d(rows * columns);
        const auto at = [&d, columns](std::size_t i, std::size_t j) -> std::size_t & {
            return d[i * columns + j];
        };
        const auto same = [&](std::size_t i, std::size_t j) {
            return std::tolower(static_cast<unsigned char>(word[i]))
                == std::tolower(static_cast<unsigned char>(choice[j]));
        };
        for (std::size_t i = 0; i < rows; ++i) {
            for (std::size_t j = 0; j < columns; ++j) {
                if (i == 0 || j == 0) {
                    at(i, j) = i + j;
                    continue;
                }
                at(i, j) =
                    std::min({at(i - 1, j) + 1, at(i, j - 1) + 1, at(i - 1, j - 1) + !same(i - 1, j - 1)});
                if (i > 1 && j > 1 && same(i - 1, j - 2) && same(i - 2, j - 1))
                    at(i, j) = std::min(at(i, j), at(i - 2, j - 2) + 1);
            }
        }
        const std::size_t distance = at(rows - 1, columns - 1);
        const std::size_t limit = std::max<std::size_t>(1, (std::max(word.size(), choice.size()) + 1) / 3);
        if (distance <= limit && distance < bestDistance) {
            bestDistance = distance;
            best = choice;
        }
    }
    return best;
}

std::string shown(const Json &value)
{
    std::string text = dumpJson(value);
    if (value.is_number_float() && !std::isfinite(value.get<double>()))
        text = formatNumber(value.get<double>(), 6);
    if (text.size() > 80) {
        std::size_t end = 77;
        while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80)
            --end; // never cut a UTF-8 sequence
        text = text.substr(0, end) + "…";
    }
    return text;
}

Error jobError(const std::string &path, std::string what, std::string found, std::string expected)
{
    return Error::make(Code::BadJob, std::move(what), path)
        .withFound(std::move(found))
        .withExpected(std::move(expected));
}

} // namespace rankyard::spec
