// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/spec/job.h"

#include <vector>

/// Rotary positions (Su et al. 2021) with the ways in which models stretch them to longer sequences.
namespace rankyard::spec {

/// Angles per position of the pairs (i, i + size/2) of a head, and what cosines and sines are multiplied with.
struct Rope {
    std::vector<double> frequency; ///< [size / 2], radians
    double scale = 1;
};

/// From `model.rope`, in either spelling of Hugging Face's configurations: {rope_theta, rope_scaling: {rope_type, factor, …}} or
/// {rope_theta, rope_type, factor, …}; null: theta 10000. rope_type `default`, `linear` (Chen et al. 2023), `dynamic` (NTK-aware,
/// for sequences of model.seq), `llama3`, `yarn` (Peng et al. 2023). An unknown kind or key, a missing or impossible number, and
/// heads of an odd width are errors.
Result<Rope> ropeOf(const Model &model);

} // namespace rankyard::spec
