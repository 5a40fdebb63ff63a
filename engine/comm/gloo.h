// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/comm/communicator.h"
#include "engine/comm/key_value.h"

#include <memory>
#include <string>
#include <vector>

namespace rankyard::comm {

/// A group whose ranks are reached over TCP.
struct GlooGroup {
    std::string name;                  ///< distinct among the groups of a run: the prefix of its keys
    int rank = 0;                      ///< in the group
    std::vector<int> ranks;            ///< global ranks by rank in the group
    std::string address = "127.0.0.1"; ///< of this host, as the peers reach it
    std::shared_ptr<KeyValue> keys;
    Timeouts timeouts;
};

/// The back end between hosts: c10d's ProcessGroupGloo, which moves data in threads of its own. Blocks until
/// all members are connected. A reduce-scatter is done as an all-reduce, which is Gloo's faster way.
/// LibTorch's exceptions become RankFailed.
Result<std::unique_ptr<Communicator>> makeGlooCommunicator(const GlooGroup &group);

} // namespace rankyard::comm
