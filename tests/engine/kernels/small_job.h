// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "tests/engine/kernels/harness.h"
#include "tests/engine/kernels/storage.h"

/// A small model with odd sizes, its random weights and tokens.
namespace rankyard::kernels::test {

inline spec::JobSpec smallJob(DType compute)
{
    spec::JobSpec job;
    job.model.layers = 2;
    job.model.hidden = 21;
    job.model.heads = 7; // head size 3
    job.model.seq = 13;
    job.model.vocab = 67;
    job.batch.global = 6;
    job.batch.micro = 2;
    job.zero.bucketBytes = 4096;
    job.precision.compute = compute;
    if (compute == DType::F64)
        job.precision.grad = job.precision.master = job.precision.reduce = DType::F64;
    return job;
}

inline std::vector<std::int32_t> randomTokens(std::size_t count, std::int64_t vocab, unsigned seed)
{
    std::mt19937 engine(seed);
    std::vector<std::int32_t> tokens(count);
    for (auto &token : tokens)
        token = static_cast<std::int32_t>(engine() % static_cast<unsigned>(vocab));
    return tokens;
}

inline void randomize(Harness &harness)
{
    unsigned seed = 100;
    for (const auto &[name, value] : harness.parameters()) {
        Values values = randomValues(value.second.size(), ++seed, 0.2);
        if (name.ends_with("norm.weight")) {
            for (double &v : values)
                v += 1;
        }
        harness.setParameter(name, values);
    }
}

} // namespace rankyard::kernels::test
