// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/search/space.h"

namespace rankyard::search {

namespace {

std::vector<std::int32_t> divisorsOf(std::int64_t value)
{
    std::vector<std::int32_t> divisors;
    for (std::int64_t d = 1; d <= value; ++d) {
        if (value % d == 0)
            divisors.push_back(static_cast<std::int32_t>(d));
    }
    return divisors;
}

/// Why a model cannot be cut so; null when it can.
const char *refusalOf(const spec::Model &model, std::int64_t tp, std::int64_t cp)
{
    if (model.heads % tp != 0)
        return "tp does not divide the heads";
    if (model.ffnSize() % tp != 0)
        return "tp does not divide the MLP's width";
    if (model.keyHeads() % tp != 0 && tp % model.keyHeads() != 0)
        return "tp neither divides the KV heads nor is a multiple of them";
    if (cp > 1 && model.seq % (2 * cp) != 0)
        return "2·cp does not divide the sequence";
    return nullptr;
}

} // namespace

std::vector<Cut> cutsOf(const spec::JobSpec &job, int devices, Rejections &rejected)
{
    std::vector<Cut> cuts;
    for (const std::int32_t tp : divisorsOf(devices)) {
        for (const std::int32_t cp : divisorsOf(devices / tp)) {
            if (const char *refusal = refusalOf(job.model, tp, cp)) {
                ++rejected[refusal];
                continue;
            }
            for (std::int32_t micro = 1; micro <= job.batch.global; micro *= 2) {
                if (job.batch.global % micro != 0) {
                    ++rejected["the micro-batch does not divide the batch"];
                    continue;
                }
                for (const bool sequence : {false, true}) {
                    if (sequence && tp == 1)
                        continue;
                    if (sequence && micro * job.model.seq / cp % tp != 0) {
                        ++rejected["tp does not divide the tokens, for sequence parallelism"];
                        continue;
                    }
                    for (int mode = 0; mode <= static_cast<int>(predict::Recompute::Full); ++mode)
                        cuts.push_back({tp, cp, micro, sequence, static_cast<predict::Recompute>(mode)});
                }
            }
        }
    }
    return cuts;
}

std::vector<Split> splitsOf(const spec::JobSpec &job, int devices, const Cut &cut, Rejections &rejected)
{
    std::vector<Split> splits;
    const int rest = devices / (cut.tp * cut.cp);
    for (const std::int32_t pp : divisorsOf(rest)) {
        const std::int32_t dp = rest / pp;
        if (pp > job.model.layers + 1) {
            ++rejected["more stages than layers"];
            continue;
        }
        if (job.batch.global % (static_cast<std::int64_t>(dp) * cut.micro) != 0) {
            ++rejected["dp · micro-batch does not divide the batch"];
            continue;
        }
        splits.push_back(
            {pp, dp,
             static_cast<std::int32_t>(job.batch.global / (static_cast<std::int64_t>(dp) * cut.micro))});
    }
    return splits;
}

std::vector<Plan> plansOf(const spec::JobSpec &job, const Split &split, Rejections &rejected)
{
    using predict::Schedule;
    if (split.pp == 1)
        return {{}};
    std::vector<Plan> plans = {{Schedule::OneFOneB, 1}, {Schedule::GPipe, 1}, {Schedule::ZeroBubbleH1, 1}};
    const std::int64_t most = (job.model.layers + 1) / split.pp;
    if (most >= 2)
        plans.push_back({Schedule::ZeroBubbleV, 2});
    if (split.microBatches % split.pp != 0) {
        ++rejected["interleaved needs micro-batches that pp divides"];
        return plans;
    }
    for (std::int32_t v = 2; v <= most && v <= 16; ++v) {
        if (job.model.layers % (static_cast<std::int64_t>(split.pp) * v) == 0 || v == 2)
            plans.push_back({Schedule::Interleaved, v});
    }
    return plans;
}

} // namespace rankyard::search
