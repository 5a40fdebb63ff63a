// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/comm/key_value.h"

#include <condition_variable>
#include <cstdlib>
#include <map>
#include <mutex>

namespace rankyard::comm {

namespace {

class MemoryKeyValue final : public KeyValue
{
public:
    Status set(const std::string &key, const std::string &value) override
    {
        {
            const std::lock_guard lock(m_mutex);
            m_values[key] = value;
        }
        m_changed.notify_all();
        return {};
    }
    Result<std::string> get(const std::string &key, std::chrono::milliseconds timeout) override
    {
        std::unique_lock lock(m_mutex);
        if (!m_changed.wait_for(lock, timeout, [&] { return m_values.count(key) > 0; }))
            return Error::make(Code::RankFailed, "nobody has set a key in time", key);
        return m_values[key];
    }
    Result<std::int64_t> add(const std::string &key, std::int64_t amount) override
    {
        std::int64_t sum = amount;
        {
            const std::lock_guard lock(m_mutex);
            std::string &value = m_values[key];
            sum += std::strtoll(value.c_str(), nullptr, 10);
            value = std::to_string(sum);
        }
        m_changed.notify_all();
        return sum;
    }
    Result<bool> has(const std::string &key) override
    {
        const std::lock_guard lock(m_mutex);
        return m_values.count(key) > 0;
    }
    Status remove(const std::string &key) override
    {
        const std::lock_guard lock(m_mutex);
        m_values.erase(key);
        return {};
    }

private:
    std::mutex m_mutex;
    std::condition_variable m_changed;
    std::map<std::string, std::string> m_values;
};

} // namespace

std::shared_ptr<KeyValue> makeMemoryKeyValue() { return std::make_shared<MemoryKeyValue>(); }

} // namespace rankyard::comm
