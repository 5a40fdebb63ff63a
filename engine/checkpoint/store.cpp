// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/checkpoint/store.h"

#include "engine/base/file.h"
#include "engine/checkpoint/durable.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <sys/stat.h>

namespace rankyard::checkpoint {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view stepPrefix = "step-";
constexpr std::string_view temporaryPrefix = ".tmp-";
constexpr const char *manifestName = "MANIFEST.json";
constexpr const char *latestName = "LATEST";

bool readNumber(std::string_view text, std::int64_t &value)
{
    const auto end = text.data() + text.size();
    return !text.empty() && text.front() != '-' && std::from_chars(text.data(), end, value).ptr == end;
}

/// The names in a folder; none when it does not exist.
Result<std::vector<std::string>> namesIn(const fs::path &folder)
{
    std::vector<std::string> names;
    std::error_code error;
    fs::directory_iterator it(folder, error);
    if (error == std::errc::no_such_file_or_directory)
        return names;
    for (; !error && it != fs::directory_iterator(); it.increment(error))
        names.push_back(it->path().filename().string());
    if (error)
        return Error::fromErrno(error.value(), "cannot read the folder", folder.string());
    std::sort(names.begin(), names.end());
    return names;
}

struct StepFolder {
    std::int64_t step = 0;
    fs::path path;
};

/// Newest first.
Result<std::vector<StepFolder>> stepFolders(const fs::path &ckpt)
{
    RY_ASSIGN(const std::vector<std::string> names, namesIn(ckpt));
    std::vector<StepFolder> folders;
    for (const std::string &name : names) {
        std::int64_t step = 0;
        if (name.starts_with(stepPrefix) && readNumber(std::string_view(name).substr(stepPrefix.size()), step)
            && stepName(step) == name)
            folders.push_back({step, ckpt / name});
    }
    std::sort(folders.begin(), folders.end(),
              [](const StepFolder &a, const StepFolder &b) { return a.step > b.step; });
    return folders;
}

Status checkFile(const fs::path &folder, const FileEntry &file, Verify verify)
{
    const fs::path path = folder / file.name;
    struct stat status {};
    if (::lstat(path.c_str(), &status) != 0) {
        if (errno == ENOENT)
            return Error::make(Code::BadData, "a file of the checkpoint is missing", path.string());
        return Error::fromErrno(errno, "cannot read the file", path.string());
    }
    if (!S_ISREG(status.st_mode))
        return Error::make(Code::BadData, "not a regular file", path.string());
    if (status.st_size != file.size) {
        return Error::make(Code::BadData, "the file has another size than the manifest says", path.string())
            .withFound(std::to_string(status.st_size) + " bytes")
            .withExpected(std::to_string(file.size));
    }
    if (verify == Verify::Digests) {
        RY_ASSIGN(const std::string digest, digestOfFile(path));
        if (digest != file.digest)
            return Error::make(Code::BadData, "the file is damaged", path.string())
                .withFound(digest)
                .withExpected(file.digest);
    }
    return {};
}

Status checkFiles(const fs::path &folder, const Manifest &manifest, Verify verify)
{
    for (const FileEntry &file : manifest.files)
        RY_TRY(checkFile(folder, file, verify));
    return {};
}

/// Manifest first: from then on the folder is no checkpoint.
Status removeCheckpoint(const fs::path &folder)
{
    std::error_code error;
    fs::remove(folder / manifestName, error);
    if (!error) {
        RY_TRY(syncFolder(folder));
        fs::remove_all(folder, error);
    }
    if (error)
        return Error::fromErrno(error.value(), "cannot remove the old checkpoint", folder.string());
    return {};
}

Result<fs::path> commit(const fs::path &temporary, const Manifest &manifest)
{
    RY_TRY(checkManifest(manifest));
    RY_TRY(checkFiles(temporary, manifest, Verify::Sizes));
    RY_ASSIGN(const std::vector<std::string> names, namesIn(temporary));
    for (const std::string &name : names) {
        const bool listed = std::any_of(manifest.files.begin(), manifest.files.end(),
                                        [&](const FileEntry &file) { return file.name == name; });
        if (!listed)
            return Error::make(Code::BadData, "a file that the manifest does not list",
                               (temporary / name).string());
    }
    const OrderedJson document = writeManifest(manifest);
    RY_TRY(writeFileAtomically(temporary / manifestName, dumpJson(document, 1) + "\n"));
    const fs::path ckpt = temporary.parent_path();
    const fs::path folder = ckpt / stepName(manifest.step);
    RY_TRY(renameFolder(temporary, folder));
    // Committed. LATEST is a hint that loaders do without, so its failure is not the checkpoint's.
    const OrderedJson latest = {
        {"step", manifest.step}, {"folder", stepName(manifest.step)}, {"manifest", manifestDigest(document)}};
    (void)writeFileAtomically(ckpt / latestName, dumpJson(latest) + "\n");
    return folder;
}

/// What is wrong with LATEST, if anything.
std::optional<Error> complaintAboutLatest(const fs::path &ckpt, const std::vector<StepFolder> &folders)
{
    const fs::path path = ckpt / latestName;
    const auto text = readFile(path);
    if (!text)
        return {};
    const auto json = parseJson(*text, path.string());
    const auto step = json && json->is_object() ? json->find("step") : Json::const_iterator();
    if (!json || !json->is_object() || step == json->end() || !step->is_number_unsigned())
        return Error::make(Code::BadData, "cannot be read; the newest valid checkpoint is used",
                           path.string());
    const auto wanted = step->get<std::uint64_t>();
    const bool there = std::any_of(folders.begin(), folders.end(), [&](const StepFolder &f) {
        return static_cast<std::uint64_t>(f.step) == wanted;
    });
    if (!there)
        return Error::make(Code::BadData, "names a checkpoint that is not there", path.string())
            .withFound("step " + std::to_string(wanted));
    return {};
}

} // namespace

std::string stepName(std::int64_t step)
{
    char text[40];
    std::snprintf(text, sizeof text, "step-%09lld", static_cast<long long>(step));
    return text;
}

std::string shardName(std::int64_t rank, std::int64_t part)
{
    char text[64];
    std::snprintf(text, sizeof text, "r%04lld-%02lld.safetensors", static_cast<long long>(rank),
                  static_cast<long long>(part));
    return text;
}

Result<fs::path> beginSave(const fs::path &ckpt, std::int64_t step, const std::string &id)
{
    const bool plain = !id.empty() && std::all_of(id.begin(), id.end(), [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-';
    });
    if (!plain || step < 0)
        return Error::make(Code::Internal, "not a step and an id of a save", ckpt.string()).withFound(id);
    RY_TRY(makePrivateDir(ckpt));
    std::error_code error;
    const fs::path folder = ckpt / stepName(step);
    if (fs::exists(folder, error))
        return Error::make(Code::InUse, "there is a checkpoint of this step already", folder.string());
    const fs::path temporary = ckpt / (std::string(temporaryPrefix) + std::to_string(step) + "-" + id);
    if (::mkdir(temporary.c_str(), 0700) != 0) {
        if (errno == EEXIST)
            return Error::make(Code::InUse, "this checkpoint is being written already", temporary.string());
        return Error::fromErrno(errno, "cannot create the folder", temporary.string());
    }
    return temporary;
}

Result<fs::path> commitSave(const fs::path &temporary, const Manifest &manifest)
{
    auto folder = commit(temporary, manifest);
    if (!folder)
        abandonSave(temporary);
    return folder;
}

void abandonSave(const fs::path &temporary)
{
    // Only ever a folder of ours.
    if (!temporary.filename().string().starts_with(temporaryPrefix))
        return;
    std::error_code error;
    fs::remove_all(temporary, error);
}

void removeStaleSaves(const fs::path &ckpt, const std::string &exceptId)
{
    const auto names = namesIn(ckpt);
    for (const std::string &name : names ? *names : std::vector<std::string>()) {
        if (name.starts_with(temporaryPrefix) && !name.ends_with("-" + exceptId))
            abandonSave(ckpt / name);
    }
}

Result<Manifest> loadCheckpoint(const fs::path &folder, Verify verify)
{
    const fs::path path = folder / manifestName;
    RY_ASSIGN(const std::string text, readFile(path));
    RY_ASSIGN(Manifest manifest, readManifest(text, path.string()));
    std::int64_t step = 0;
    const std::string name = folder.filename().string();
    if (name.starts_with(stepPrefix) && readNumber(std::string_view(name).substr(stepPrefix.size()), step)
        && step != manifest.step) {
        return Error::make(Code::BadData, "the manifest belongs to another step", path.string())
            .withFound(std::to_string(manifest.step))
            .withExpected(std::to_string(step));
    }
    RY_TRY(checkFiles(folder, manifest, verify));
    return manifest;
}

Result<std::vector<ListedCheckpoint>> listCheckpoints(const fs::path &ckpt, Verify verify)
{
    RY_ASSIGN(const std::vector<StepFolder> folders, stepFolders(ckpt));
    std::vector<ListedCheckpoint> listed;
    for (const StepFolder &folder : folders)
        listed.push_back({folder.path, folder.step, loadCheckpoint(folder.path, verify)});
    return listed;
}

Result<FoundCheckpoint> newestCheckpoint(const fs::path &ckpt, Verify verify)
{
    RY_ASSIGN(const std::vector<StepFolder> folders, stepFolders(ckpt));
    std::vector<Error> skipped;
    for (const StepFolder &folder : folders) {
        auto manifest = loadCheckpoint(folder.path, verify);
        if (manifest) {
            if (auto complaint = complaintAboutLatest(ckpt, folders))
                skipped.push_back(std::move(*complaint));
            return FoundCheckpoint{folder.path, std::move(manifest).value(), std::move(skipped)};
        }
        skipped.push_back(manifest.error());
    }
    Error error = Error::make(Code::NotFound, "there is no valid checkpoint", ckpt.string());
    if (!skipped.empty())
        error.cause = std::make_shared<const Error>(std::move(skipped.front()));
    return error;
}

Status retainCheckpoints(const fs::path &ckpt, std::int64_t keep, const std::set<std::int64_t> &pinned)
{
    RY_ASSIGN(const std::vector<StepFolder> folders, stepFolders(ckpt));
    std::int64_t valid = 0;
    for (const StepFolder &folder : folders) {
        std::error_code error;
        const bool committed = fs::exists(folder.path / manifestName, error);
        if (!committed && valid > 0) {
            RY_TRY(removeCheckpoint(folder.path)); // what an interrupted removal left
        } else if (committed && loadCheckpoint(folder.path, Verify::Sizes)) {
            ++valid;
            if (valid > std::max<std::int64_t>(keep, 1) && !pinned.count(folder.step))
                RY_TRY(removeCheckpoint(folder.path));
        }
    }
    return {};
}

CheckpointReader::CheckpointReader(fs::path folder, Manifest manifest)
    : m_folder(std::move(folder)),
      m_manifest(std::move(manifest))
{}

Result<const StoredTensor *> CheckpointReader::stored(const LogicalTensor &tensor, const Shard &shard)
{
    auto at = m_files.find(shard.file);
    if (at == m_files.end()) {
        RY_ASSIGN(SafetensorsFile file, SafetensorsFile::open(m_folder / shard.file));
        at = m_files.emplace(shard.file, std::move(file)).first;
    }
    const StoredTensor *found = at->second.find(shard.key);
    const std::string where = (m_folder / shard.file).string() + ": " + shard.key;
    if (!found)
        return Error::make(Code::BadData, "the file does not hold this tensor", where);
    if (found->dtype != tensor.dtype)
        return Error::make(Code::BadData, "the tensor has another type than the manifest says", where)
            .withFound(found->type)
            .withExpected(nameOf(tensor.dtype));
    if (found->elements != shard.end - shard.begin) {
        return Error::make(Code::BadData, "the tensor has another size than the manifest says", where)
            .withFound(std::to_string(found->elements))
            .withExpected(std::to_string(shard.end - shard.begin));
    }
    return found;
}

Status CheckpointReader::read(const LogicalTensor &tensor, std::int64_t begin, std::int64_t end, void *out)
{
    RY_ASSIGN(const std::int64_t elements, elementsOf(tensor.shape, tensor.name));
    if (begin < 0 || end < begin || end > elements)
        return Error::make(Code::Internal, "elements outside the tensor were asked for", tensor.name);
    const auto itemBytes = static_cast<std::int64_t>(bytesOf(tensor.dtype));
    std::int64_t copied = 0;
    for (const Shard &shard : tensor.shards) {
        const std::int64_t from = std::max(begin, shard.begin);
        const std::int64_t to = std::min(end, shard.end);
        if (from >= to)
            continue;
        RY_ASSIGN(const StoredTensor *source, stored(tensor, shard));
        std::memcpy(static_cast<std::byte *>(out) + (from - begin) * itemBytes,
                    source->data.data() + (from - shard.begin) * itemBytes,
                    static_cast<std::size_t>((to - from) * itemBytes));
        copied += to - from;
    }
    if (copied != end - begin)
        return Error::make(Code::BadData, "the shards do not cover the tensor", tensor.name);
    return {};
}

} // namespace rankyard::checkpoint
