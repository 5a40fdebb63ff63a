// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/plan/step_program.h"
#include "ui/common/theme.h"

#include <QString>

/// What the planner's kinds look like and are called.
namespace rankyard::ui {

Kind kindOf(plan::MemoryKind kind);
QString wordOf(plan::MemoryKind kind); ///< "parameters"
Kind kindOf(const plan::Op &op, const plan::StepProgram &program);
QString wordOf(Kind kind); ///< of time: "forward", "input gradient", "tensor parallel"

} // namespace rankyard::ui
