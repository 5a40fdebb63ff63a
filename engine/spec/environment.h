// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/base/result.h"

#include <string>
#include <vector>

/// The variables of CUDA and NCCL that a job may set in `comm.env`: a wrong name would be ignored by them in silence, and a wrong
/// value too.
namespace rankyard::spec {

struct KnownVariable {
    enum class Kind { Flag, Integer, Choice, Text };
    const char *name;
    Kind kind;
    std::int64_t least = 0, most = 0;      ///< of Integer
    std::vector<std::string> choices = {}; ///< of Choice; of Integer words that stand for numbers
};

/// By name. NCCL's are those of its documentation that version 2.28 reads.
const std::vector<KnownVariable> &knownVariables();

/// BadJob with the path `comm.env.NAME`, what was found and the nearest that works, when the name starts with CUDA_ or NCCL_ and is not
/// known, or the value is not one of it. Other names are not judged.
Status checkVariable(const std::string &name, const std::string &value);

} // namespace rankyard::spec
