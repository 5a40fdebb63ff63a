// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/data/indexed_dataset.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace rankyard::data {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t bufferBytes = 1 << 20;
/// A sequence's length is an i32: longer documents become several sequences.
constexpr std::int64_t longestSequence = 1 << 30;

void append(std::vector<char> &buffer, const void *bytes, std::size_t count)
{
    const auto *from = static_cast<const char *>(bytes);
    buffer.insert(buffer.end(), from, from + count);
}

template<typename T>
void appendValue(std::vector<char> &buffer, T value)
{
    append(buffer, &value, sizeof value); // little endian, as the format and every machine we run on
}

Status syncFolder(const fs::path &folder)
{
    const Fd fd(::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!fd.valid() || ::fsync(fd.get()) != 0)
        return Error::fromErrno(errno, "cannot flush the folder", folder.string());
    return {};
}

/// Creates missing folders, outermost first, and notes them so that a failure can take them back.
Status createFolders(const fs::path &folder, std::vector<fs::path> &created)
{
    std::error_code error;
    if (folder.empty() || fs::is_directory(folder, error))
        return {};
    RY_TRY(createFolders(folder.parent_path(), created));
    if (::mkdir(folder.c_str(), 0755) == 0)
        created.push_back(folder);
    else if (errno != EEXIST)
        return Error::fromErrno(errno, "cannot create the folder", folder.string());
    return {};
}

} // namespace

IndexedDatasetWriter::IndexedDatasetWriter(IndexedDatasetWriter &&) noexcept =
    default; // vectors move empty: no double unlink
IndexedDatasetWriter::~IndexedDatasetWriter() { abandon(); }

void IndexedDatasetWriter::abandon()
{
    m_bin.reset();
    for (const Pending &file : m_pending)
        ::unlink(file.temporary.c_str());
    m_pending.clear();
    for (auto folder = m_createdFolders.rbegin(); folder != m_createdFolders.rend(); ++folder)
        ::rmdir(folder->c_str()); // fails, rightly, when something is in it
    m_createdFolders.clear();
}

Result<IndexedDatasetWriter> IndexedDatasetWriter::create(const fs::path &prefix, std::int64_t vocab)
{
    IndexedDatasetWriter writer;
    writer.m_prefix = withoutSuffix(prefix);
    if (writer.m_prefix.filename().empty())
        return Error::make(Code::Usage, "the output is a folder, not a prefix of files", "--out")
            .withFound(prefix.string());
    writer.m_vocab = vocab;
    writer.m_type = vocab < 65500 ? TokenType::U16 : TokenType::I32;
    writer.m_buffer.reserve(bufferBytes);
    RY_TRY(createFolders(writer.m_prefix.parent_path(), writer.m_createdFolders));
    RY_ASSIGN(writer.m_bin, writer.openTemporary(binPath(writer.m_prefix)));
    return writer;
}

Result<Fd> IndexedDatasetWriter::openTemporary(const fs::path &target)
{
    std::string name = target.string() + ".XXXXXX";
    Fd fd(::mkostemp(name.data(), O_CLOEXEC));
    if (!fd.valid())
        return Error::fromErrno(errno, "cannot create a file", target.string());
    m_pending.push_back({name, target});
    ::fchmod(fd.get(), 0644);
    return fd;
}

Status IndexedDatasetWriter::flush()
{
    RY_TRY(writeAll(m_bin.get(), {m_buffer.data(), m_buffer.size()}, binPath(m_prefix).string()));
    m_digest.update(m_buffer.data(), m_buffer.size());
    m_buffer.clear();
    return {};
}

Status IndexedDatasetWriter::add(std::span<const std::int32_t> tokens)
{
    const auto itemBytes = static_cast<std::size_t>(bytesOf(m_type));
    while (!tokens.empty()) {
        std::size_t n = std::min(tokens.size(), (bufferBytes - m_buffer.size()) / itemBytes);
        n = std::min(n, static_cast<std::size_t>(longestSequence - m_open));
        const std::size_t begin = m_buffer.size();
        m_buffer.resize(begin + n * itemBytes);
        for (std::size_t i = 0; i < n; ++i) {
            const std::int32_t token = tokens[i];
            if (token < 0 || token >= m_vocab) {
                return Error::make(Code::BadData, "token outside the vocabulary", m_prefix.string())
                    .withFound(std::to_string(token))
                    .withExpected("0 to " + std::to_string(m_vocab - 1));
            }
            m_maxToken = std::max(m_maxToken, token);
            if (m_type == TokenType::U16) {
                const auto narrow = static_cast<std::uint16_t>(token);
                std::memcpy(m_buffer.data() + begin + 2 * i, &narrow, 2);
            } else {
                std::memcpy(m_buffer.data() + begin + 4 * i, &token, 4);
            }
        }
        m_open += static_cast<std::int64_t>(n);
        m_tokens += static_cast<std::int64_t>(n);
        tokens = tokens.subspan(n);
        if (m_open == longestSequence) {
            m_lengths.push_back(static_cast<std::int32_t>(m_open));
            m_open = 0;
        }
        if (m_buffer.size() + itemBytes > bufferBytes)
            RY_TRY(flush());
    }
    return {};
}

Status IndexedDatasetWriter::endDocument()
{
    if (m_open > 0)
        m_lengths.push_back(static_cast<std::int32_t>(m_open));
    m_open = 0;
    if (static_cast<std::int64_t>(m_lengths.size()) > m_documents.back())
        m_documents.push_back(static_cast<std::int64_t>(m_lengths.size()));
    return {};
}

Status IndexedDatasetWriter::writeIndex(int fd, const std::string &name)
{
    std::vector<char> out;
    append(out, "MMIDIDX\0\0", 9);
    appendValue<std::uint64_t>(out, 1);
    appendValue<std::uint8_t>(out, m_type == TokenType::U16 ? 8 : 4);
    appendValue<std::uint64_t>(out, m_lengths.size());
    appendValue<std::uint64_t>(out, m_documents.size());
    const auto spill = [&]() -> Status {
        if (out.size() < bufferBytes)
            return {};
        const Status status = writeAll(fd, {out.data(), out.size()}, name);
        out.clear();
        return status;
    };
    for (const std::int32_t length : m_lengths) {
        appendValue(out, length);
        RY_TRY(spill());
    }
    std::int64_t pointer = 0;
    for (const std::int32_t length : m_lengths) {
        appendValue(out, pointer);
        pointer += static_cast<std::int64_t>(length) * bytesOf(m_type);
        RY_TRY(spill());
    }
    for (const std::int64_t bound : m_documents) {
        appendValue(out, bound);
        RY_TRY(spill());
    }
    return writeAll(fd, {out.data(), out.size()}, name);
}

Status IndexedDatasetWriter::writeEverything(const std::function<std::vector<Companion>()> &companions)
{
    RY_TRY(endDocument());
    RY_TRY(flush());
    m_fingerprint = m_digest.text();
    if (::fsync(m_bin.get()) != 0)
        return Error::fromErrno(errno, "cannot flush the file", binPath(m_prefix).string());
    for (const Companion &companion : companions ? companions() : std::vector<Companion>()) {
        RY_ASSIGN(const Fd fd, openTemporary(companion.path));
        RY_TRY(writeAll(fd.get(), companion.content, companion.path.string()));
        if (::fsync(fd.get()) != 0)
            return Error::fromErrno(errno, "cannot flush the file", companion.path.string());
    }
    const fs::path idx = idxPath(m_prefix);
    RY_ASSIGN(const Fd index, openTemporary(idx));
    RY_TRY(writeIndex(index.get(), idx.string()));
    if (::fsync(index.get()) != 0)
        return Error::fromErrno(errno, "cannot flush the file", idx.string());
    return {};
}

/// The old index goes first: it must never meet the new tokens, and without an index there is no dataset.
Status IndexedDatasetWriter::publish()
{
    const fs::path idx = idxPath(m_prefix);
    if (::unlink(idx.c_str()) != 0 && errno != ENOENT)
        return Error::fromErrno(errno, "cannot replace the file", idx.string());
    while (!m_pending.empty()) {
        const Pending &file = m_pending.front();
        if (::rename(file.temporary.c_str(), file.target.c_str()) != 0)
            return Error::fromErrno(errno, "cannot put the file in place", file.target.string());
        m_pending.erase(m_pending.begin());
    }
    m_createdFolders.clear();
    return syncFolder(m_prefix.parent_path());
}

Status IndexedDatasetWriter::finish(const std::function<std::vector<Companion>()> &companions)
{
    Status status = writeEverything(companions);
    if (status)
        status = publish();
    abandon();
    return status;
}

} // namespace rankyard::data
