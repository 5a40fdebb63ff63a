// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/checkpoint/manifest.h"
#include "engine/exec/scaler.h"

#include <cmath>
#include <gtest/gtest.h>
#include <random>
#include <vector>

using namespace rankyard;
using namespace rankyard::exec;

namespace {

const std::vector<int> overflows = {1, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0};

spec::Precision fp16(const char *rule, int hysteresis = 2, int power = 16)
{
    spec::Precision precision;
    precision.compute = DType::F16;
    precision.lossScale.rule = rule;
    precision.lossScale.window = 4;
    precision.lossScale.hysteresis = hysteresis;
    precision.lossScale.initPower = power;
    return precision;
}

std::vector<int> trace(LossScaler scaler, const std::vector<int> &steps)
{
    std::vector<int> powers;
    for (const int overflow : steps) {
        EXPECT_TRUE(scaler.update(overflow != 0).ok());
        powers.push_back(static_cast<int>(std::log2(scaler.scale())));
    }
    return powers;
}

using Powers = std::vector<int>;

} // namespace

// Golden traces: computed by hand from each engine's published rule; window 4, hysteresis 2, begin 2^16,
// minimum 1.
TEST(LossScaler, DeepSpeed)
{
    EXPECT_EQ(
        trace(LossScaler(fp16("deepspeed")), overflows),
        (Powers{16, 15, 15, 15, 15, 15, 16, 16, 16, 16, 16, 16, 15, 15, 15, 15, 15, 16, 16, 16, 16, 16}));
    EXPECT_EQ(
        trace(LossScaler(fp16("deepspeed"), true), overflows),
        (Powers{16, 15, 15, 15, 15, 15, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 17, 17, 17, 17, 17}));
    EXPECT_EQ(
        trace(LossScaler(fp16("deepspeed", 1)), overflows),
        (Powers{15, 14, 14, 14, 14, 14, 15, 14, 14, 14, 14, 14, 13, 13, 13, 13, 13, 14, 14, 14, 13, 13}));
    EXPECT_EQ(trace(LossScaler(fp16("deepspeed")), std::vector<int>(10, 0)),
              (Powers{16, 16, 16, 16, 17, 17, 17, 17, 18, 18}));
}

TEST(LossScaler, DeepSpeedEndsBelowTheMinimum)
{
    LossScaler scaler(fp16("deepspeed", 2, 2));
    for (const double expected : {4.0, 2.0, 1.0}) {
        ASSERT_TRUE(scaler.update(true).ok());
        EXPECT_EQ(scaler.scale(), expected);
    }
    EXPECT_FALSE(scaler.update(true).ok());
}

TEST(LossScaler, Megatron)
{
    EXPECT_EQ(
        trace(LossScaler(fp16("megatron")), overflows),
        (Powers{16, 15, 15, 15, 15, 16, 16, 16, 16, 16, 16, 17, 17, 17, 17, 17, 18, 18, 18, 18, 18, 18}));
    EXPECT_EQ(trace(LossScaler(fp16("megatron")), std::vector<int>(10, 0)),
              (Powers{16, 16, 16, 17, 17, 17, 17, 18, 18, 18}));
}

TEST(LossScaler, Simple)
{
    EXPECT_EQ(
        trace(LossScaler(fp16("simple")), overflows),
        (Powers{15, 14, 14, 14, 14, 15, 15, 14, 14, 14, 14, 15, 14, 14, 14, 14, 15, 15, 15, 15, 14, 14}));
}

TEST(LossScaler, MaximumMinimumAndStatic)
{
    spec::Precision precision = fp16("megatron");
    precision.lossScale.maxPower = 17;
    EXPECT_EQ(trace(LossScaler(precision), std::vector<int>(12, 0)).back(), 17);
    LossScaler megatron(fp16("megatron", 1, 1));
    for (int i = 0; i < 10; ++i)
        EXPECT_TRUE(megatron.update(true).ok()); // never an error
    EXPECT_EQ(megatron.scale(), 1);
    precision.lossScale.mode = "static";
    precision.lossScale.value = 512;
    LossScaler fixed(precision);
    EXPECT_TRUE(fixed.update(true).ok());
    EXPECT_EQ(fixed.scale(), 512);
    precision.compute = DType::BF16;
    EXPECT_EQ(LossScaler(precision).scale(), 1);
}

TEST(LossScaler, ContinuesFromItsState)
{
    for (const char *rule : {"deepspeed", "megatron", "simple"}) {
        LossScaler whole(fp16(rule));
        LossScaler part(fp16(rule));
        for (std::size_t i = 0; i < overflows.size(); ++i) {
            ASSERT_TRUE(whole.update(overflows[i] != 0).ok());
            LossScaler next(fp16(rule));
            next.restore(part.state());
            part = next;
            ASSERT_TRUE(part.update(overflows[i] != 0).ok());
            EXPECT_EQ(part.scale(), whole.scale()) << rule << " " << i;
        }
    }
}

/// Whatever has happened, a checkpoint holds the scaler so that it can be read, and the scaler goes on as if nothing had been.
TEST(LossScaler, EveryStateSurvivesACheckpoint)
{
    std::mt19937_64 random(11);
    int belowZero = 0;
    for (const char *rule : {"deepspeed", "megatron", "simple"}) {
        for (int run = 0; run < 40; ++run) {
            spec::Precision precision =
                fp16(rule, 1 + static_cast<int>(random() % 4), static_cast<int>(random() % 101));
            precision.lossScale.window = 1 + static_cast<std::int64_t>(random() % 5);
            precision.lossScale.min = run % 2 == 0 ? 1e-300 : 1;
            const bool consecutive = run % 3 == 0;
            const std::uint64_t odds = run % 5; // never, and one of 1 to 4
            LossScaler scaler(precision, consecutive);
            for (int step = 0; step < 1500; ++step) {
                if (!scaler.update(odds > 0 && random() % odds == 0).ok())
                    break; // at the minimum: the run saves and ends
                checkpoint::Manifest manifest;
                manifest.scaler = {scaler.state().scale, scaler.state().goodSteps, scaler.state().hysteresis};
                if (step % 100 != 0 && step > 20)
                    continue;
                belowZero += manifest.scaler.hysteresis < 0;
                const auto back =
                    checkpoint::readManifest(dumpJson(checkpoint::writeManifest(manifest)), "m");
                ASSERT_TRUE(back.ok()) << rule << " step " << step << ": " << back.error().text();
                ASSERT_EQ(back->scaler, manifest.scaler);
                LossScaler other(precision, consecutive);
                other.restore({back->scaler.scale, back->scaler.goodSteps, back->scaler.hysteresis});
                ASSERT_EQ(other.update(step % 2 == 0).ok(), LossScaler(scaler).update(step % 2 == 0).ok());
                LossScaler same(scaler);
                (void)same.update(step % 2 == 0);
                ASSERT_EQ(other.scale(), same.scale()) << rule << " step " << step;
            }
        }
    }
    EXPECT_GT(belowZero, 0); // Megatron-LM's counts on below 0
}
