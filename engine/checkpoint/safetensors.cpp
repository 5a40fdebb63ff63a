// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/checkpoint/safetensors.h"

#include "engine/base/json.h"
#include "engine/checkpoint/durable.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <set>
#include <unistd.h>

namespace rankyard::checkpoint {

namespace fs = std::filesystem;

namespace {

constexpr std::uint64_t largestHeader = 100'000'000;
constexpr std::size_t lengthBytes = 8;

struct TypeRow {
    const char *name;
    int bits;
    std::optional<DType> dtype;
};

const TypeRow typeTable[] = {
    {"F64", 64, DType::F64}, {"F32", 32, DType::F32}, {"BF16", 16, DType::BF16}, {"F16", 16, DType::F16},
    {"I64", 64, DType::I64}, {"I32", 32, DType::I32}, {"U16", 16, DType::U16},   {"U8", 8, DType::U8},
    {"BOOL", 8, {}},         {"I8", 8, {}},           {"I16", 16, {}},           {"U32", 32, {}},
    {"U64", 64, {}},         {"C64", 64, {}},         {"F8_E4M3", 8, {}},        {"F8_E5M2", 8, {}},
    {"F8_E8M0", 8, {}},      {"F8_E4M3FNUZ", 8, {}},  {"F8_E5M2FNUZ", 8, {}},    {"F6_E2M3", 6, {}},
    {"F6_E3M2", 6, {}},      {"F4", 4, {}},
};

const char *fileType(DType dtype)
{
    for (const TypeRow &row : typeTable) {
        if (row.dtype == dtype)
            return row.name;
    }
    return "";
}

Error bad(const std::string &file, std::string what, std::string found = {}, std::string expected = {})
{
    return Error::make(Code::BadData, std::move(what), file)
        .withFound(std::move(found))
        .withExpected(std::move(expected));
}

/// A JSON number that is a whole one from 0 to 2^63 − 1.
bool readSize(const Json &json, std::int64_t &out)
{
    if (!json.is_number_unsigned() || json.get<std::uint64_t>() > static_cast<std::uint64_t>(INT64_MAX))
        return false;
    out = json.get<std::int64_t>();
    return true;
}

struct Range {
    std::int64_t begin = 0;
    std::int64_t end = 0;
};

/// One entry of the header; its range is not yet checked against the others.
Status readEntry(const std::string &file, const std::string &name, const Json &json, StoredTensor &tensor,
                 Range &range)
{
    const std::string where = file + ": " + name;
    const auto dtype = json.is_object() ? json.find("dtype") : json.end();
    const auto shape = json.is_object() ? json.find("shape") : json.end();
    const auto offsets = json.is_object() ? json.find("data_offsets") : json.end();
    if (!json.is_object() || dtype == json.end() || shape == json.end() || offsets == json.end()
        || !dtype->is_string() || !shape->is_array() || !offsets->is_array() || offsets->size() != 2)
        return bad(where, "not the description of a tensor", {},
                   "{dtype, shape, data_offsets: [begin, end]}");
    tensor.name = name;
    tensor.type = dtype->get<std::string>();
    const auto row = std::find_if(std::begin(typeTable), std::end(typeTable),
                                  [&](const TypeRow &r) { return tensor.type == r.name; });
    if (row == std::end(typeTable))
        return bad(where, "unknown type of tensor", tensor.type);
    tensor.dtype = row->dtype;
    for (const Json &extent : *shape) {
        if (!readSize(extent, tensor.shape.emplace_back()))
            return bad(where, "an extent of the shape is not a size", dumpJson(extent));
    }
    if (!readSize((*offsets)[0], range.begin) || !readSize((*offsets)[1], range.end)
        || range.end < range.begin)
        return bad(where, "the data offsets are not a range", dumpJson(*offsets));
    RY_ASSIGN(tensor.elements, elementsOf(tensor.shape, where));
    std::int64_t bits = 0;
    if (__builtin_mul_overflow(tensor.elements, static_cast<std::int64_t>(row->bits), &bits))
        return bad(where, "the tensor is larger than 63 bits can count");
    if (bits % 8 != 0)
        return bad(where, "the tensor does not end on a whole byte", std::to_string(bits) + " bits");
    if (bits / 8 != range.end - range.begin) {
        return bad(where, "the shape and the data offsets disagree",
                   std::to_string(range.end - range.begin) + " bytes", std::to_string(bits / 8));
    }
    return {};
}

} // namespace

Result<std::int64_t> elementsOf(const std::vector<std::int64_t> &shape, const std::string &where)
{
    std::int64_t product = 1;
    bool overflow = false;
    for (const std::int64_t extent : shape) {
        if (extent < 0)
            return bad(where, "a negative extent in the shape", std::to_string(extent));
        overflow = overflow || __builtin_mul_overflow(product, extent, &product);
    }
    if (overflow)
        return bad(where, "the shape has more elements than 63 bits can count");
    return product;
}

// ---- writer ----

SafetensorsWriter::SafetensorsWriter(SafetensorsWriter &&other) noexcept
    : m_path(std::move(other.m_path)),
      m_part(std::exchange(other.m_part, {})),
      m_fd(std::move(other.m_fd)),
      m_digest(std::move(other.m_digest)),
      m_headerBytes(other.m_headerBytes),
      m_dataBytes(other.m_dataBytes),
      m_written(other.m_written)
{}

SafetensorsWriter::~SafetensorsWriter()
{
    if (!m_part.empty())
        ::unlink(m_part.c_str());
}

Result<SafetensorsWriter> SafetensorsWriter::create(const fs::path &path,
                                                    const std::vector<TensorSpec> &tensors,
                                                    const Metadata &metadata)
{
    SafetensorsWriter writer;
    OrderedJson header = OrderedJson::object();
    if (!metadata.empty())
        header["__metadata__"] = metadata;
    std::set<std::string_view> names;
    for (const TensorSpec &tensor : tensors) {
        const std::string where = path.string() + ": " + tensor.name;
        if (tensor.name == "__metadata__" || !names.insert(tensor.name).second)
            return Error::make(Code::Internal, "a tensor of this name was declared already", where);
        RY_ASSIGN(const std::int64_t elements, elementsOf(tensor.shape, where));
        const std::int64_t begin = writer.m_dataBytes;
        std::int64_t bytes = 0;
        if (__builtin_mul_overflow(elements, static_cast<std::int64_t>(bytesOf(tensor.dtype)), &bytes)
            || __builtin_add_overflow(begin, bytes, &writer.m_dataBytes))
            return Error::make(Code::Internal, "the file would be larger than 63 bits can count", where);
        header[tensor.name] = {{"dtype", fileType(tensor.dtype)},
                               {"shape", tensor.shape},
                               {"data_offsets", {begin, writer.m_dataBytes}}};
    }
    std::string text = dumpJson(header);
    text.resize((text.size() + 7) / 8 * 8, ' '); // data begin at a multiple of 8
    if (text.size() > largestHeader)
        return Error::make(Code::Internal, "the header is larger than the format allows", path.string());
    const std::uint64_t length = text.size();
    std::string start(reinterpret_cast<const char *>(&length), sizeof length);
    start += text;
    writer.m_path = path;
    writer.m_part = path.string() + ".part";
    writer.m_headerBytes = static_cast<std::int64_t>(start.size());
    writer.m_fd =
        Fd(::open(writer.m_part.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644));
    if (!writer.m_fd.valid()) {
        const int number = errno;
        writer.m_part.clear();
        return Error::fromErrno(number, "cannot create the file", path.string());
    }
    writer.m_digest.update(start.data(), start.size());
    RY_TRY(writeAll(writer.m_fd.get(), start, path.string()));
    return writer;
}

Status SafetensorsWriter::write(std::span<const std::byte> bytes)
{
    if (static_cast<std::uint64_t>(m_dataBytes - m_written) < bytes.size())
        return Error::make(Code::Internal, "more data than the header declares", m_path.string());
    RY_TRY(
        writeAll(m_fd.get(), {reinterpret_cast<const char *>(bytes.data()), bytes.size()}, m_path.string()));
    m_digest.update(bytes.data(), bytes.size());
    m_written += static_cast<std::int64_t>(bytes.size());
    return {};
}

Result<FileEntry> SafetensorsWriter::finish()
{
    if (m_written != m_dataBytes) {
        return Error::make(Code::Internal, "less data than the header declares", m_path.string())
            .withFound(std::to_string(m_written))
            .withExpected(std::to_string(m_dataBytes));
    }
    if (::fsync(m_fd.get()) != 0)
        return Error::fromErrno(errno, "cannot flush the file", m_path.string());
    if (::rename(m_part.c_str(), m_path.c_str()) != 0)
        return Error::fromErrno(errno, "cannot put the file in place", m_path.string());
    m_part.clear();
    m_fd.reset();
    RY_TRY(syncFolder(m_path.parent_path()));
    return FileEntry{m_path.filename().string(), m_headerBytes + m_dataBytes, m_digest.text()};
}

// ---- reader ----

Result<SafetensorsFile> SafetensorsFile::open(const fs::path &path)
{
    SafetensorsFile file;
    RY_ASSIGN(file.m_file, MappedFile::open(path));
    RY_TRY(file.parse(path.string()));
    return file;
}

Status SafetensorsFile::parse(const std::string &name)
{
    const std::size_t size = m_file.size();
    if (size < lengthBytes)
        return bad(name, "too short for a header", std::to_string(size) + " bytes", "at least 8");
    std::uint64_t header = 0;
    std::memcpy(&header, m_file.data(), lengthBytes);
    if (header > largestHeader)
        return bad(name, "the header is too large", std::to_string(header) + " bytes", "at most 100000000");
    if (header > size - lengthBytes) {
        return bad(name, "the file is truncated: the header is longer than the file",
                   std::to_string(size) + " bytes", std::to_string(header + lengthBytes));
    }
    const std::string_view text(reinterpret_cast<const char *>(m_file.data()) + lengthBytes, header);
    if (text.empty() || text.front() != '{')
        return bad(name, "the header does not begin with {");
    RY_ASSIGN(const Json json, parseJson(text, name));

    std::vector<std::pair<Range, StoredTensor>> entries;
    for (const auto &[key, value] : json.items()) {
        if (key != "__metadata__") {
            auto &[range, tensor] = entries.emplace_back();
            RY_TRY(readEntry(name, key, value, tensor, range));
            continue;
        }
        if (!value.is_object())
            return bad(name, "__metadata__ is not an object");
        for (const auto &[entry, text2] : value.items()) {
            if (!text2.is_string())
                return bad(name, "__metadata__ holds something else than text", entry);
            m_metadata[entry] = text2.get<std::string>();
        }
    }
    // Empty tensors share their begin with the next one: they come first.
    std::sort(entries.begin(), entries.end(), [](const auto &a, const auto &b) {
        return std::tie(a.first.begin, a.first.end, a.second.name)
            < std::tie(b.first.begin, b.first.end, b.second.name);
    });
    const std::size_t dataBytes = size - lengthBytes - header;
    std::int64_t next = 0;
    for (auto &[range, tensor] : entries) {
        if (range.begin != next) {
            return bad(name + ": " + tensor.name,
                       range.begin > next ? "a hole before the tensor" : "the tensor overlaps another one",
                       std::to_string(range.begin), std::to_string(next));
        }
        next = range.end;
    }
    if (static_cast<std::uint64_t>(next) != dataBytes) {
        return bad(name,
                   static_cast<std::uint64_t>(next) > dataBytes ? "the file is truncated"
                                                                : "bytes after the last tensor",
                   std::to_string(dataBytes) + " bytes of data", std::to_string(next));
    }
    const std::span<const std::byte> data = m_file.bytes().subspan(lengthBytes + header);
    for (auto &[range, tensor] : entries) {
        tensor.data = data.subspan(static_cast<std::size_t>(range.begin),
                                   static_cast<std::size_t>(range.end - range.begin));
        m_byName[tensor.name] = m_tensors.size();
        m_tensors.push_back(std::move(tensor));
    }
    return {};
}

const StoredTensor *SafetensorsFile::find(std::string_view name) const
{
    const auto at = m_byName.find(name);
    return at == m_byName.end() ? nullptr : &m_tensors[at->second];
}

} // namespace rankyard::checkpoint
