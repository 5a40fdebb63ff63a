// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/search/search.h"

/// The rules of thumb of the field as a baseline that can be taught: each as it stands, with what triggered it, where it is illegal
/// here, and the nearest layout that is legal.
namespace rankyard::search {

struct Advice {
    std::string
        rule; ///< as textbooks have it: "10–100 B parameters: tensor parallel up to the GPUs of a node, data parallel"
    std::string trigger;          ///< "13.0 B parameters"
    Choice asked;                 ///< the rule's layout, to the letter
    DType precision = DType::F32; ///< that it computes in: the job's where the rule says nothing
    std::string illegal;          ///< why it cannot run here; empty: it can
    Choice nearest;               ///< the nearest legal layout; `asked` when that is legal
    bool possible = true;         ///< there is one
    Candidate candidate{};        ///< what `nearest` costs, in that precision
    std::vector<std::string> notes{};
};

/// All rules that apply to the model and the cluster, in the order size, memory, network. `price`: by the layouts' programs, else in closed
/// form.
Result<std::vector<Advice>> advise(const spec::JobSpec &job, const predict::CostModel &cost, int devices,
                                   bool price);
OrderedJson reportOf(const Advice &advice);

} // namespace rankyard::search
