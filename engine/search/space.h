// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/search/search.h"

namespace rankyard::search {

/// How a micro-batch is cut: what unit times and unit memory depend on. The search's outer loop.
struct Cut {
    std::int32_t tp = 1, cp = 1;
    std::int32_t micro = 1;
    bool sequenceParallel = false;
    predict::Recompute recompute = predict::Recompute::None;
};

using Rejections = std::map<std::string, std::int64_t>;

/// All cuts that `devices` allow, in a fixed order. Rules of plan::makePlan; what they refuse is counted by rule.
std::vector<Cut> cutsOf(const spec::JobSpec &job, int devices, Rejections &rejected);

/// Stages, replicas and micro-batches of a cut; the rest of a Choice follows for each.
struct Split {
    std::int32_t pp = 1, dp = 1, microBatches = 1;
};
std::vector<Split> splitsOf(const spec::JobSpec &job, int devices, const Cut &cut, Rejections &rejected);
/// Schedules with their virtual stages.
struct Plan {
    predict::Schedule schedule = predict::Schedule::OneFOneB;
    std::int32_t virtualStages = 1;
};
std::vector<Plan> plansOf(const spec::JobSpec &job, const Split &split, Rejections &rejected);

/// Calls `visit(Choice)` for every legal layout of a cut, in a fixed order.
template<typename Visit>
void forEachLayout(const spec::JobSpec &job, int devices, const Cut &cut, Rejections &rejected, Visit &&visit)
{
    for (const Split &split : splitsOf(job, devices, cut, rejected)) {
        // ZeRO 2 and 3 would reduce or gather each stage for every micro-batch; without peers there is nothing to share.
        const int most = split.dp * cut.cp == 1 ? 0 : split.pp > 1 ? 1 : 3;
        for (const Plan &plan : plansOf(job, split, rejected)) {
            for (int zero = 0; zero <= most; ++zero) {
                for (const bool offload : {false, true}) {
                    visit(Choice{cut.tp, cut.cp, split.pp, split.dp, plan.virtualStages, cut.micro,
                                 split.microBatches, static_cast<std::int8_t>(zero), plan.schedule,
                                 cut.recompute, cut.sequenceParallel, offload});
                }
            }
        }
    }
}

} // namespace rankyard::search
