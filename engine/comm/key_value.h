// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/base/result.h"

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace rankyard::comm {

/// Where the ranks of a group tell each other their addresses. On a cluster it goes through the agents'
/// links. Any thread.
class KeyValue
{
public:
    virtual ~KeyValue() = default;

    virtual Status set(const std::string &key, const std::string &value) = 0;
    /// Waits until somebody has set the key: RankFailed after `timeout`.
    virtual Result<std::string> get(const std::string &key, std::chrono::milliseconds timeout) = 0;
    /// Adds to a number that begins at 0; the new value.
    virtual Result<std::int64_t> add(const std::string &key, std::int64_t amount) = 0;
    virtual Result<bool> has(const std::string &key) = 0;
    virtual Status remove(const std::string &key) = 0;
};

/// For ranks that are threads of one process.
std::shared_ptr<KeyValue> makeMemoryKeyValue();

} // namespace rankyard::comm
