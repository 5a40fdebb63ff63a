// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/base/digest.h"
#include "engine/base/file.h"
#include "engine/base/mapped_file.h"
#include "engine/base/result.h"
#include "engine/base/units.h"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

/// The safetensors format. Source: huggingface/safetensors safetensors/src/tensor.rs.
namespace rankyard::checkpoint {

using Metadata = std::map<std::string, std::string>;

/// A tensor that is to be written: name, type, shape (row-major; {} is a scalar).
struct TensorSpec {
    std::string name;
    DType dtype = DType::F32;
    std::vector<std::int64_t> shape;
};

/// Product of the extents; an error when one is negative or the product leaves 63 bits. `where` names the tensor.
Result<std::int64_t> elementsOf(const std::vector<std::int64_t> &shape, const std::string &where);

/// A file that was written: its name in its folder, its size and its digest ("xxh3-128:…").
struct FileEntry {
    std::string name;
    std::int64_t size = 0;
    std::string digest;

    bool operator==(const FileEntry &) const = default;
};

/// Writes one file front to back: the header is known at the start, the data are streamed in the declared order, hashed on the
/// way. The file is "<path>.part" until finish() flushes and renames it; destroyed before that, it is removed. One thread.
/// Declare wide types first (as Hugging Face's writer does) when readers should find every tensor aligned.
class SafetensorsWriter
{
public:
    /// Errors: Internal for duplicate names or shapes that overflow; Io.
    static Result<SafetensorsWriter> create(const std::filesystem::path &path,
                                            const std::vector<TensorSpec> &tensors,
                                            const Metadata &metadata = {});
    SafetensorsWriter(SafetensorsWriter &&) noexcept;
    SafetensorsWriter &operator=(SafetensorsWriter &&) = delete;
    ~SafetensorsWriter();

    /// The next bytes of the data section, in pieces of any size. Internal when there are more than declared.
    Status write(std::span<const std::byte> bytes);
    /// fsync, rename, fsync of the folder. Internal when bytes are missing.
    Result<FileEntry> finish();

    std::int64_t dataBytes() const { return m_dataBytes; }

private:
    SafetensorsWriter() = default;

    std::filesystem::path m_path;
    std::string m_part;
    Fd m_fd;
    Digest m_digest;
    std::int64_t m_headerBytes = 0;
    std::int64_t m_dataBytes = 0;
    std::int64_t m_written = 0;
};

/// A tensor in a file. `data` points into the mapping and may be unaligned in foreign files.
struct StoredTensor {
    std::string name;
    std::string type;           ///< as in the file: "F32", "BF16", "F8_E4M3" …
    std::optional<DType> dtype; ///< when Rankyard computes with it
    std::vector<std::int64_t> shape;
    std::int64_t elements = 0;
    std::span<const std::byte> data;
};

/// A mapped file whose header passed every check of the format. Immutable: any thread. Tensors stay valid as long as it lives.
class SafetensorsFile
{
public:
    /// Errors: NotFound, Io, BadData with the rule that is broken.
    static Result<SafetensorsFile> open(const std::filesystem::path &path);

    /// In the order of the data.
    const std::vector<StoredTensor> &tensors() const { return m_tensors; }
    const StoredTensor *find(std::string_view name) const;
    const Metadata &metadata() const { return m_metadata; }

private:
    Status parse(const std::string &name);

    MappedFile m_file;
    std::vector<StoredTensor> m_tensors;
    std::map<std::string, std::size_t, std::less<>> m_byName;
    Metadata m_metadata;
};

} // namespace rankyard::checkpoint
