// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/exec/device.h"

#include <memory>

/// Compressed reductions on one rank (DESIGN section 4): what the replicas of a layout would send, one after the other.
namespace rankyard::exec {

/// A device for a program of one rank that has the global batch of `layout`, a plan with compression: the micro-batches of each
/// replica add their gradients in storage of their own, and before the first gradient norm every rank's Encode and Decode ops of
/// `layout` run on them, with that rank's error feedback; their sums become the gradients. `inner` computes. Both plans must
/// outlive it. Not for context parallelism: what each of its ranks adds to a gradient cannot be told apart on one rank.
std::unique_ptr<Device> makeReplicaDevice(std::unique_ptr<Device> inner, const plan::Plan &layout);

} // namespace rankyard::exec
