// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/spec/job.h"

#include <limits>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

/// The one table of the job's keys. Reader, writer, JSON Schema, defaults and "not in this version" all walk it; a new key
/// is one line in job_table.cpp. Internal to engine/spec.
namespace rankyard::spec {

/// Two members that are one JSON list of two numbers.
struct PairSlot {
    double *first;
    double *second;
};

using Environment = std::vector<std::pair<std::string, std::string>>;

/// Where a key's value lives in a JobSpec.
using Slot = std::variant<bool *, std::int64_t *, std::uint64_t *, double *, std::string *, DType *,
                          std::optional<std::int64_t> *, std::optional<std::uint64_t> *,
                          std::optional<double> *, std::optional<std::string> *, std::vector<std::string> *,
                          std::optional<std::vector<std::int64_t>> *, Environment *, PairSlot, Json *>;

/// What a key may hold. `values` is the contract, `supported` the part of it that this version runs (empty: all of it).
struct Rule {
    std::string doc; ///< one line for people, with the unit
    double low = -std::numeric_limits<double>::infinity();
    double high = std::numeric_limits<double>::infinity();
    bool lowOpen = false; ///< low itself is not allowed
    bool highOpen = false;
    bool mayBeEmpty = true; ///< strings
    bool required = false;  ///< the only keys without a default
    bool fixed = false;     ///< this version supports the default only
    std::vector<std::string> values;
    std::vector<Json> supported;

    Rule &&only(std::vector<Json> list) &&
    {
        supported = std::move(list);
        return std::move(*this);
    }
    Rule &&onlyDefault() &&
    {
        fixed = true;
        return std::move(*this);
    }
};

struct Field {
    std::string path; ///< "precision.loss_scale.window"
    Slot slot;
    Rule rule;
};

/// Every key in the order of the written file, bound to the members of `job`. Rules with `fixed` have their `supported` filled.
std::vector<Field> jobFields(JobSpec &job);
/// One line about a section ("model", "precision.loss_scale"); empty for an unknown one.
std::string_view sectionDoc(std::string_view path);

/// The value of a slot as JSON.
Json slotValue(const Slot &slot);
/// Stores `value`; an error names the type that was expected. Ranges are checkRule's business.
Status storeSlot(const Field &field, const Json &value);
/// Range, enumeration and "not in this version" for the value that the slot holds now.
Status checkRule(const Field &field);
/// "an integer", "null or a string" …
std::string typeText(const Slot &slot);
/// JSON Schema type names: {"integer"}, {"string", "null"} …
std::vector<std::string> schemaTypes(const Slot &slot);

/// The closest of `choices` by edit distance; empty when nothing is similar (more than about a third of the letters differ).
std::string closest(std::string_view word, const std::vector<std::string> &choices);
/// JSON text of a value, shortened to 80 bytes for messages.
std::string shown(const Json &value);
/// A BadJob error at a key.
/// The divisor of n (n ≥ 1) that is nearest to `wish`; the smaller one of two.
std::int64_t nearestDivisor(std::int64_t n, std::int64_t wish);
/// The multiple of `unit`, at least one, that is nearest to `wish`; the smaller one of two.
std::int64_t nearestMultiple(std::int64_t unit, std::int64_t wish);
Error jobError(const std::string &path, std::string what, std::string found, std::string expected);

inline constexpr std::string_view jobSchemaFamily = "rankyard/job";
inline constexpr int jobSchemaVersion = 1;
/// Names that `comm.env` may set, as a JSON Schema pattern; job_rules.cpp checks the same.
inline constexpr const char *environmentPattern = "^(LC_ALL|(OMP|MKL|CUDA|NCCL)_[A-Za-z0-9_]+)$";
/// Tokens of one micro-batch (micro · seq): keeps every product of sizes in the planner within 63 bits.
inline constexpr std::int64_t maxMicroBatchTokens = 1 << 24;

} // namespace rankyard::spec
