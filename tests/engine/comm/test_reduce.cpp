// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/comm/reduce.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <limits>
#include <random>

using namespace rankyard;
using namespace rankyard::comm;

namespace {

float fromBf16(std::uint16_t bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }

/// By the definition of IEEE 754 binary16.
double fromHalf(std::uint16_t bits)
{
    const int exponent = bits >> 10 & 31;
    const int fraction = bits & 1023;
    const double sign = bits & 0x8000 ? -1 : 1;
    if (exponent == 31)
        return fraction ? std::numeric_limits<double>::quiet_NaN()
                        : sign * std::numeric_limits<double>::infinity();
    return exponent == 0 ? sign * std::ldexp(fraction, -24)
                         : sign * std::ldexp(1024 + fraction, exponent - 25);
}

template<typename T>
void reduceVectors(DType type, ReduceOp op, const std::vector<std::vector<T>> &inputs, std::vector<T> &output)
{
    std::vector<const void *> pointers;
    for (const auto &input : inputs)
        pointers.push_back(input.data());
    reduce(type, op, pointers.data(), static_cast<int>(pointers.size()), output.data(),
           static_cast<std::int64_t>(output.size()));
}

} // namespace

TEST(Reduce, SumsInRankOrder)
{
    std::mt19937 random(7);
    std::normal_distribution<float> normal(0, 1e3f);
    for (const int n : {1, 2, 3, 5, 8}) {
        for (const std::size_t count : {0u, 1u, 7u, 1023u, 1024u, 5000u}) {
            std::vector<std::vector<float>> inputs(static_cast<std::size_t>(n), std::vector<float>(count));
            for (auto &input : inputs)
                std::generate(input.begin(), input.end(), [&] { return normal(random); });
            std::vector<float> sum(count), max(count);
            reduceVectors(DType::F32, ReduceOp::Sum, inputs, sum);
            reduceVectors(DType::F32, ReduceOp::Max, inputs, max);
            for (std::size_t i = 0; i < count; ++i) {
                float expected = inputs[0][i];
                float highest = inputs[0][i];
                for (std::size_t r = 1; r < inputs.size(); ++r) {
                    expected += inputs[r][i];
                    highest = std::max(highest, inputs[r][i]);
                }
                ASSERT_EQ(sum[i], expected) << n << " " << count << " " << i;
                ASSERT_EQ(max[i], highest);
            }
        }
    }
}

TEST(Reduce, OutputMayBeAnyInput)
{
    for (const std::size_t place : {0u, 1u, 2u}) {
        std::vector<std::vector<double>> inputs(3, std::vector<double>(3000));
        for (std::size_t r = 0; r < 3; ++r)
            for (std::size_t i = 0; i < 3000; ++i)
                inputs[r][i] = static_cast<double>(i * (r + 1));
        const void *pointers[] = {inputs[0].data(), inputs[1].data(), inputs[2].data()};
        reduce(DType::F64, ReduceOp::Sum, pointers, 3, inputs[place].data(), 3000);
        for (std::size_t i = 0; i < 3000; ++i)
            ASSERT_EQ(inputs[place][i], static_cast<double>(i * 6));
    }
}

TEST(Reduce, EveryHalfSurvivesASumWithZero)
{
    std::vector<std::uint16_t> all(65536), zeros(65536, 0), output(65536);
    for (std::size_t i = 0; i < all.size(); ++i)
        all[i] = static_cast<std::uint16_t>(i);
    const void *pointers[] = {all.data(), zeros.data()};
    reduce(DType::F16, ReduceOp::Sum, pointers, 2, output.data(), 65536);
    for (std::size_t i = 0; i < all.size(); ++i) {
        if (std::isnan(fromHalf(all[i]))) {
            EXPECT_TRUE(std::isnan(fromHalf(output[i]))) << i;
        } else {
            EXPECT_EQ(fromHalf(output[i]), fromHalf(all[i])) << i;
        }
    }
    reduce(DType::BF16, ReduceOp::Sum, pointers, 2, output.data(), 65536);
    for (std::size_t i = 0; i < all.size(); ++i) {
        if (std::isnan(fromBf16(all[i]))) {
            EXPECT_TRUE(std::isnan(fromBf16(output[i]))) << i;
        } else {
            EXPECT_EQ(fromBf16(output[i]), fromBf16(all[i])) << i;
        }
    }
}

TEST(Reduce, SixteenBitSumsAreRoundedOnceToNearestEven)
{
    std::mt19937 random(3);
    std::vector<std::uint16_t> a(20000), b(20000), output(20000);
    for (std::size_t i = 0; i < a.size(); ++i) {
        a[i] = static_cast<std::uint16_t>(random() & 0xfbff); // no NaN, some large values
        b[i] = static_cast<std::uint16_t>(random() & 0xfbff);
    }
    const void *pointers[] = {a.data(), b.data()};
    reduce(DType::F16, ReduceOp::Sum, pointers, 2, output.data(), 20000);
    for (std::size_t i = 0; i < a.size(); ++i) {
        const double sum = fromHalf(a[i]) + fromHalf(b[i]); // exact in double
        const double got = fromHalf(output[i]);
        if (std::fabs(sum) >= 65520) {
            EXPECT_TRUE(std::isinf(got)) << i;
            continue;
        }
        // The nearest is not further than its neighbours.
        const double error = std::fabs(got - sum);
        for (const int step : {-1, 1}) {
            const double next = fromHalf(static_cast<std::uint16_t>(output[i] + step));
            if (std::isfinite(next) && (output[i] & 0x7fff) != 0) {
                EXPECT_LE(error, std::fabs(next - sum)) << i;
            }
        }
    }
}

TEST(Reduce, MaxKeepsNaN)
{
    const float nan = std::numeric_limits<float>::quiet_NaN();
    std::vector<float> output(3);
    reduceVectors<float>(DType::F32, ReduceOp::Max, {{1, nan, 3}, {2, 2, nan}}, output);
    EXPECT_EQ(output[0], 2);
    EXPECT_TRUE(std::isnan(output[1]));
    EXPECT_TRUE(std::isnan(output[2]));
}

TEST(Reduce, KnowsItsTypes)
{
    EXPECT_TRUE(canReduce(DType::I64));
    EXPECT_FALSE(canReduce(DType::U8));
}
