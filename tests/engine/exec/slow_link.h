// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/base/units.h"
#include "engine/comm/communicator.h"
#include "engine/exec/device.h"

#include <algorithm>
#include <ctime>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace rankyard::exec::test {

inline void sleepUntil(std::int64_t due)
{
    for (std::int64_t left = 0; (left = due - monotonicNs()) > 0;) {
        const timespec time{left / 1'000'000'000, left % 1'000'000'000};
        ::nanosleep(&time, nullptr);
    }
}

/// Takes `opNs` for each product of matrices, mostly asleep: a processor of its own for each rank, whoever else is at work here.
class SlowDevice : public Device
{
public:
    SlowDevice(std::unique_ptr<Device> inner, std::int64_t opNs) : m_inner(std::move(inner)), m_opNs(opNs) {}
    std::string name() const override { return m_inner->name(); }
    void setThreads(int threads) override { m_inner->setThreads(threads); }
    std::vector<std::pair<std::string, std::int64_t>> libraryWorkspace() const override
    {
        return m_inner->libraryWorkspace();
    }
    Result<std::unique_ptr<BoundOp>> bind(const BindContext &context, const plan::Op &op) override
    {
        RY_ASSIGN(auto bound, m_inner->bind(context, op));
        return op.flops > 0 ? std::make_unique<Slow>(std::move(bound), m_opNs) : std::move(bound);
    }

private:
    struct Slow : BoundOp {
        Slow(std::unique_ptr<BoundOp> op, std::int64_t ns) : inner(std::move(op)), opNs(ns) {}
        void run(StepState &state) override
        {
            const std::int64_t begin = monotonicNs();
            inner->run(state);
            sleepUntil(begin + opNs);
        }
        std::unique_ptr<BoundOp> inner;
        std::int64_t opNs;
    };
    std::unique_ptr<Device> m_inner;
    std::int64_t m_opNs;
};

/// A group over a link that carries one operation after the other, each for `latencyNs` + bytes ÷ `bytesPerNs`: it is complete no
/// sooner, whatever the memory underneath takes.
class SlowLink : public comm::Communicator
{
public:
    SlowLink(std::unique_ptr<comm::Communicator> inner, std::int64_t latencyNs, double bytesPerNs)
        : m_inner(std::move(inner)),
          m_latencyNs(latencyNs),
          m_bytesPerNs(bytesPerNs)
    {}

    static std::int64_t delayOf(std::int64_t bytes, std::int64_t latencyNs, double bytesPerNs)
    {
        return latencyNs + static_cast<std::int64_t>(static_cast<double>(bytes) / bytesPerNs);
    }

    int rank() const override { return m_inner->rank(); }
    int size() const override { return m_inner->size(); }
    const char *backend() const override { return "slow"; }
    Result<comm::Ticket> allReduce(void *data, std::int64_t count, DType type, comm::ReduceOp op) override
    {
        return delayed(m_inner->allReduce(data, count, type, op), count, type);
    }
    Result<comm::Ticket> reduceScatter(void *data, std::int64_t count, DType type) override
    {
        return delayed(m_inner->reduceScatter(data, count, type), count, type);
    }
    Result<comm::Ticket> allGather(void *data, std::int64_t count, DType type, comm::UsedBytes used) override
    {
        return delayed(m_inner->allGather(data, count, type, used), count, type);
    }
    Result<comm::Ticket> send(const void *data, std::int64_t bytes, int peer, int channel) override
    {
        return m_inner->send(data, bytes, peer, channel);
    }
    Result<comm::Ticket> receive(void *data, std::int64_t bytes, int peer, int channel) override
    {
        return m_inner->receive(data, bytes, peer, channel);
    }
    Result<bool> advance(comm::Ticket ticket, std::int64_t budget) override
    {
        RY_ASSIGN(const bool done, m_inner->advance(ticket, budget));
        const auto due = m_due.find(ticket.sequence);
        return done && (due == m_due.end() || monotonicNs() >= due->second);
    }
    Status wait(comm::Ticket ticket) override
    {
        RY_TRY(m_inner->wait(ticket));
        const auto due = m_due.find(ticket.sequence);
        if (due != m_due.end())
            sleepUntil(due->second);
        return {};
    }
    comm::Figures figures(comm::Ticket ticket) const override { return m_inner->figures(ticket); }
    void heartbeat() override { m_inner->heartbeat(); }

private:
    Result<comm::Ticket> delayed(Result<comm::Ticket> ticket, std::int64_t count, DType type)
    {
        if (ticket) {
            const std::int64_t bytes = count * static_cast<std::int64_t>(bytesOf(type));
            m_free = std::max(m_free, monotonicNs()) + delayOf(bytes, m_latencyNs, m_bytesPerNs);
            m_due[ticket->sequence] = m_free;
        }
        return ticket;
    }

    std::unique_ptr<comm::Communicator> m_inner;
    std::int64_t m_latencyNs;
    double m_bytesPerNs;
    std::int64_t m_free = 0;                     ///< when the link has carried what was given to it
    std::map<std::uint64_t, std::int64_t> m_due; ///< by operation
};

} // namespace rankyard::exec::test
