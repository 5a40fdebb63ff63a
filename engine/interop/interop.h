// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/base/json.h"
#include "engine/spec/job.h"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// Configurations of other training engines: read into jobs, and written from them. Nothing is dropped in silence: what has no
/// place on the other side, and what one side has to assume, is a remark.
namespace rankyard::interop {

enum class Engine {
    DeepSpeed,  ///< the JSON that deepspeed.initialize takes
    Megatron,   ///< arguments of Megatron-LM: a shell script, a command line, or its YAML
    Torchtitan, ///< TOML, as torchtitan read it until February 2026
};
const char *nameOf(Engine engine); ///< "deepspeed", "megatron", "torchtitan"
std::optional<Engine> engineNamed(std::string_view name);

struct Remark {
    enum class Kind {
        Lost,    ///< stands there and has no counterpart here
        Guessed, ///< needed here and not said there, or said in a way that has a near relative only
    };
    Kind kind = Kind::Lost;
    std::string path;  ///< of the file's value; of the job's key when the file says nothing
    std::string value; ///< what was found, or what was taken
    std::string why;
};
const char *nameOf(Remark::Kind kind); ///< "lost", "guessed"

struct ImportOptions {
    std::optional<Engine> from; ///< none: told by the content
    spec::JobSpec base; ///< where what the file does not say comes from: DeepSpeed has no model, for one
    std::optional<std::int64_t> world; ///< ranks; none: from the file where it can be known, else from `base`
};

struct Imported {
    Engine engine = Engine::DeepSpeed;
    /// rankyard/job/1 with every key. May be a job that cannot run: predict::problemsOf and spec::readJob say why.
    Json job;
    std::vector<Remark> remarks;
};

/// Which engine's configuration a text is, by its content; none when it is no such thing.
std::optional<Engine> engineOf(std::string_view text);

/// BadData names the path: malformed text, a value of the wrong type, batch sizes that contradict each other. `name` is the file.
Result<Imported> importConfig(std::string_view text, const std::string &name, const ImportOptions &options);

struct Exported {
    std::string text;
    std::vector<Remark> remarks;
};
/// The job for another engine. A key whose value is not the default and that has no place there is a remark.
Exported exportConfig(const spec::JobSpec &job, Engine to);

} // namespace rankyard::interop
