// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/exec/thread_ranks.h"
#include "engine/plan/plan.h"

#include <functional>
#include <memory>
#include <vector>

/// Declares `declaration` from a Result, or ends the test with its error.
#define RY_EXPECT_OK(declaration, expression)                                                                \
    auto RANKYARD_JOIN(ryExpected, __LINE__) = (expression);                                                 \
    ASSERT_TRUE(RANKYARD_JOIN(ryExpected, __LINE__).ok())                                                    \
        << RANKYARD_JOIN(ryExpected, __LINE__).error().text();                                               \
    declaration = std::move(RANKYARD_JOIN(ryExpected, __LINE__)).value()

namespace rankyard::exec::test {

/// A small GPT-2 in fp64 with several buckets and ZeRO 1.
spec::JobSpec tinyJob(int dp);

/// A hand-made program over dp ranks (ZeRO 1): two buckets of 6 and 5 numbers; the loss of a token t at place
/// i is (w[i] − t)² ÷ 2. AllGather ×2, LoadBatch, loss, ReduceScatter ×2, GradNorm ×2, AllReduce,
/// StepScalars, Optimizer ×2. dp = 1: the same without collectives.
plan::Plan toyPlan(int dp);
constexpr int toyNumel = 11;

/// Kernels of the toy: plain loops in fp64.
std::unique_ptr<Device> toyDevice();

/// Tokens of the toy: a function of batch and sample, the same for every number of replicas.
class ToyData : public DataSource
{
public:
    explicit ToyData(int dp) : share(12 / dp) {}
    std::int64_t share; ///< samples of a replica
    Status fill(plan::ProgramKind kind, std::int64_t batch, std::int64_t replica, std::int64_t microBatch,
                std::int32_t *tokens, std::int32_t *labels) override;
    std::int64_t evalBatches() const override { return 2; }
};

/// Runs `body` for every rank of the plan in a thread of its own.
void onThreadRanks(const plan::Plan &plan, const std::function<std::unique_ptr<Device>()> &makeDevice,
                   DataSource &data, const std::function<void(ThreadRank &)> &body);

} // namespace rankyard::exec::test
