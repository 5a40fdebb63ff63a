// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "app/ctl/command.h"
#include "engine/spec/plan_only.h"

namespace rankyard::ctl {

/// `rankyardctl plan` of a job with a section plan_only. `cluster`: in place of the job's own, or empty.
Result<Exit> planWide(const spec::WideJob &job, const std::string &cluster, Output &output);

} // namespace rankyard::ctl
