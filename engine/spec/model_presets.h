// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/spec/job.h"

#include <string_view>
#include <vector>

/// Models by name.
namespace rankyard::spec {

struct ModelPreset {
    const char *id;   ///< "gpt2-xl"
    const char *name; ///< "GPT-2 XL, 1.56 B"
    Model model;
};

/// GPT-2 (Radford et al. 2019, the released checkpoints), GPT-3 175B (Brown et al. 2020, table 2.1, with
/// the vocabulary padded to 51,200), Llama 1 to 3 (their
/// released config.json). Biases, norms and positions are the family's.
const std::vector<ModelPreset> &modelPresets();
/// Null when there is none.
const ModelPreset *findModelPreset(std::string_view id);

} // namespace rankyard::spec
