// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/base/json.h"
#include "engine/base/result.h"
#include "engine/base/units.h"
#include "engine/checkpoint/safetensors.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace rankyard::checkpoint {

/// What a tensor is to training.
/// Error: what compressed reductions of one replica have left out; its tensors are called `<parameter>#<replica>`.
enum class Role { Param, Master, ExpAvg, ExpAvgSq, Error };
const char *nameOf(Role role); ///< "param", "master", "exp_avg", "exp_avg_sq", "error"
bool roleFromName(const std::string &name, Role &role);

/// Elements [begin, end) of a logical tensor, row-major, stored one after the other as tensor `key` of `file`.
struct Shard {
    std::string file;
    std::string key;
    std::int64_t begin = 0;
    std::int64_t end = 0;
};

/// A tensor of the model as a whole, however many ranks hold it. Padding is never stored.
struct LogicalTensor {
    std::string name; ///< canonical: "layers.0.attn.qkv.weight"
    Role role = Role::Param;
    DType dtype = DType::F32;
    std::vector<std::int64_t> shape; ///< global
    std::vector<Shard> shards;       ///< together every element exactly once, in any order
};

/// How the ranks were arranged that wrote it: for people and for "bit-equal needs the same layout", not needed to load.
struct SavedLayout {
    std::int64_t dp = 1;
    std::int64_t tp = 1;
    std::int64_t pp = 1;
    std::int64_t cp = 1;
    std::int64_t virtualStages = 1;
    std::int64_t zeroStage = 0;

    bool operator==(const SavedLayout &) const = default;
};

struct ScalerState {
    double scale = 1;
    std::int64_t goodSteps = 0; ///< steps since the last overflow or growth
    std::int64_t hysteresis =
        0; ///< what is left; below 0 after more overflows (Megatron-LM's rule counts on)

    bool operator==(const ScalerState &) const = default;
};

/// MANIFEST.json, `rankyard/checkpoint/1`: all that is needed to continue a run besides the bytes in `files`. Random
/// numbers are counter-based and learning rates a function of the
/// updates, so `step`, `skippedSteps` and `consumedSamples` are their state.
struct Manifest {
    std::string run;
    std::int64_t epoch = 0;           ///< attempt of the run
    std::string build;                ///< build id of the engine
    std::int64_t wallNs = 0;          ///< CLOCK_REALTIME when it was written
    std::int64_t step = 0;            ///< training steps done
    std::int64_t skippedSteps = 0;    ///< of them: those that overflowed and updated nothing
    std::int64_t consumedSamples = 0; ///< the data cursor: index of the next sample
    ScalerState scaler;
    std::optional<std::uint64_t> dataSeed;
    std::string dataFingerprint;
    SavedLayout layout;
    Json job;                                                 ///< the whole job document, or null
    std::vector<std::pair<std::string, std::string>> aliases; ///< name → the tensor that it shares
    std::vector<LogicalTensor> tensors;
    std::vector<FileEntry> files;

    const LogicalTensor *find(std::string_view name, Role role) const;
};

/// The rules that make a manifest usable: names of files stay in their folder, every shard's file is listed, the shards of a
/// tensor cover [0, elements) without gap or overlap, no tensor twice, nothing overflows. BadData names the tensor or file.
Status checkManifest(const Manifest &manifest);

/// The document with its digest: XXH3-128 over the compact JSON with sorted keys, without the digest itself.
OrderedJson writeManifest(const Manifest &manifest);
/// Parses, compares the digest and checks. `name` is for messages. Errors: BadData, Newer.
Result<Manifest> readManifest(std::string_view text, const std::string &name);
/// The digest that stands in a written document.
std::string manifestDigest(const OrderedJson &document);

} // namespace rankyard::checkpoint
