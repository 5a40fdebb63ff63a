// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/cluster/cluster.h"

namespace rankyard::cluster {

/// Adds a device and gives its index. For the sources of clusters.
int add(Node &node, DeviceKind kind, std::string name, int parent);
/// Gives a node without GPUs its cores one by one, each below its NUMA node.
void addCores(Node &node);

} // namespace rankyard::cluster
