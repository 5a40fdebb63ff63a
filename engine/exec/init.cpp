// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/exec/init.h"

#include "engine/exec/random.h"
#include "engine/plan/shard.h"

#include <algorithm>
#include <array>

namespace rankyard::exec {

void initialValues(const plan::TensorSpec &spec, std::uint64_t seed, std::uint32_t index, std::int64_t begin,
                   std::int64_t count, double *values)
{
    if (spec.initStd == 0) {
        std::fill_n(values, count, spec.initValue);
        return;
    }
    for (std::int64_t i = 0; i < count;) {
        const auto element = static_cast<std::uint64_t>(begin + i);
        const std::array<double, 4> draws = normals(seed, Purpose::Init, index, element / 4);
        for (std::uint64_t d = element % 4; d < 4 && i < count; ++d, ++i)
            values[i] = spec.initValue + spec.initStd * draws[d];
    }
}

Status initialiseParameters(const plan::Plan &plan, const Arenas &arenas, int rank,
                            const std::function<void()> &alive)
{
    const plan::StepProgram &program = plan.program(plan::ProgramKind::Train, rank);
    const std::vector<plan::TensorSpec> specs = plan::modelTensors(plan.job);
    std::array<double, 4096> values{};
    for (const plan::ShardRange &range : plan::shardOf(program, plan.grid, rank)) {
        const plan::Tensor &tensor = program.tensors[static_cast<std::size_t>(range.tensor)];
        const plan::Bucket &bucket = program.buckets[static_cast<std::size_t>(range.bucket)];
        const auto spec =
            std::find_if(specs.begin(), specs.end(), [&](const auto &s) { return s.name == tensor.name; });
        if (spec == specs.end())
            return Error::make(Code::Internal, "the plan has a tensor that the model does not have",
                               tensor.name);
        const auto index = static_cast<std::uint32_t>(spec - specs.begin());
        for (std::int64_t at = range.begin; at < range.end;) {
            const std::int64_t count =
                std::min<std::int64_t>(static_cast<std::int64_t>(values.size()), range.end - at);
            initialValues(*spec, plan.job.init.seed, index, at, count, values.data());
            for (const plan::BufferId id : {bucket.paramSlice, bucket.master}) {
                if (id != plan::none)
                    RY_TRY(
                        arenas.writeElements(program, id, range.at + at - range.begin, values.data(), count));
            }
            at += count;
            if (alive)
                alive();
        }
    }
    return {};
}

} // namespace rankyard::exec
