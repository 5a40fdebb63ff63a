// SPDX-License-Identifier: GPL-3.0-or-later
#include "app/workbench/predict.h"

#include "engine/base/json.h"
#include "engine/plan/plan.h"
#include "engine/spec/job.h"

namespace rankyard::app {

std::map<int, double> predictMemory(const std::string &job)
{
    std::map<int, double> peaks;
    const auto document = parseJson(job, "job");
    if (!document)
        return peaks;
    const auto spec = spec::readJob(*document, "job");
    if (!spec)
        return peaks;
    const auto plan = plan::makePlan(*spec, plan::PlanDepth::Placed);
    if (!plan)
        return peaks;
    for (int rank = 0; rank < plan->grid.world(); ++rank)
        peaks[rank] = static_cast<double>(plan::memoryOf(*plan, rank).peak);
    return peaks;
}

} // namespace rankyard::app
