// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/exec/checkpoint_io.h"

#include "engine/base/file.h"
#include "engine/base/float16.h"
#include "engine/checkpoint/gpt2_names.h"
#include "engine/checkpoint/store.h"
#include "engine/exec/elements.h"
#include "engine/plan/shard.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <future>
#include <map>
#include <optional>

namespace rankyard::exec {

namespace fs = std::filesystem;
using checkpoint::Role;

namespace {

constexpr std::int64_t blockElements = 65536;
constexpr std::int64_t copyBytes = 8 << 20; ///< that are on their way to a file at once

/// The buffers of a bucket that are state, and what they are.
struct Stored {
    Role role;
    plan::BufferId plan::Bucket::*buffer;
};
constexpr Stored storedRoles[] = {{Role::Param, &plan::Bucket::paramSlice},
                                  {Role::Master, &plan::Bucket::master},
                                  {Role::ExpAvg, &plan::Bucket::exp1},
                                  {Role::ExpAvgSq, &plan::Bucket::exp2}};

/// A rank's part of one tensor in one role.
struct Piece {
    Role role = Role::Param;
    const plan::Tensor *tensor = nullptr;
    std::string name; ///< the tensor's; of what a replica has for itself with its number
    DType dtype = DType::F32;
    std::byte *data = nullptr; ///< of element `begin`
    std::int64_t begin = 0;
    std::int64_t end = 0;
    bool owned = true; ///< this rank writes it

    std::string key() const
    {
        return name + "." + checkpoint::nameOf(role) + "[" + std::to_string(begin) + ":" + std::to_string(end)
            + "]";
    }
    std::int64_t bytes() const { return (end - begin) * static_cast<std::int64_t>(bytesOf(dtype)); }
};

/// What this rank's compressed reductions have left out. Each replica has its own; so has each end of a pipeline for a tied
/// embedding.
void addErrors(const RankStorage &storage, const plan::StepProgram &program, std::vector<Piece> &pieces)
{
    const plan::RankGrid &grid = storage.plan->grid;
    for (std::size_t index = 0; index < program.buckets.size(); ++index) {
        const plan::Bucket &bucket = program.buckets[index];
        if (bucket.error == plan::none)
            continue;
        // Number of the rank among all that have this bucket: with shards in blocks the block's first place is not the first.
        const auto indexIn = [&](plan::GroupId group) {
            return group == plan::none
                ? 0
                : grid.indexIn(storage.rank, program.groups[static_cast<std::size_t>(group)]);
        };
        const int blockSize =
            bucket.group == plan::none ? 1 : program.groups[static_cast<std::size_t>(bucket.group)].size;
        const int replica = indexIn(bucket.replicas) * blockSize + indexIn(bucket.group);
        const DType dtype = program.buffer(bucket.error).dtype;
        std::byte *base = storage.arenas->address(program, bucket.error);
        for (const plan::ShardRange &range :
             plan::wholeOf(program, grid, storage.rank, static_cast<std::int32_t>(index))) {
            const plan::Tensor &tensor = program.tensors[static_cast<std::size_t>(range.tensor)];
            pieces.push_back({Role::Error, &tensor,
                              tensor.name + "#" + std::to_string(replica) + (tensor.counted ? "" : "#copy"),
                              dtype, base + range.at * static_cast<std::int64_t>(bytesOf(dtype)), range.begin,
                              range.end, true});
        }
    }
}

std::vector<Piece> piecesOf(const RankStorage &storage)
{
    const plan::StepProgram &program = storage.plan->program(plan::ProgramKind::Train, storage.rank);
    std::vector<Piece> pieces;
    for (const plan::ShardRange &range : plan::shardOf(program, storage.plan->grid, storage.rank)) {
        const plan::Bucket &bucket = program.buckets[static_cast<std::size_t>(range.bucket)];
        for (const Stored &stored : storedRoles) {
            const plan::BufferId id = bucket.*stored.buffer;
            if (id == plan::none)
                continue;
            const DType dtype = program.buffer(id).dtype;
            std::byte *base = storage.arenas->address(program, id);
            const plan::Tensor &tensor = program.tensors[static_cast<std::size_t>(range.tensor)];
            pieces.push_back({stored.role, &tensor, tensor.name, dtype,
                              base + range.at * static_cast<std::int64_t>(bytesOf(dtype)), range.begin,
                              range.end, range.owned});
        }
    }
    addErrors(storage, program, pieces);
    return pieces;
}

/// Runs `work`, which may wait for a disk for long, beside calls of `alive` on this thread.
template<typename Work>
auto whileAlive(const std::function<void()> &alive, Work work)
{
    auto result = std::async(std::launch::async, std::move(work));
    while (result.wait_for(std::chrono::milliseconds(200)) != std::future_status::ready)
        alive();
    return result.get();
}

std::vector<std::int64_t> shapeOf(const plan::Tensor &tensor)
{
    return tensor.global.empty() ? std::vector<std::int64_t>{tensor.numel} : tensor.global;
}

// ---------------------------------------------------------------------------------------------------- saving

/// What a rank tells rank 0 about its file, as JSON beside it.
Json describePart(const std::vector<Piece> &pieces, const checkpoint::FileEntry &file)
{
    Json shards = Json::array();
    for (const Piece &piece : pieces) {
        shards.push_back({{"name", piece.name},
                          {"role", checkpoint::nameOf(piece.role)},
                          {"dtype", nameOf(piece.dtype)},
                          {"shape", shapeOf(*piece.tensor)},
                          {"key", piece.key()},
                          {"begin", piece.begin},
                          {"end", piece.end}});
    }
    return {{"file", {{"name", file.name}, {"size", file.size}, {"digest", file.digest}}},
            {"shards", shards}};
}

fs::path partPath(const fs::path &folder, int rank)
{
    return folder / ("part-" + std::to_string(rank) + ".json");
}

Status writePart(const RankStorage &storage, const fs::path &folder, const std::function<void()> &alive)
{
    std::vector<Piece> pieces = piecesOf(storage);
    std::erase_if(pieces, [](const Piece &piece) { return !piece.owned; });
    if (pieces.empty())
        return writeFileAtomically(partPath(folder, storage.rank), "{}");
    // Wide types first, so that every reader finds every tensor aligned.
    std::stable_sort(pieces.begin(), pieces.end(),
                     [](const Piece &a, const Piece &b) { return bytesOf(a.dtype) > bytesOf(b.dtype); });
    std::vector<checkpoint::TensorSpec> specs;
    for (const Piece &piece : pieces)
        specs.push_back({piece.key(), piece.dtype, {piece.end - piece.begin}});
    const std::string name = checkpoint::shardName(storage.rank);
    RY_ASSIGN(auto writer, checkpoint::SafetensorsWriter::create(folder / name, specs));
    std::vector<std::byte> block(static_cast<std::size_t>(copyBytes));
    for (const Piece &piece : pieces) {
        for (std::int64_t at = 0; at < piece.bytes(); at += copyBytes) {
            const std::int64_t bytes = std::min(copyBytes, piece.bytes() - at);
            RY_TRY(storage.arenas->read(block.data(), piece.data + at, bytes));
            RY_TRY(writer.write({block.data(), static_cast<std::size_t>(bytes)}));
            alive();
        }
    }
    RY_ASSIGN(const checkpoint::FileEntry file, whileAlive(alive, [&writer] { return writer.finish(); }));
    return writeFileAtomically(partPath(folder, storage.rank), dumpJson(describePart(pieces, file)));
}

/// Adds a rank's part to the manifest.
void addPart(const Json &part, checkpoint::Manifest &manifest, std::map<std::string, std::size_t> &places)
{
    if (!part.contains("file"))
        return;
    checkpoint::FileEntry file;
    part.at("file").at("name").get_to(file.name);
    part.at("file").at("size").get_to(file.size);
    part.at("file").at("digest").get_to(file.digest);
    for (const Json &json : part.at("shards")) {
        const auto name = json.at("name").get<std::string>();
        const auto role = json.at("role").get<std::string>();
        const auto [place, isNew] = places.emplace(role + "/" + name, manifest.tensors.size());
        if (isNew) {
            checkpoint::LogicalTensor tensor;
            tensor.name = name;
            checkpoint::roleFromName(role, tensor.role);
            dtypeFromName(json.at("dtype").get<std::string>(), tensor.dtype);
            json.at("shape").get_to(tensor.shape);
            manifest.tensors.push_back(std::move(tensor));
        }
        checkpoint::Shard shard{file.name, json.at("key").get<std::string>(),
                                json.at("begin").get<std::int64_t>(), json.at("end").get<std::int64_t>()};
        manifest.tensors[place->second].shards.push_back(std::move(shard));
    }
    manifest.files.push_back(std::move(file));
}

Result<fs::path> commit(const RankStorage &storage, const fs::path &folder, const SaveInfo &info)
{
    const spec::JobSpec &job = storage.plan->job;
    checkpoint::Manifest manifest;
    manifest.run = info.run;
    manifest.epoch = info.epoch;
    manifest.build = info.build;
    manifest.wallNs = wallNs();
    manifest.step = info.step;
    manifest.skippedSteps = info.skippedSteps;
    manifest.consumedSamples = info.step * job.batch.global;
    manifest.scaler = {info.scaler.scale, info.scaler.goodSteps, info.scaler.hysteresis};
    manifest.dataSeed = job.data.seed;
    manifest.dataFingerprint = info.dataFingerprint;
    manifest.layout = {job.layout.dp, job.layout.tp, job.layout.pp, job.layout.cp, job.layout.virtualStages,
                       job.zero.stage};
    manifest.job = Json::parse(dumpJson(spec::writeJob(job)));
    if (job.model.tied)
        manifest.aliases.emplace_back("head.weight", "wte.weight");
    std::map<std::string, std::size_t> places;
    for (int rank = 0; rank < storage.plan->grid.world(); ++rank) {
        const fs::path path = partPath(folder, rank);
        RY_ASSIGN(const std::string text, readFile(path));
        RY_ASSIGN(const Json part, parseJson(text, path.string()));
        try {
            addPart(part, manifest, places);
        } catch (const Json::exception &exception) {
            return Error::make(Code::BadData, "a rank's part of the checkpoint cannot be read", path.string())
                .withFound(exception.what());
        }
        std::error_code error;
        fs::remove(path, error);
    }
    RY_ASSIGN(const fs::path final, checkpoint::commitSave(folder, manifest));
    RY_TRY(checkpoint::retainCheckpoints(info.folder, std::max<std::int64_t>(1, info.keep)));
    return final;
}

/// All ranks learn whether any of them failed. The one that did returns its own error, the others that a peer
/// failed.
Status agree(comm::Communicator &world, const Status &own)
{
    std::int64_t failed = own.ok() ? 0 : 1;
    RY_ASSIGN(const comm::Ticket ticket, world.allReduce(&failed, 1, DType::I64, comm::ReduceOp::Sum));
    RY_TRY(world.wait(ticket));
    if (!own.ok())
        return own;
    if (failed > 0)
        return Error::make(Code::Io, "another rank could not write its part of the checkpoint");
    return {};
}

/// Rank 0's path to all ranks.
Result<fs::path> broadcastPath(comm::Communicator &world, const fs::path &path)
{
    std::array<std::int32_t, 4096> letters{};
    const std::string text = path.string();
    if (text.size() >= letters.size())
        return Error::make(Code::Io, "the checkpoint folder's path is too long", text);
    for (std::size_t i = 0; world.rank() == 0 && i < text.size(); ++i)
        letters[i] = static_cast<unsigned char>(text[i]);
    RY_ASSIGN(const comm::Ticket ticket,
              world.allReduce(letters.data(), letters.size(), DType::I32, comm::ReduceOp::Sum));
    RY_TRY(world.wait(ticket));
    std::string received;
    for (std::size_t i = 0; letters[i] != 0; ++i)
        received.push_back(static_cast<char>(letters[i]));
    return fs::path(received);
}

} // namespace

Result<fs::path> saveCheckpoint(const RankStorage &storage, comm::Communicator &world, const SaveInfo &info,
                                const std::function<void()> &alive)
{
    const bool first = world.rank() == 0;
    Status begun;
    fs::path temporary;
    if (first) {
        const std::string id = std::to_string(info.epoch) + "-" + std::to_string(monotonicNs());
        begun = makePrivateDir(info.folder);
        if (begun.ok()) {
            if (auto made = checkpoint::beginSave(info.folder, info.step, id); made.ok())
                temporary = *made;
            else
                begun = made.error();
        }
    }
    RY_TRY(agree(world, begun));
    RY_ASSIGN(temporary, broadcastPath(world, temporary));
    Status done = agree(world, writePart(storage, temporary, alive));
    if (!done.ok()) {
        if (first)
            checkpoint::abandonSave(temporary);
        return done.error();
    }
    fs::path final;
    if (first) {
        auto committed = whileAlive(alive, [&] { return commit(storage, temporary, info); });
        if (committed.ok())
            final = *committed;
        else
            done = committed.error();
    }
    RY_TRY(agree(world, done));
    return broadcastPath(world, final);
}

// --------------------------------------------------------------------------------------------------- loading

namespace {

double elementOf(DType type, const std::byte *data, std::int64_t at)
{
    const auto load = [data, at]<typename T>(T) {
        T value;
        std::memcpy(&value, data + at * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
        return value;
    };
    switch (type) {
    case DType::F64:
        return load(double{});
    case DType::F32:
        return load(float{});
    case DType::BF16:
        return fromBFloat16(load(std::uint16_t{}));
    case DType::F16:
        return fromHalf(load(std::uint16_t{}));
    default:
        return 0;
    }
}

bool isFloating(DType type)
{
    return type == DType::F64 || type == DType::F32 || type == DType::BF16 || type == DType::F16;
}

/// Which stored tensor a piece is read from: its own role; parameters and masters stand in for each other.
const checkpoint::LogicalTensor *sourceOf(const checkpoint::Manifest &manifest, const Piece &piece)
{
    if (piece.role != Role::Param && piece.role != Role::Master)
        return manifest.find(piece.name, piece.role);
    const auto *own = manifest.find(piece.tensor->name, piece.role);
    if (own && own->dtype == piece.dtype)
        return own;
    const auto *master = manifest.find(piece.tensor->name, Role::Master);
    return master ? master : own ? own : manifest.find(piece.tensor->name, Role::Param);
}

/// Writes elements of a piece, from `at` of its tensor, to where they lie.
Status storePiece(const Arenas &arenas, const Piece &piece, std::int64_t at, const double *values,
                  std::int64_t count)
{
    const auto size = static_cast<std::int64_t>(bytesOf(piece.dtype));
    std::vector<std::byte> raw(static_cast<std::size_t>(count * size));
    storeElements(piece.dtype, raw.data(), 0, values, count);
    return arenas.write(piece.data + (at - piece.begin) * size, raw.data(), count * size);
}

Status readPiece(const Arenas &arenas, checkpoint::CheckpointReader &reader, const Piece &piece)
{
    const checkpoint::LogicalTensor *source = sourceOf(reader.manifest(), piece);
    if (!source
        && piece.role == Role::Error) { // saved without compression, or a replica more than there were
        const std::vector<std::byte> zeros(static_cast<std::size_t>(std::min(copyBytes, piece.bytes())));
        for (std::int64_t at = 0; at < piece.bytes(); at += copyBytes)
            RY_TRY(arenas.write(piece.data + at, zeros.data(), std::min(copyBytes, piece.bytes() - at)));
        return {};
    }
    if (!source || source->shape != shapeOf(*piece.tensor) || !isFloating(source->dtype))
        return Error::make(Code::BadData,
                           source ? "a tensor of the checkpoint has another shape or type"
                                  : "a tensor is not in the checkpoint",
                           piece.tensor->name + " (" + checkpoint::nameOf(piece.role) + ")");
    std::vector<std::byte> raw(static_cast<std::size_t>(blockElements) * bytesOf(source->dtype));
    std::vector<double> values(static_cast<std::size_t>(blockElements));
    for (std::int64_t at = piece.begin; at < piece.end; at += blockElements) {
        const std::int64_t end = std::min(piece.end, at + blockElements);
        RY_TRY(reader.read(*source, at, end, raw.data()));
        if (source->dtype == piece.dtype) {
            const auto size = static_cast<std::int64_t>(bytesOf(piece.dtype));
            RY_TRY(arenas.write(piece.data + (at - piece.begin) * size, raw.data(), (end - at) * size));
            continue;
        }
        for (std::int64_t i = 0; i < end - at; ++i)
            values[static_cast<std::size_t>(i)] = elementOf(source->dtype, raw.data(), i);
        RY_TRY(storePiece(arenas, piece, at, values.data(), end - at));
    }
    return {};
}

} // namespace

Result<checkpoint::Manifest> loadCheckpoint(const RankStorage &storage, const fs::path &folder,
                                            const std::function<void()> &alive)
{
    RY_ASSIGN(checkpoint::Manifest manifest, checkpoint::loadCheckpoint(folder, checkpoint::Verify::Sizes));
    checkpoint::CheckpointReader reader(folder, manifest);
    for (const Piece &piece : piecesOf(storage)) {
        RY_TRY(readPiece(*storage.arenas, reader, piece));
        alive();
    }
    return manifest;
}

namespace {

/// The files at `path`: itself, or every *.safetensors in it.
Result<std::vector<checkpoint::SafetensorsFile>> openFiles(const fs::path &path)
{
    std::vector<fs::path> paths;
    std::error_code error;
    if (fs::is_directory(path, error)) {
        for (const auto &entry : fs::directory_iterator(path, error)) {
            if (entry.path().extension() == ".safetensors")
                paths.push_back(entry.path());
        }
        std::sort(paths.begin(), paths.end());
    } else {
        paths.push_back(path);
    }
    std::vector<checkpoint::SafetensorsFile> files;
    for (const fs::path &one : paths) {
        RY_ASSIGN(auto file, checkpoint::SafetensorsFile::open(one));
        files.push_back(std::move(file));
    }
    if (files.empty())
        return Error::make(Code::NotFound, "there is no safetensors file", path.string());
    return files;
}

struct Source {
    const checkpoint::StoredTensor *tensor = nullptr;
    bool transposed = false;
};

/// By canonical name, else by Hugging Face's with or without its prefix.
Source findSource(const std::vector<checkpoint::SafetensorsFile> &files, const std::string &canonical)
{
    const auto foreign = checkpoint::toHuggingFace(canonical);
    for (const checkpoint::SafetensorsFile &file : files) {
        if (const auto *own = file.find(canonical))
            return {own, false};
        if (!foreign)
            continue;
        for (const std::string &name : {foreign->name, "transformer." + foreign->name}) {
            if (const auto *theirs = file.find(name))
                return {theirs, foreign->transposed};
        }
    }
    return {};
}

Status fillFrom(const Arenas &arenas, const Source &source, const Piece &piece)
{
    const checkpoint::StoredTensor &stored = *source.tensor;
    std::vector<std::int64_t> shape = shapeOf(*piece.tensor);
    std::vector<std::int64_t> expected = checkpoint::foreignShape(shape, source.transposed);
    std::vector<std::int64_t> found = stored.shape;
    // Positions beyond the job's sequence are not used.
    if (piece.tensor->name == "wpe.weight" && found.size() == 2 && found[0] > expected[0])
        found[0] = expected[0];
    if (found != expected || !stored.dtype || !isFloating(*stored.dtype)) {
        std::string dimensions;
        for (const std::int64_t extent : stored.shape)
            dimensions += (dimensions.empty() ? "" : " x ") + std::to_string(extent);
        return Error::make(Code::BadData, "a tensor of the starting weights has another shape or type",
                           stored.name)
            .withFound(stored.type + " " + dimensions);
    }
    std::vector<double> values(static_cast<std::size_t>(blockElements));
    const std::int64_t columns = shape.back();
    const std::int64_t rows = piece.tensor->numel / columns;
    for (std::int64_t at = piece.begin; at < piece.end; at += blockElements) {
        const std::int64_t count = std::min(blockElements, piece.end - at);
        for (std::int64_t i = 0; i < count; ++i) {
            const std::int64_t e = at + i;
            const std::int64_t from = source.transposed ? e % columns * rows + e / columns : e;
            values[static_cast<std::size_t>(i)] = elementOf(*stored.dtype, stored.data.data(), from);
        }
        RY_TRY(storePiece(arenas, piece, at, values.data(), count));
    }
    return {};
}

} // namespace

Status loadParameters(const RankStorage &storage, const fs::path &path, const std::function<void()> &alive)
{
    RY_ASSIGN(const auto files, openFiles(path));
    for (const Piece &piece : piecesOf(storage)) {
        if (piece.role != Role::Param && piece.role != Role::Master)
            continue;
        const Source source = findSource(files, piece.tensor->name);
        if (!source.tensor)
            return Error::make(Code::BadData, "a parameter is not in the starting weights", path.string())
                .withExpected(piece.tensor->name);
        RY_TRY(fillFrom(*storage.arenas, source, piece));
        alive();
    }
    return {};
}

} // namespace rankyard::exec
