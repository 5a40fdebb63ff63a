// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/checkpoint/manifest.h"
#include "engine/comm/communicator.h"
#include "engine/exec/arena.h"
#include "engine/exec/scaler.h"
#include "engine/plan/plan.h"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

namespace rankyard::exec {

/// One rank's view of the state that checkpoints hold.
struct RankStorage {
    const plan::Plan *plan = nullptr;
    const Arenas *arenas = nullptr;
    int rank = 0;
};

/// What a checkpoint says beside the tensors.
struct SaveInfo {
    std::filesystem::path folder; ///< of all checkpoints of the run
    std::string run;
    std::uint32_t epoch = 0;
    std::string build;
    std::int64_t step = 0;
    std::int64_t skippedSteps = 0; ///< of them: overflowed, no update
    LossScaler::State scaler;
    std::string dataFingerprint;
    std::int64_t keep = 2; ///< newest ones that stay
};

/// Saves the state of all ranks of `world` at a step boundary; every rank calls it with the same `info`. Each
/// writes what it owns, as ranges of named tensors, never padding; rank 0 commits when all are done. `alive`
/// is called between pieces of work. All ranks return the same verdict; after an error nothing is left
/// behind. Returns the checkpoint's folder.
Result<std::filesystem::path> saveCheckpoint(const RankStorage &storage, comm::Communicator &world,
                                             const SaveInfo &info, const std::function<void()> &alive);

/// Reads this rank's slices from a checkpoint of any data-parallel layout; to the bit when the types are the
/// same. Padding becomes zero. What compressed reductions have left out goes on with the replica of the same number; replicas
/// that were not there begin with nothing. Errors: what the checkpoint's reader says; BadData when a tensor is missing or
/// has another shape.
Result<checkpoint::Manifest> loadCheckpoint(const RankStorage &storage, const std::filesystem::path &folder,
                                            const std::function<void()> &alive);

/// Fills this rank's parameter slices from a safetensors file, or a folder of them, with canonical names or
/// those of Hugging Face's GPT-2. `wpe` may be longer than the job's sequence. Errors: NotFound, BadData with
/// the tensor's name.
Status loadParameters(const RankStorage &storage, const std::filesystem::path &path,
                      const std::function<void()> &alive);

} // namespace rankyard::exec
