// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/interop/interop.h"

#include <map>
#include <set>
#include <span>

/// Private to interop: what the engines' readers and writers share. A configuration is a table of paths and values, whatever the
/// file looks like; keys that mean the same here and there are rows of one table, read in both directions.
namespace rankyard::interop {

using Values = std::map<std::string, Json>;

/// Leaves of a document by dotted path.
Values flattened(const Json &document);
/// The other way round, in the order of `values`.
OrderedJson nested(const std::vector<std::pair<std::string, Json>> &values);

enum class Type { Whole, Number, Flag, Word };
/// A key that means the same on both sides.
struct Same {
    const char *theirs;
    const char *ours;
    Type type;
};
/// A key of theirs that has no counterpart here.
struct Known {
    const char *theirs; ///< a path; one that ends in a full stop is a whole section
    const char *why;
    const char *same =
        ""; ///< JSON of the value that says what is done here in any case: then nothing is lost
};

/// Reads a table of theirs into a job. Values are taken; what nobody has taken at the end is unknown.
class Reading
{
public:
    Reading(Values values, const ImportOptions &options);

    bool has(const std::string &path) const { return m_values.count(path) > 0; }
    /// Gives the value of `from` the path `to` where that has none: an alias.
    void rename(const std::string &from, const std::string &to);
    /// Typed values; none where there is none, where it is "auto" (a remark) or of the wrong type (an error of finish()).
    std::optional<std::int64_t> whole(const std::string &path);
    std::optional<double> number(const std::string &path);
    std::optional<bool> flag(const std::string &path);
    std::optional<std::string> word(const std::string &path);
    /// A whole number of at least `least`; a smaller one is an error of finish().
    std::optional<std::int64_t> atLeast(const std::string &path, std::int64_t least);
    void same(std::span<const Same> rows);
    const Json *take(const std::string &path);

    /// Whether the value is the word "auto", which other programs resolve.
    bool isAuto(const std::string &path) const;

    Json get(const std::string &ours) const;
    std::int64_t getWhole(const std::string &ours) const;
    void set(const std::string &ours, Json value);
    /// Our own default, where theirs is the same: the base job's value does not count.
    void setDefault(std::string_view ours);
    /// The type in which gradients are summed, where that is possible with the rest of the job; else a remark, and fp32.
    void setReduce(const std::string &theirs, DType type);

    void lost(const std::string &theirs, std::string why);
    void guessed(std::string path, const Json &value, std::string why);
    void fail(Error error);
    const std::optional<Error> &error() const { return m_error; }
    const ImportOptions &options() const { return m_options; }

    /// Lists `known` that are there, then what is not known at all, with the nearest name. The first error, if there was one.
    Result<Imported> finish(Engine engine, std::span<const Known> known, std::string_view unknownWhy);

private:
    const Json *typed(const std::string &path, const char *expected, bool (*fits)(const Json &));

    Values m_values;
    std::set<std::string> m_taken;
    const ImportOptions &m_options;
    Json m_job;
    std::vector<Remark> m_remarks;
    std::optional<Error> m_error;
};

/// Writes a job as a table of theirs. Keys of the job are used; what is not the default and was not used is lost.
class Writing
{
public:
    explicit Writing(const spec::JobSpec &job);

    Json use(const std::string &ours);
    void put(std::string theirs, Json value) { m_values.emplace_back(std::move(theirs), std::move(value)); }
    void same(std::span<const Same> rows);
    void lost(const std::string &ours, std::string why);
    /// Those keys of a section that nobody used and that are not the default.
    void lostRest(const std::string &section, const std::string &why);
    void guessed(std::string theirs, const Json &value, std::string why);
    const std::vector<std::pair<std::string, Json>> &values() const { return m_values; }
    /// Adds remarks for all that nobody used.
    std::vector<Remark> finish();

private:
    bool isUsed(const std::string &path) const;

    Json m_job;
    Values m_leaves;
    std::set<std::string> m_used;
    std::vector<std::pair<std::string, Json>> m_values;
    std::vector<Remark> m_remarks;
};

std::string shown(const Json &value); ///< short, for remarks

/// One of each engine.
Result<Imported> importDeepSpeed(const Json &document, const ImportOptions &options);
Result<Imported> importMegatron(Values arguments, const ImportOptions &options);
Result<Imported> importTorchtitan(const Json &document, const ImportOptions &options);
Exported exportDeepSpeed(const spec::JobSpec &job);
Exported exportMegatron(const spec::JobSpec &job);
Exported exportTorchtitan(const spec::JobSpec &job);

/// Arguments that are keys here.
std::span<const Same> megatronRows();
struct DeepSpeedRows {
    std::span<const Same> zero, optimizer, scale;
};
DeepSpeedRows deepspeedRows();

/// Formats, to JSON or to arguments by name without dashes. BadData with the line.
Result<Json> parseToml(std::string_view text, const std::string &name);
Result<Json> parseYaml(std::string_view text, const std::string &name);
/// Arguments of all commands of a shell script: quotes, continued lines, comments, variables and arrays that the script sets itself.
/// `--name value`, `--name=value`, several values, none (true). No command is run.
Values shellArguments(std::string_view text);
/// Leaves of a YAML document by their last name, as arguments.
Values yamlArguments(const Json &document);

} // namespace rankyard::interop
