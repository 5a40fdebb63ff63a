// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/base/json.h"
#include "engine/cluster/cluster.h"

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

/// Where clusters come from. All of them give the same Cluster; what a source does not say stays 0 or is told in `notes`.
namespace rankyard::cluster {

struct Preset {
    const char *id;   ///< "dgx-a100-80"
    const char *what; ///< "DGX A100, 8 × A100 SXM 80 GB"
};
const std::vector<Preset> &presets();
std::string presetIds(); ///< with commas
/// `count` nodes of it. NotFound for an unknown id, with the ids that are there.
Result<Cluster> makePreset(std::string_view id, int count);

/// The text of `nvidia-smi topo -m`, of drivers old and new, with or without colours. `gpu` is the model's name, which the
/// matrix does not have; empty: unknown. BadData with the line that makes no sense.
Result<Cluster> readTopoMatrix(std::string_view text, const std::string &name, std::string_view gpu = {});

/// hwloc's XML (lstopo --of xml, version 2), or a synthetic description ("package:2 numa:2 core:8 pu:2").
Result<Cluster> readHwlocXml(const std::string &text, const std::string &name);
Result<Cluster> readSynthetic(const std::string &description, const std::string &name);
/// The machine that this runs on: hwloc, /proc/cpuinfo for the processor's name, /sys for the rate of network cards.
Result<Cluster> thisMachine();

/// A cluster file, schema rankyard/cluster/1. Node types are presets by id, or written out.
Result<Cluster> readCluster(const Json &document, const std::string &name);
OrderedJson writeCluster(const Cluster &cluster);

/// Where `cluster probe` keeps this machine with what it measured, in dataDir(): a cluster file.
std::filesystem::path probeFile();

/// Any of them by what a user writes: a file (JSON, hwloc XML or topo matrix, told by its content), "local" (with what was probed, if it was), a preset with a
/// number of nodes ("dgx-h100 x 32", "dgx-h100x32"), or a synthetic description with a colon in it.
Result<Cluster> openCluster(const std::string &what);

} // namespace rankyard::cluster
