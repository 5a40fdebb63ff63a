// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/cluster/cluster.h"

#include <QString>
#include <QStringList>

/// Devices and links in words.
namespace rankyard::ui {

QString textOfBytes(double bytes);              ///< GB of 10⁹ for GPUs is the vendors' way: "80 GB"
QString textOfRate(double bytesPerSecond);      ///< "300 GB/s"
QString summaryOf(const cluster::Node &node);   ///< "2 × EPYC 7742 · 2.00 TiB · 8 × A100 SXM 80 GB"
QString titleOf(const cluster::Device &device); ///< "NUMA 0 · 64 cores · 1.00 TiB"
QString wordsOfLink(const cluster::Link &link); ///< "NVSwitch, 300 GB/s"
QString codeOfLink(const cluster::Link &link);  ///< "NV12", "PIX"

} // namespace rankyard::ui
