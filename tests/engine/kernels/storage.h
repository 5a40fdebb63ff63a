// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/base/float16.h"
#include "engine/base/units.h"
#include "engine/kernels/kernel_table.h"
#include "engine/kernels/reference.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

/// Arrays of a storage type for tests, read and written as fp64.
namespace rankyard::kernels::test {

using reference::Values;

inline double widened(std::uint16_t bits)
{
    const std::uint32_t wide = static_cast<std::uint32_t>(bits) << 16;
    float value;
    std::memcpy(&value, &wide, 4);
    return value;
}

/// Elements of one type between two fences that must stay untouched.
class Storage
{
public:
    Storage(DType type, std::size_t count)
        : m_type(type),
          m_count(count),
          m_bytes(count * bytesOf(type) + 2 * fence, 0x5a)
    {
        std::memset(data(), 0, count * bytesOf(type));
    }
    Storage(DType type, const Values &values) : Storage(type, values.size())
    {
        for (std::size_t i = 0; i < m_count; ++i)
            set(i, values[i]);
    }
    ~Storage()
    {
        for (std::size_t i = 0; i < fence; ++i) {
            if (m_bytes[i] == 0x5a && m_bytes[m_bytes.size() - 1 - i] == 0x5a)
                continue;
            ADD_FAILURE() << "written outside of an array of " << m_count << " " << nameOf(m_type);
            return;
        }
    }
    Storage(const Storage &) = default;
    Storage &operator=(const Storage &) = default;

    void *data() { return m_bytes.data() + fence; }
    std::size_t size() const { return m_count; }
    DType type() const { return m_type; }

    double get(std::size_t i) const
    {
        const unsigned char *p = m_bytes.data() + fence + i * bytesOf(m_type);
        double d;
        float f;
        std::uint16_t h;
        switch (m_type) {
        case DType::F64:
            std::memcpy(&d, p, 8);
            return d;
        case DType::F32:
            std::memcpy(&f, p, 4);
            return f;
        default:
            std::memcpy(&h, p, 2);
            return m_type == DType::F16 ? fromHalf(h) : widened(h);
        }
    }
    void set(std::size_t i, double value)
    {
        unsigned char *p = m_bytes.data() + fence + i * bytesOf(m_type);
        const float f = static_cast<float>(value);
        std::uint32_t bits;
        std::memcpy(&bits, &f, 4);
        const auto h = static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1)) >> 16);
        switch (m_type) {
        case DType::F64:
            std::memcpy(p, &value, 8);
            break;
        case DType::F32:
            std::memcpy(p, &f, 4);
            break;
        default: {
            const std::uint16_t stored = m_type == DType::F16 ? toHalf(f) : h;
            std::memcpy(p, &stored, 2);
            break;
        }
        }
    }
    Values values() const
    {
        Values result(m_count);
        for (std::size_t i = 0; i < m_count; ++i)
            result[i] = get(i);
        return result;
    }

private:
    static constexpr std::size_t fence = 64;
    DType m_type;
    std::size_t m_count;
    std::vector<unsigned char> m_bytes;
};

inline Values randomValues(std::size_t count, unsigned seed, double spread = 1)
{
    std::mt19937 engine(seed);
    std::normal_distribution<double> normal(0, spread);
    Values values(count);
    for (double &value : values)
        value = normal(engine);
    return values;
}

inline double largest(const Values &values)
{
    double result = 0;
    for (const double value : values)
        result = std::max(result, std::abs(value));
    return result;
}

/// |got − wanted| ≤ tolerance · max|wanted|, everywhere.
inline void expectClose(const Values &got, const Values &wanted, double tolerance, const std::string &what)
{
    ASSERT_EQ(got.size(), wanted.size()) << what;
    const double scale = std::max(largest(wanted), 1e-30);
    double worst = 0;
    std::size_t place = 0;
    for (std::size_t i = 0; i < got.size(); ++i) {
        const double error = std::abs(got[i] - wanted[i]) / scale;
        if (!(error <= worst)) {
            worst = error;
            place = i;
        }
    }
    EXPECT_LE(worst, tolerance) << what << ": element " << place << " of " << got.size() << " is "
                                << got[place] << ", wanted " << wanted[place];
}

} // namespace rankyard::kernels::test
