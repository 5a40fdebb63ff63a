// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/telemetry/record.h"

#include <limits>
#include <random>

/// Records to test with.
namespace samples {

using namespace rankyard;
using namespace rankyard::telemetry;

inline StepRecord step(std::int64_t number, std::mt19937_64 &random)
{
    std::uniform_real_distribution<double> real(0, 10);
    StepRecord step;
    step.step = number;
    step.endNs = number * 1000;
    step.wallNs = 1'700'000'000'000'000'000 + number;
    step.loss = random() % 17 == 0 ? std::numeric_limits<double>::quiet_NaN() : real(random);
    step.gradNorm = random() % 19 == 0 ? std::numeric_limits<double>::infinity() : real(random);
    step.lr = real(random);
    step.lossScale = 65536;
    step.overflow = random() % 11 == 0;
    step.tokensPerS = real(random) * 1000;
    step.stepMs = real(random);
    for (auto &bytes : step.memory)
        bytes = static_cast<std::int64_t>(random() % 1'000'000);
    step.comm = {{"dp", 1 << 20, 1 << 21, 1 << 19, real(random), real(random)}};
    return step;
}

inline SpanRecord spans(std::int64_t number, std::size_t count, std::mt19937_64 &random)
{
    SpanRecord spans;
    spans.step = number;
    spans.digest = "0123456789abcdef";
    spans.originNs = 123456789;
    std::int64_t at = random() % 2 ? 0 : 20'000'000'000; // steps of many seconds are usual on large models
    for (std::size_t i = 0; i < count; ++i) {
        at += static_cast<std::int64_t>(random() % 50'000);
        spans.op.push_back(static_cast<std::int32_t>(random() % 3 ? i : random() % count));
        spans.beginNs.push_back(at);
        spans.endNs.push_back(at + static_cast<std::int64_t>(random() % 100'000));
    }
    return spans;
}

/// One of every kind.
inline Payload any(std::int64_t number, std::mt19937_64 &random)
{
    switch (random() % 6) {
    case 0:
        return HelloRecord{{{"host", "a"}, {"pid", 17}}};
    case 1:
        return EvalRecord{number, 2.25, 4096, 99};
    case 2:
        return LogRecord{99, Level::Warning, number, "line " + std::to_string(number) + " äöü"};
    case 3:
        return EventRecord{99, number, "note", {{"n", number}}};
    case 4:
        return spans(number, 40, random);
    default:
        return step(number, random);
    }
}

inline Record record(std::uint64_t sequence, Payload payload, std::int32_t rank = 0, std::uint32_t epoch = 1)
{
    return {epoch, rank, sequence, std::move(payload)};
}

} // namespace samples
