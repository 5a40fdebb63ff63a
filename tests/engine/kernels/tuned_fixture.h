// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "tests/engine/kernels/storage.h"

/// Every tuned kernel, of every instruction set that this machine runs and every storage type, against the plain reference.
/// The reference gets the inputs as rounded to the storage type. Bounds, relative to the largest value: fp64 1e-12; fp32 a small
/// multiple of 2^-24 that grows with the length of the sums; bf16 rounds each stored result, and between two products
/// probabilities too, by 2^-9.
namespace rankyard::kernels::test {

struct Case {
    Isa isa;
    DType type;
};

/// What a binary tests: the CPU's kernels by instruction set (cases.cpp), or a GPU's (tests/engine/cuda/cases.cpp), whose `isa`
/// says nothing.
std::vector<Case> casesUnderTest();
const IsaTables &tablesUnderTest(Isa isa);

class Tuned : public testing::TestWithParam<Case>
{
protected:
    DType type() const { return GetParam().type; }
    DType acc() const { return type() == DType::F64 ? DType::F64 : DType::F32; }
    const KernelTable &table() const
    {
        const IsaTables &tables = tablesUnderTest(GetParam().isa);
        switch (type()) {
        case DType::F32:
            return tables.f32;
        case DType::F64:
            return tables.f64;
        case DType::F16:
            return tables.f16;
        default:
            return tables.bf16;
        }
    }
    /// Of sums of `length` terms that are stored as `stored`.
    double bound(double length, DType stored) const
    {
        const double sums = type() == DType::F64 ? 1e-12 : 6e-7 * std::sqrt(length);
        return sums + (stored == DType::BF16 ? 1.0 / 256 : stored == DType::F16 ? 1.0 / 2048 : 0);
    }
    double bound(double length) const { return bound(length, type()); }
    Storage random(std::size_t count, unsigned seed, double spread = 1) const
    {
        return Storage(type(), randomValues(count, seed, spread));
    }
};

inline std::string caseName(const testing::TestParamInfo<Case> &info)
{
    std::string name = std::string(nameOf(info.param.isa)) + "_" + nameOf(info.param.type);
    std::erase_if(name, [](char c) { return c == '-' || c == ' '; });
    return name;
}

/// Scratch of exactly the size that was asked for, aligned to 64, with a fence behind.
class ScratchArea
{
public:
    explicit ScratchArea(std::int64_t bytes)
        : m_size(static_cast<std::size_t>(bytes)),
          m_bytes(m_size + 192, 0x5a)
    {}
    ~ScratchArea()
    {
        const auto *end = static_cast<unsigned char *>(data()) + m_size;
        EXPECT_TRUE(std::all_of(end, end + 64, [](unsigned char c) { return c == 0x5a; }))
            << "scratch overrun";
    }
    void *data()
    {
        const auto address = reinterpret_cast<std::uintptr_t>(m_bytes.data());
        return m_bytes.data() + (64 - address % 64) % 64;
    }

private:
    std::size_t m_size;
    std::vector<unsigned char> m_bytes;
};

} // namespace rankyard::kernels::test
