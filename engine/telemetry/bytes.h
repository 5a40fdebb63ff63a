// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>

/// Numbers in little-endian byte strings.
namespace rankyard::telemetry {

static_assert(std::endian::native == std::endian::little, "the wire format is the memory's own byte order");

template<typename T>
void put(std::string &out, T value)
{
    static_assert(std::is_arithmetic_v<T>);
    char raw[sizeof(T)];
    std::memcpy(raw, &value, sizeof(T));
    out.append(raw, sizeof(T));
}

inline void putVarint(std::string &out, std::uint64_t value)
{
    for (; value >= 0x80; value >>= 7)
        out.push_back(static_cast<char>(value | 0x80));
    out.push_back(static_cast<char>(value));
}

/// Small magnitudes of either sign become small numbers.
inline std::uint64_t zigzag(std::int64_t value)
{
    return (static_cast<std::uint64_t>(value) << 1) ^ static_cast<std::uint64_t>(value >> 63);
}
inline std::int64_t unzigzag(std::uint64_t value)
{
    return static_cast<std::int64_t>(value >> 1) ^ -static_cast<std::int64_t>(value & 1);
}

/// A text with its length before it (varint).
inline void putText(std::string &out, std::string_view text)
{
    putVarint(out, text.size());
    out.append(text);
}

/// Reads what put… wrote. Reading past the end gives zeros and makes ok() false: check it once after the last field.
class ByteReader
{
public:
    explicit ByteReader(std::string_view bytes) : m_bytes(bytes) {}

    bool ok() const { return m_ok; }
    std::size_t left() const { return m_bytes.size() - m_at; }

    template<typename T>
    T get()
    {
        T value{};
        if (!m_ok || left() < sizeof(T)) {
            m_ok = false;
            return value;
        }
        std::memcpy(&value, m_bytes.data() + m_at, sizeof(T));
        m_at += sizeof(T);
        return value;
    }

    std::uint64_t getVarint()
    {
        std::uint64_t value = 0;
        for (unsigned shift = 0; shift < 64; shift += 7) {
            const auto byte = get<std::uint8_t>();
            value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
            if (!(byte & 0x80))
                return value;
        }
        m_ok = false;
        return 0;
    }

    std::string_view getText()
    {
        const std::uint64_t size = getVarint();
        if (!m_ok || size > left()) {
            m_ok = false;
            return {};
        }
        const std::string_view text = m_bytes.substr(m_at, static_cast<std::size_t>(size));
        m_at += static_cast<std::size_t>(size);
        return text;
    }

    std::string_view rest() const { return m_bytes.substr(m_at); }
    void fail() { m_ok = false; }

private:
    std::string_view m_bytes;
    std::size_t m_at = 0;
    bool m_ok = true;
};

} // namespace rankyard::telemetry
