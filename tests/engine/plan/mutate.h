// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/plan/passes/pass.h"

#include <random>
#include <string>
#include <vector>

/// Faults for programs: what a wrong pass would leave behind.
namespace rankyard::plan {

struct Mutation {
    const char *name;
    /// Breaks the program at a random place; false when it has no such place. `relink` faults are put in before waits,
    /// releases and offsets are worked out, as a wrong pass would; the others into the finished program.
    bool (*apply)(StepProgram &program, std::mt19937_64 &random);
    bool relink;
};

const std::vector<Mutation> &mutations();

/// Takes waits, releases and offsets away, applies the fault, and runs the passes that make them. Applies at most once.
bool mutate(const Mutation &mutation, const spec::JobSpec &job, StepProgram &program,
            std::mt19937_64 &random);

void removeOp(StepProgram &program, OpId id);
void insertCopy(StepProgram &program, OpId before, Op op);
/// Moves an op to the place of another; the ones between shift.
void moveOp(StepProgram &program, OpId from, OpId to);

} // namespace rankyard::plan
