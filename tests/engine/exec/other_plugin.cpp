// SPDX-License-Identifier: GPL-3.0-or-later
// A plug-in of another version, for test_plugin.cpp.
#include "engine/exec/plugin.h"

static const rankyard::exec::DevicePlugin table = {999, "another build", "none", nullptr, nullptr};

extern "C" const rankyard::exec::DevicePlugin *rankyard_device_plugin() { return &table; }
