// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/base/result.h"
#include "engine/checkpoint/manifest.h"

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

/// Checkpoints of a run on disk:
///   <ckpt>/step-000000012/{MANIFEST.json, r0000-00.safetensors, …}   committed: written once, never changed
///   <ckpt>/LATEST                                                    step and manifest digest: a hint
///   <ckpt>/.tmp-<step>-<id>/                                         while it is written
/// A save: beginSave() by one process; each rank writes its files into that folder with SafetensorsWriter and reports its
/// FileEntry; commitSave() by the coordinator. Killed at any point, the folder holds the old checkpoints or the old ones and
/// the new one, never a mixture.
namespace rankyard::checkpoint {

/// "step-000000012".
std::string stepName(std::int64_t step);
/// "r0003-00.safetensors": file `part` of a rank.
std::string shardName(std::int64_t rank, std::int64_t part = 0);

/// Creates the temporary folder of one save and returns it. `id` ([A-Za-z0-9-]+) tells attempts apart. Errors: Io, InUse when this step is
/// committed already or this attempt exists.
Result<std::filesystem::path> beginSave(const std::filesystem::path &ckpt, std::int64_t step,
                                        const std::string &id);
/// Checks the manifest, checks that exactly its files are there with their sizes, writes MANIFEST.json, renames the folder to its
/// final name (the commit) and updates LATEST. Returns the final folder. After an error the temporary folder is gone and older
/// checkpoints are as they were.
Result<std::filesystem::path> commitSave(const std::filesystem::path &temporary, const Manifest &manifest);
/// Removes a temporary folder.
void abandonSave(const std::filesystem::path &temporary);
/// Removes the temporary folders of earlier attempts, all but those with this id. Call when no older save can be running.
void removeStaleSaves(const std::filesystem::path &ckpt, const std::string &exceptId);

/// How much is read to trust a checkpoint.
enum class Verify {
    Sizes,   ///< manifest and its digest, every file there with its size
    Digests, ///< also the digest of every file
};

/// The manifest of one committed folder. Errors: NotFound (no manifest: not committed), BadData, Newer, Io.
Result<Manifest> loadCheckpoint(const std::filesystem::path &folder, Verify verify);

struct ListedCheckpoint {
    std::filesystem::path folder;
    std::int64_t step = 0;
    Result<Manifest> manifest = Error{};
};
/// All step folders, newest first, each with its manifest or what is wrong with it. Io when the folder cannot be read.
Result<std::vector<ListedCheckpoint>> listCheckpoints(const std::filesystem::path &ckpt, Verify verify);

struct FoundCheckpoint {
    std::filesystem::path folder;
    Manifest manifest;
    std::vector<Error>
        skipped; ///< newer ones that cannot be used, with the reason; and a LATEST that names none
};
/// The newest valid checkpoint. NotFound when there is none; its cause is the reason why the newest was refused.
Result<FoundCheckpoint> newestCheckpoint(const std::filesystem::path &ckpt, Verify verify);

/// Keeps the newest `keep` (≥ 1) valid checkpoints and the steps in `pinned`, removes older valid ones, and what an interrupted removal left.
/// Damaged checkpoints stay for people to look at and do not count. The manifest goes first, so that a half-removed one is no checkpoint.
Status retainCheckpoints(const std::filesystem::path &ckpt, std::int64_t keep,
                         const std::set<std::int64_t> &pinned = {});

/// Reads elements of logical tensors, whatever the layout that wrote them. Maps files as they are needed; one thread.
class CheckpointReader
{
public:
    CheckpointReader(std::filesystem::path folder, Manifest manifest);

    const Manifest &manifest() const { return m_manifest; }
    /// Copies elements [begin, end) of `tensor` (one of manifest().tensors) to `out`, in the tensor's own dtype. BadData when a file does
    /// not hold what the manifest says.
    Status read(const LogicalTensor &tensor, std::int64_t begin, std::int64_t end, void *out);

private:
    Result<const StoredTensor *> stored(const LogicalTensor &tensor, const Shard &shard);

    std::filesystem::path m_folder;
    Manifest m_manifest;
    std::map<std::string, SafetensorsFile> m_files;
};

} // namespace rankyard::checkpoint
