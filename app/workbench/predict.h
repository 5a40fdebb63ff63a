// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <map>
#include <string>

namespace rankyard::app {

/// Peak bytes by rank of a job document, from its plan; empty when it cannot be read or planned.
std::map<int, double> predictMemory(const std::string &job);

} // namespace rankyard::app
