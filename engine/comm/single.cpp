// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/comm/communicator.h"

namespace rankyard::comm {

namespace {

/// A group of one.
class SingleCommunicator final : public Communicator
{
public:
    int rank() const override { return 0; }
    int size() const override { return 1; }
    const char *backend() const override { return "single"; }

    Result<Ticket> allReduce(void *, std::int64_t count, DType type, ReduceOp) override
    {
        return next(count, type);
    }
    Result<Ticket> reduceScatter(void *, std::int64_t count, DType type) override
    {
        return next(count, type);
    }
    Result<Ticket> allGather(void *, std::int64_t count, DType type, UsedBytes) override
    {
        return next(count, type);
    }
    Result<Ticket> send(const void *, std::int64_t, int peer, int) override { return noPeer(peer); }
    Result<Ticket> receive(void *, std::int64_t, int peer, int) override { return noPeer(peer); }
    Result<bool> advance(Ticket, std::int64_t) override { return true; }
    Status wait(Ticket) override { return {}; }
    Figures figures(Ticket ticket) const override { return {m_payload[ticket.sequence % kept], 0, 0}; }

private:
    static constexpr std::uint64_t kept = 1024;

    Ticket next(std::int64_t count, DType type)
    {
        m_payload[++m_sequence % kept] = count * static_cast<std::int64_t>(bytesOf(type));
        return Ticket{m_sequence};
    }
    static Error noPeer(int peer)
    {
        return Error::make(Code::Internal, "a group of one has no peer").withFound(std::to_string(peer));
    }

    std::uint64_t m_sequence = 0;
    std::vector<std::int64_t> m_payload = std::vector<std::int64_t>(kept);
};

} // namespace

std::unique_ptr<Communicator> makeSingleCommunicator() { return std::make_unique<SingleCommunicator>(); }

Status Communicator::barrier()
{
    std::int64_t word = 0;
    RY_ASSIGN(const Ticket ticket, allReduce(&word, 1, DType::I64, ReduceOp::Sum));
    return wait(ticket);
}

} // namespace rankyard::comm
