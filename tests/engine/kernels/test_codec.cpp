// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/kernels/codec.h"
#include "tests/engine/kernels/storage.h"

using namespace rankyard;
using namespace rankyard::kernels;
using namespace rankyard::kernels::test;

namespace {

spec::Compression mode(const std::string &name, std::int64_t block = 16, double density = 0.1)
{
    spec::Compression c;
    c.mode = name;
    c.block = block;
    c.density = density;
    c.threshold = 1;
    return c;
}

/// Encodes and decodes; `error` is updated when there is one. Fences catch what is written outside.
Values through(const spec::Compression &c, Storage &x, Storage *error = nullptr, double scale = 1,
               plan::CodeForm *form = nullptr)
{
    const auto count = static_cast<std::int64_t>(x.size());
    std::vector<std::byte> code(static_cast<std::size_t>(plan::codeBytes(c, x.type(), count)) + 8,
                                std::byte{0x5a});
    std::vector<std::byte> scratch(static_cast<std::size_t>(encodeScratch(c, x.type(), count)));
    Encoding e{&c,    x.type(),    count,         x.data(), error ? error->data() : nullptr,
               scale, code.data(), scratch.data()};
    const plan::CodeForm taken = encode(e);
    if (form)
        *form = taken;
    EXPECT_EQ(std::count(code.end() - 8, code.end(), std::byte{0x5a}), 8);
    const std::int64_t used = plan::codeBytes(taken, c, x.type(), count);
    EXPECT_LE(used, plan::codeBytes(c, x.type(), count));
    Storage out(x.type(), x.size());
    // In two pieces that no block divides.
    const std::int64_t cut = count / 3;
    decodeAdd(c, x.type(), count, code.data(), 0, cut, out.data());
    decodeAdd(c, x.type(), count, code.data(), cut, count,
              static_cast<std::byte *>(out.data()) + cut * static_cast<std::int64_t>(bytesOf(x.type())));
    return out.values();
}

} // namespace

TEST(Codec, BytesAreThoseOfTheForms)
{
    EXPECT_EQ(plan::codeBytes(plan::CodeForm::Half, mode("fp16"), DType::F32, 1001), 8 + 2002);
    EXPECT_EQ(plan::codeBytes(plan::CodeForm::Byte, mode("int8", 256), DType::F32, 1001), 8 + 4 * 8 + 1001);
    EXPECT_EQ(plan::codeBytes(plan::CodeForm::Top, mode("topk"), DType::F32, 1001), 8 + 101 * 8);
    EXPECT_EQ(plan::codeBytes(plan::CodeForm::Top, mode("topk"), DType::F64, 1), 8 + 12);
    EXPECT_EQ(plan::codeBytes(mode("topk"), DType::F32, 0), 64);
}

TEST(Codec, HalvesRoundByTheirLastPlace)
{
    for (const DType type : {DType::F32, DType::F64}) {
        for (const std::size_t count : {1u, 7u, 1003u}) {
            Storage x(type, randomValues(count, 1));
            const Values got = through(mode("fp16"), x);
            for (std::size_t i = 0; i < count; ++i)
                EXPECT_EQ(got[i], static_cast<double>(fromHalf(toHalf(static_cast<float>(x.get(i))))));
        }
    }
}

TEST(Codec, BytesAreWithinHalfAStepOfTheirBlock)
{
    for (const DType type : {DType::F32, DType::F64}) {
        for (const std::int64_t block : {1, 16, 5000}) {
            Storage x(type, randomValues(1003, 2));
            const Values got = through(mode("int8", block), x);
            for (std::int64_t b = 0; b < 1003; b += block) {
                double least = INFINITY, largest = -INFINITY;
                const std::int64_t end = std::min<std::int64_t>(b + block, 1003);
                for (std::int64_t i = b; i < end; ++i) {
                    least = std::min(least, x.get(static_cast<std::size_t>(i)));
                    largest = std::max(largest, x.get(static_cast<std::size_t>(i)));
                }
                for (std::int64_t i = b; i < end; ++i)
                    EXPECT_NEAR(got[static_cast<std::size_t>(i)], x.get(static_cast<std::size_t>(i)),
                                (largest - least) / 510 * 1.0001 + 1e-6);
            }
        }
    }
}

TEST(Codec, TopSendsTheLargestAsTheyAre)
{
    for (const DType type : {DType::F32, DType::F64}) {
        Values values = randomValues(1000, 3);
        for (std::size_t i = 100; i < 300; ++i)
            values[i] = 1.25; // many equal ones about the limit
        Storage x(type, values);
        const Values got = through(mode("topk", 16, 0.2), x);
        std::vector<double> sizes;
        std::size_t sent = 0;
        for (std::size_t i = 0; i < got.size(); ++i) {
            sizes.push_back(std::abs(x.get(i)));
            sent += got[i] != 0;
            EXPECT_TRUE(got[i] == 0 || got[i] == x.get(i));
        }
        EXPECT_EQ(sent, 200u);
        std::sort(sizes.rbegin(), sizes.rend());
        for (std::size_t i = 0; i < got.size(); ++i)
            EXPECT_TRUE(got[i] != 0 || std::abs(x.get(i)) <= sizes[199]);
    }
}

TEST(Codec, AdaptiveGoesByTheUnscaledNorm)
{
    Storage small(DType::F32, Values(100, 0.05)), large(DType::F32, Values(100, 0.2));
    plan::CodeForm form{};
    through(mode("adaptive"), small, nullptr, 1, &form);
    EXPECT_EQ(form, plan::CodeForm::Byte); // norm 0.5
    through(mode("adaptive"), large, nullptr, 1, &form);
    EXPECT_EQ(form, plan::CodeForm::Half); // norm 2
    through(mode("adaptive"), large, nullptr, 4, &form);
    EXPECT_EQ(form, plan::CodeForm::Byte);
}

/// What is sent in n steps and what is left over are together what was there to send, whatever the scales were.
TEST(Codec, ErrorFeedbackLosesNothing)
{
    for (const char *name : {"fp16", "int8", "adaptive", "topk"}) {
        const std::size_t count = 301;
        Storage error(DType::F64, count);
        Values sent(count), wanted(count);
        for (unsigned step = 0; step < 20; ++step) {
            const double scale = step < 10 ? 8 : 2;
            const Values values = randomValues(count, step, 0.1 * scale);
            Storage x(DType::F64, values);
            const Values got = through(mode(name), x, &error, scale);
            for (std::size_t i = 0; i < count; ++i) {
                sent[i] += got[i] / scale;
                wanted[i] += values[i] / scale;
            }
        }
        for (std::size_t i = 0; i < count; ++i)
            EXPECT_NEAR(sent[i] + error.get(i), wanted[i], 1e-13) << name;
    }
}

TEST(Codec, WhatIsNotFiniteStaysSoAndDoesNotSpoilTheError)
{
    for (const char *name : {"fp16", "int8", "topk"}) {
        for (const double bad : {static_cast<double>(NAN), static_cast<double>(INFINITY)}) {
            Values values = randomValues(100, 4);
            values[41] = bad;
            Storage x(DType::F32, values), error(DType::F32, 100);
            const Values got = through(mode(name), x, &error);
            EXPECT_FALSE(std::isfinite(got[41])) << name;
            for (std::size_t i = 0; i < 100; ++i)
                EXPECT_TRUE(std::isfinite(error.get(i))) << name << " " << i;
        }
    }
}
