// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/data/indexed_dataset.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

namespace rankyard::data {

namespace fs = std::filesystem;

namespace {

constexpr std::array<unsigned char, 9> magic = {'M', 'M', 'I', 'D', 'I', 'D', 'X', 0, 0};
constexpr std::array<unsigned char, 8> fairseqMagic = {'T', 'N', 'T', 'I', 'D', 'X', 0, 0};
constexpr std::size_t headerBytes = 34;

Error bad(const fs::path &file, std::string what, std::string found = {}, std::string expected = {})
{
    return Error::make(Code::BadData, std::move(what), file.string())
        .withFound(std::move(found))
        .withExpected(std::move(expected));
}

fs::path plus(const fs::path &prefix, const char *suffix) { return fs::path(prefix.string() + suffix); }

template<typename F>
auto withType(TokenType type, F &&f)
{
    switch (type) {
    case TokenType::U8:
        return f(std::uint8_t{});
    case TokenType::I8:
        return f(std::int8_t{});
    case TokenType::I16:
        return f(std::int16_t{});
    case TokenType::I32:
        return f(std::int32_t{});
    case TokenType::I64:
        return f(std::int64_t{});
    case TokenType::U16:
        return f(std::uint16_t{});
    case TokenType::U32:
        return f(std::uint32_t{});
    case TokenType::U64:
        break;
    }
    return f(std::uint64_t{});
}

/// A token as int32; -1 for what does not fit.
template<typename T>
std::int32_t narrow(T value)
{
    if constexpr (sizeof(T) < 4 || std::is_same_v<T, std::int32_t>)
        return static_cast<std::int32_t>(value);
    else if constexpr (std::is_unsigned_v<T>)
        return value <= static_cast<T>(std::numeric_limits<std::int32_t>::max())
            ? static_cast<std::int32_t>(value)
            : -1;
    else
        return value >= 0 && value <= std::numeric_limits<std::int32_t>::max()
            ? static_cast<std::int32_t>(value)
            : -1;
}

template<typename T>
std::uint32_t copyTokens(const std::byte *from, std::int64_t count, std::int32_t *out)
{
    std::uint32_t largest = 0;
    for (std::int64_t i = 0; i < count; ++i) {
        T value;
        std::memcpy(&value, from + i * static_cast<std::int64_t>(sizeof(T)),
                    sizeof(T)); // foreign files may be unaligned
        out[i] = narrow(value);
        largest = std::max(largest, static_cast<std::uint32_t>(out[i]));
    }
    return largest;
}

} // namespace

int bytesOf(TokenType type)
{
    return withType(type, [](auto zero) { return static_cast<int>(sizeof zero); });
}

const char *nameOf(TokenType type)
{
    static const char *const names[] = {"u8", "i8", "i16", "i32", "i64", "u16", "u32", "u64"};
    return names[static_cast<int>(type)];
}

fs::path withoutSuffix(const fs::path &prefix)
{
    return prefix.extension() == ".bin" || prefix.extension() == ".idx" ? fs::path(prefix).replace_extension()
                                                                        : prefix;
}

fs::path binPath(const fs::path &prefix) { return plus(withoutSuffix(prefix), ".bin"); }
fs::path idxPath(const fs::path &prefix) { return plus(withoutSuffix(prefix), ".idx"); }

Result<IndexedDataset> IndexedDataset::open(const fs::path &prefix)
{
    IndexedDataset dataset;
    RY_ASSIGN(dataset.m_idx, MappedFile::open(idxPath(prefix)));
    RY_ASSIGN(dataset.m_bin, MappedFile::open(binPath(prefix)));
    RY_TRY(dataset.validate(prefix));
    return dataset;
}

template<typename T>
T IndexedDataset::at(std::size_t offset) const
{
    T value;
    std::memcpy(&value, m_idx.data() + offset, sizeof value);
    return value;
}

std::int64_t IndexedDataset::sequenceLength(std::int64_t i) const
{
    return at<std::int32_t>(headerBytes + 4 * static_cast<std::size_t>(i));
}

std::int64_t IndexedDataset::documentBegin(std::int64_t i) const
{
    return at<std::int64_t>(headerBytes + 12 * static_cast<std::size_t>(m_sequences)
                            + 8 * static_cast<std::size_t>(i));
}

Status IndexedDataset::validate(const fs::path &prefix)
{
    const fs::path file = idxPath(prefix);
    const std::size_t size = m_idx.size();
    if (size >= fairseqMagic.size()
        && std::memcmp(m_idx.data(), fairseqMagic.data(), fairseqMagic.size()) == 0)
        return bad(file, "an older kind of index (fairseq)", "TNTIDX", "MMIDIDX");
    if (size < headerBytes)
        return bad(file, "the index is truncated", std::to_string(size) + " bytes", "at least 34 bytes");
    if (std::memcmp(m_idx.data(), magic.data(), magic.size()) != 0)
        return bad(file, "not an index of tokens: it does not begin with MMIDIDX");
    if (const auto version = at<std::uint64_t>(9); version != 1)
        return bad(file, "unknown version of the index", std::to_string(version), "1");
    const int code = at<std::uint8_t>(17);
    const auto sequences = at<std::uint64_t>(18);
    const auto documents = at<std::uint64_t>(26);
    // Each bound first, so that the sums below cannot overflow.
    if (sequences > size / 12 || documents > size / 8) {
        return bad(file, "the index is truncated: its counts need more bytes than it has",
                   std::to_string(sequences) + " sequences and " + std::to_string(documents)
                       + " document bounds in " + std::to_string(size) + " bytes");
    }
    const std::size_t expected = headerBytes + 12 * sequences + 8 * documents;
    if (size != expected && size != expected + sequences) {
        return bad(
            file, size < expected ? "the index is truncated" : "the index has bytes that do not belong to it",
            std::to_string(size) + " bytes", std::to_string(expected));
    }
    if (documents == 0)
        return bad(file, "the index has no document bounds", "0", "at least 1");
    m_sequences = static_cast<std::int64_t>(sequences);
    m_documents = static_cast<std::int64_t>(documents) - 1;
    std::int64_t last = documentBegin(0);
    if (last != 0)
        return bad(file, "the first document does not begin at sequence 0", std::to_string(last), "0");
    for (std::int64_t i = 1; i <= m_documents; ++i) {
        const std::int64_t begin = documentBegin(i);
        if (begin < last)
            return bad(file, "document bound " + std::to_string(i) + " is smaller than the one before it",
                       std::to_string(begin));
        last = begin;
    }
    if (last != m_sequences)
        return bad(file, "the last document does not end at the last sequence", std::to_string(last),
                   std::to_string(m_sequences));
    return validateSequences(prefix, code);
}

/// Type code, lengths and pointers against the size of the .bin.
Status IndexedDataset::validateSequences(const fs::path &prefix, int code)
{
    const fs::path file = idxPath(prefix);
    const std::int64_t bin = binBytes();
    const auto pointer = [this](std::int64_t i) {
        return at<std::int64_t>(headerBytes + 4 * static_cast<std::size_t>(m_sequences)
                                + 8 * static_cast<std::size_t>(i));
    };
    // DeepSpeed's 6 is u16 and its 8 is u64; Megatron's 6 is f64 and its 8 is u16. The end of the last sequence decides.
    const auto endsWith = [&](std::int64_t itemBytes) {
        const std::int64_t i = m_sequences - 1;
        const std::int64_t begin = i < 0 ? 0 : pointer(i);
        const std::int64_t length = i < 0 ? 0 : sequenceLength(i);
        return begin >= 0 && begin <= bin && length >= 0 && bin - begin == length * itemBytes;
    };
    static constexpr TokenType types[] = {TokenType::U8, TokenType::I8, TokenType::I16, TokenType::I32,
                                          TokenType::I64};
    if (code >= 1 && code <= 5)
        m_type = types[code - 1];
    else if (code == 8)
        m_type = !endsWith(2) && endsWith(8) ? TokenType::U64 : TokenType::U16;
    else if (code == 7 && endsWith(4))
        m_type = TokenType::U32;
    else if (code == 6 && endsWith(2) && !endsWith(8))
        m_type = TokenType::U16;
    else
        return bad(file,
                   code == 6 || code == 7 ? "the data are floating-point numbers, not tokens"
                                          : "unknown type of tokens",
                   "code " + std::to_string(code), "a code from 1 to 5, or 8");

    const std::int64_t itemBytes = bytesOf(m_type);
    std::int64_t next = 0;
    for (std::int64_t i = 0; i < m_sequences; ++i) {
        const std::int64_t length = sequenceLength(i);
        const std::int64_t begin = pointer(i);
        if (length < 0)
            return bad(file, "sequence " + std::to_string(i) + " has a negative length",
                       std::to_string(length));
        // length < 2^31 and itemBytes ≤ 8: the product fits.
        if (begin < 0 || begin > bin || length * itemBytes > bin - begin) {
            return bad(binPath(prefix),
                       "the file is truncated or belongs to another index: sequence " + std::to_string(i)
                           + " ends beyond it",
                       std::to_string(bin) + " bytes",
                       "sequence at byte " + std::to_string(begin) + ", " + std::to_string(length)
                           + " tokens of " + std::to_string(itemBytes) + " bytes");
        }
        m_contiguous = m_contiguous && begin == next;
        next = begin + length * itemBytes;
        if (__builtin_add_overflow(m_tokens, length, &m_tokens))
            return bad(file, "more tokens than 63 bits can count");
    }
    if (m_contiguous && next != bin) {
        return bad(binPath(prefix), "the file is longer than its index says", std::to_string(bin) + " bytes",
                   std::to_string(next) + " bytes");
    }
    if (!m_contiguous) {
        m_warnings.push_back("sequences are not stored in order without gaps; reading is slower");
        m_starts.reserve(static_cast<std::size_t>(m_sequences) + 1);
        m_starts.push_back(0);
        for (std::int64_t i = 0; i < m_sequences; ++i)
            m_starts.push_back(m_starts.back() + sequenceLength(i));
    }
    return {};
}

std::uint32_t IndexedDataset::read(std::int64_t begin, std::int64_t count, std::int32_t *out) const
{
    const std::int64_t itemBytes = bytesOf(m_type);
    const auto copy = [&](std::int64_t byte, std::int64_t n, std::int32_t *to) {
        return withType(m_type,
                        [&](auto zero) { return copyTokens<decltype(zero)>(m_bin.data() + byte, n, to); });
    };
    if (m_contiguous)
        return copy(begin * itemBytes, count, out);
    std::uint32_t largest = 0;
    auto sequence = std::upper_bound(m_starts.begin(), m_starts.end(), begin) - m_starts.begin() - 1;
    while (count > 0) {
        const auto i = static_cast<std::size_t>(sequence++);
        const std::int64_t skip = begin - m_starts[i];
        const std::int64_t n = std::min(count, m_starts[i + 1] - begin);
        if (n > 0) {
            const auto byte =
                at<std::int64_t>(headerBytes + 4 * static_cast<std::size_t>(m_sequences) + 8 * i);
            largest = std::max(largest, copy(byte + skip * itemBytes, n, out));
        }
        begin += n;
        out += n;
        count -= n;
    }
    return largest;
}

IndexedDataset::Scan IndexedDataset::scan() const
{
    Scan scan;
    Digest digest;
    digest.update(m_bin.data(), m_bin.size());
    scan.fingerprint = digest.text();
    const std::int64_t items = binBytes() / bytesOf(m_type);
    withType(m_type, [&](auto zero) {
        using T = decltype(zero);
        T largest = std::numeric_limits<T>::lowest();
        T smallest = std::numeric_limits<T>::max();
        for (std::int64_t i = 0; i < items; ++i) {
            T value;
            std::memcpy(&value, m_bin.data() + i * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
            largest = std::max(largest, value);
            smallest = std::min(smallest, value);
        }
        if (items > 0) {
            constexpr auto top = std::numeric_limits<std::int64_t>::max();
            const auto clamp = [](T v) {
                return std::cmp_greater(v, top) ? top : static_cast<std::int64_t>(v);
            };
            scan.maxToken = clamp(largest);
            scan.minToken = clamp(smallest);
        }
    });
    return scan;
}

} // namespace rankyard::data
