// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/base/digest.h"
#include "engine/base/file.h"
#include "engine/base/mapped_file.h"
#include "engine/base/result.h"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

/// Megatron's indexed dataset, PREFIX.bin (raw tokens) and PREFIX.idx. Source: NVIDIA/Megatron-LM
/// megatron/core/datasets/indexed_dataset.py; DeepSpeed's copy of it gives other meanings to the type codes 6 to 8, which are told
/// apart by the size of the .bin.
namespace rankyard::data {

/// How one token is stored.
enum class TokenType : std::uint8_t { U8, I8, I16, I32, I64, U16, U32, U64 };
int bytesOf(TokenType type);
const char *nameOf(TokenType type);

/// `prefix` without a trailing ".bin" or ".idx"; the two files of a prefix.
std::filesystem::path withoutSuffix(const std::filesystem::path &prefix);
std::filesystem::path binPath(const std::filesystem::path &prefix);
std::filesystem::path idxPath(const std::filesystem::path &prefix);

/// A small file that is published together with a pair.
struct Companion {
    std::filesystem::path path;
    std::string content;
};

/// Writes a pair. Tokens are streamed to a temporary file beside the target; finish() publishes everything by rename, the index
/// last. When it is destroyed without finish(), or anything failed, nothing is left behind and an older pair is untouched.
/// One thread.
class IndexedDatasetWriter
{
public:
    /// u16 tokens when vocab < 65500, else i32, as Megatron chooses. Creates missing parent folders.
    static Result<IndexedDatasetWriter> create(const std::filesystem::path &prefix, std::int64_t vocab);
    IndexedDatasetWriter(IndexedDatasetWriter &&) noexcept;
    IndexedDatasetWriter &operator=(IndexedDatasetWriter &&) = delete;
    ~IndexedDatasetWriter();

    /// Appends to the open document. Tokens must be in [0, vocab): BadData; Io when the disk is full.
    Status add(std::span<const std::int32_t> tokens);
    /// Closes the document; one without tokens is not stored.
    Status endDocument();
    /// Flushes, asks for the companions (fingerprint() is known by then), and renames. The writer is of no more use.
    Status finish(const std::function<std::vector<Companion>()> &companions = {});
    /// Removes what was written so far.
    void abandon();

    std::int64_t tokens() const { return m_tokens; }
    std::int64_t documents() const { return static_cast<std::int64_t>(m_documents.size()) - 1; }
    std::int64_t sequences() const { return static_cast<std::int64_t>(m_lengths.size()); }
    std::int32_t maxToken() const { return m_maxToken; } ///< -1 before the first token
    TokenType type() const { return m_type; }
    /// Digest of the .bin; empty before finish().
    const std::string &fingerprint() const { return m_fingerprint; }

private:
    IndexedDatasetWriter() = default;
    struct Pending {
        std::string temporary;
        std::filesystem::path target;
    };
    Status flush();
    Result<Fd> openTemporary(const std::filesystem::path &target);
    Status writeIndex(int fd, const std::string &name);
    Status writeEverything(const std::function<std::vector<Companion>()> &companions);
    Status publish();

    std::filesystem::path m_prefix;
    std::vector<std::filesystem::path> m_createdFolders; ///< innermost last
    std::vector<Pending> m_pending;                      ///< the .bin first, the .idx last
    Fd m_bin;
    std::int64_t m_vocab = 0;
    TokenType m_type = TokenType::U16;
    std::vector<char> m_buffer;
    std::vector<std::int32_t> m_lengths;
    std::vector<std::int64_t> m_documents = {0};
    std::int64_t m_open = 0; ///< tokens of the sequence that is being written
    std::int64_t m_tokens = 0;
    std::int32_t m_maxToken = -1;
    Digest m_digest;
    std::string m_fingerprint;
};

/// Reads a pair through mappings. Immutable: any thread. Every number of the index is checked when it is opened, so that no later
/// access can leave the mappings.
class IndexedDataset
{
public:
    /// Errors: NotFound; BadData for each broken rule of the format, with the file and what was found (truncated .bin too).
    static Result<IndexedDataset> open(const std::filesystem::path &prefix);

    std::int64_t tokens() const { return m_tokens; }
    std::int64_t sequences() const { return m_sequences; }
    std::int64_t documents() const { return m_documents; }
    TokenType type() const { return m_type; }
    std::int64_t binBytes() const { return static_cast<std::int64_t>(m_bin.size()); }
    /// Tokens of sequence i, 0 ≤ i < sequences().
    std::int64_t sequenceLength(std::int64_t i) const;
    /// The first sequence of document i, 0 ≤ i ≤ documents() (the last is sequences()).
    std::int64_t documentBegin(std::int64_t i) const;
    /// What is unusual but readable (foreign writers); empty as a rule.
    const std::vector<std::string> &warnings() const { return m_warnings; }

    /// Copies tokens [begin, begin + count) of all sequences laid end to end. The range must lie within [0, tokens()].
    /// Values that int32 cannot hold become -1. Returns the largest token as unsigned: a negative one exceeds any vocabulary.
    /// Allocates nothing.
    std::uint32_t read(std::int64_t begin, std::int64_t count, std::int32_t *out) const;

    struct Scan {
        std::int64_t maxToken = -1;
        std::int64_t minToken = 0;
        std::string fingerprint; ///< of the .bin
    };
    /// Reads the whole .bin once.
    Scan scan() const;

private:
    Status validate(const std::filesystem::path &prefix);
    Status validateSequences(const std::filesystem::path &prefix, int code);
    template<typename T>
    T at(std::size_t offset) const; ///< unaligned load from the index

    MappedFile m_bin;
    MappedFile m_idx;
    TokenType m_type = TokenType::U16;
    std::int64_t m_sequences = 0;
    std::int64_t m_documents = 0;
    std::int64_t m_tokens = 0;
    bool m_contiguous = true; ///< sequences lie in the .bin in order without holes
    std::vector<std::int64_t>
        m_starts; ///< otherwise: token position at which each sequence begins, and the end
    std::vector<std::string> m_warnings;
};

} // namespace rankyard::data
