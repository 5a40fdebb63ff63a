// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/exec/device.h"
#include "engine/kernels/reference.h"

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace rankyard::kernels::test {

using reference::Values;
/// Shape and values by name.
using Parameters = std::map<std::string, std::pair<std::vector<std::int64_t>, Values>>;

/// Runs the programs of a one-rank plan op by op in program order: arenas as placed, LoadBatch and StepScalars done here.
class Harness
{
public:
    Harness(const spec::JobSpec &job, exec::Device &device);

    const plan::Plan &plan() const { return *m_plan; }
    void setParameter(const std::string &name, const Values &values);
    Values parameter(const std::string &name) const;
    Values gradient(const std::string &name) const;
    Parameters parameters() const;

    /// One training step on `samples` = global · (seq + 1) tokens; with `update` also the optimizer.
    void train(const std::vector<std::int32_t> &tokens, const std::vector<std::int32_t> &labels, bool update);
    /// Σ token losses of the same batch by the eval program, ÷ labels.
    double evaluate(const std::vector<std::int32_t> &tokens, const std::vector<std::int32_t> &labels);
    exec::StepState &state() { return m_state; }
    /// Nanoseconds by op of the last run, by op id, by `clock`.
    const std::vector<std::int64_t> &times() const { return m_times; }
    std::int64_t (*clock)() = monotonicNs;
    /// What `probe` (a counter) grew by inside the ops of the last run.
    std::int64_t (*probe)() = nullptr;
    std::int64_t probed = 0;

private:
    struct Bound {
        const plan::StepProgram *program = nullptr;
        std::vector<std::byte *> address;
        std::vector<std::unique_ptr<exec::BoundOp>> ops;
    };
    Bound bindProgram(plan::ProgramKind kind, exec::Device &device);
    void run(Bound &bound, const std::vector<std::int32_t> &tokens, const std::vector<std::int32_t> &labels,
             bool update);
    void scalars(const Bound &bound);
    const plan::Tensor &tensor(const std::string &name) const;

    std::unique_ptr<plan::Plan> m_plan;
    std::vector<std::vector<std::byte>> m_arenas;
    Bound m_train, m_eval;
    exec::StepState m_state;
    std::vector<std::int64_t> m_times;
};

} // namespace rankyard::kernels::test
