// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/comm/gloo.h"

#include <ATen/ops/from_blob.h>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <array>
#include <cstdlib>
#include <mutex>
#include <optional>

namespace rankyard::comm {

namespace {

constexpr std::size_t kept = 1024;

std::string textOf(const std::vector<std::uint8_t> &bytes) { return {bytes.begin(), bytes.end()}; }

/// c10d's view of a KeyValue. It knows errors as exceptions only; they come back in GlooCommunicator.
class KeyValueStore final : public c10d::Store
{
public:
    KeyValueStore(std::shared_ptr<KeyValue> keys, std::string prefix, std::chrono::milliseconds timeout)
        : c10d::Store(timeout),
          m_keys(std::move(keys)),
          m_prefix(std::move(prefix))
    {}

    c10::intrusive_ptr<c10d::Store> clone() override
    {
        return c10::make_intrusive<KeyValueStore>(m_keys, m_prefix, timeout_);
    }
    void set(const std::string &key, const std::vector<std::uint8_t> &value) override
    {
        check(m_keys->set(m_prefix + key, textOf(value)));
    }
    std::vector<std::uint8_t> get(const std::string &key) override
    {
        const std::string value = take(m_keys->get(m_prefix + key, timeout_));
        return {value.begin(), value.end()};
    }
    std::int64_t add(const std::string &key, std::int64_t value) override
    {
        return take(m_keys->add(m_prefix + key, value));
    }
    bool deleteKey(const std::string &key) override
    {
        const bool there = take(m_keys->has(m_prefix + key));
        check(m_keys->remove(m_prefix + key));
        return there;
    }
    bool check(const std::vector<std::string> &keys) override
    {
        return std::all_of(keys.begin(), keys.end(),
                           [this](const std::string &key) { return take(m_keys->has(m_prefix + key)); });
    }
    std::int64_t getNumKeys() override { return 0; }
    void wait(const std::vector<std::string> &keys) override { wait(keys, timeout_); }
    void wait(const std::vector<std::string> &keys, const std::chrono::milliseconds &timeout) override
    {
        for (const std::string &key : keys)
            take(m_keys->get(m_prefix + key, timeout));
    }

private:
    static void check(const Status &status)
    {
        if (!status.ok())
            throw std::runtime_error(status.error().text());
    }
    template<typename T>
    static T take(Result<T> result)
    {
        if (!result.ok())
            throw std::runtime_error(result.error().text());
        return std::move(result).value();
    }

    std::shared_ptr<KeyValue> m_keys;
    std::string m_prefix;
};

at::ScalarType scalarTypeOf(DType type)
{
    switch (type) {
    case DType::F64:
        return at::kDouble;
    case DType::F32:
        return at::kFloat;
    case DType::BF16:
        return at::kBFloat16;
    case DType::F16:
        return at::kHalf;
    case DType::I64:
        return at::kLong;
    case DType::I32:
        return at::kInt;
    default:
        return at::kByte;
    }
}

class GlooCommunicator final : public Communicator
{
public:
    explicit GlooCommunicator(const GlooGroup &group) : m_group(group), m_operations(kept) {}

    void connect()
    {
        auto options = c10d::ProcessGroupGloo::Options::create(m_group.timeouts.hang);
        options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname(m_group.address));
        options->threads = 2;
        const auto store =
            c10::make_intrusive<KeyValueStore>(m_group.keys, m_group.name + "/", m_group.timeouts.start);
        m_gloo = c10::make_intrusive<c10d::ProcessGroupGloo>(store, m_group.rank, size(), options);
    }

    int rank() const override { return m_group.rank; }
    int size() const override { return static_cast<int>(m_group.ranks.size()); }
    const char *backend() const override { return "gloo"; }

    Result<Ticket> allReduce(void *data, std::int64_t count, DType type, ReduceOp op) override
    {
        return start(count * static_cast<std::int64_t>(bytesOf(type)), 2, [&](Operation &) {
            c10d::AllreduceOptions options;
            options.reduceOp = op == ReduceOp::Max ? c10d::ReduceOp::MAX : c10d::ReduceOp::SUM;
            std::vector<at::Tensor> tensors{view(data, count, type)};
            return m_gloo->allreduce(tensors, options);
        });
    }
    Result<Ticket> reduceScatter(void *data, std::int64_t count, DType type) override
    {
        if (count % size() != 0)
            return fail("the count is not a multiple of the group's size");
        return start(count * static_cast<std::int64_t>(bytesOf(type)), 1, [&](Operation &) {
            std::vector<at::Tensor> tensors{view(data, count, type)};
            return m_gloo->allreduce(tensors, c10d::AllreduceOptions());
        });
    }
    Result<Ticket> allGather(void *data, std::int64_t count, DType type, UsedBytes) override
    {
        if (count % size() != 0)
            return fail("the count is not a multiple of the group's size");
        return start(count * static_cast<std::int64_t>(bytesOf(type)), 1, [&](Operation &operation) {
            at::Tensor all = view(data, count, type);
            operation.own = all.narrow(0, count / size() * rank(), count / size())
                                .clone(); // it must not lie in the output
            return m_gloo->_allgather_base(all, operation.own);
        });
    }
    Result<Ticket> send(const void *data, std::int64_t bytes, int peer, int channel) override
    {
        return start(bytes, 0, [&](Operation &) {
            std::vector<at::Tensor> tensors{view(const_cast<void *>(data), bytes, DType::U8)};
            return m_gloo->send(tensors, peer, channel);
        });
    }
    Result<Ticket> receive(void *data, std::int64_t bytes, int peer, int channel) override
    {
        return start(bytes, 0, [&](Operation &) {
            std::vector<at::Tensor> tensors{view(data, bytes, DType::U8)};
            return m_gloo->recv(tensors, peer, channel);
        });
    }

    Result<bool> advance(Ticket ticket, std::int64_t) override
    {
        if (m_error)
            return *m_error;
        Operation &operation = at(ticket);
        if (!operation.work)
            return true;
        if (!operation.work->isCompleted())
            return false;
        RY_TRY(wait(ticket)); // takes its error, if it has one
        return true;
    }
    Status wait(Ticket ticket) override
    {
        if (m_error)
            return *m_error;
        Operation &operation = at(ticket);
        if (!operation.work)
            return {};
        try {
            operation.work->wait(m_group.timeouts.hang);
        } catch (const std::exception &exception) {
            return fail(exception.what());
        }
        operation.work.reset();
        operation.own.reset();
        return {};
    }
    Figures figures(Ticket ticket) const override { return m_operations[ticket.sequence % kept].figures; }

private:
    struct Operation {
        c10::intrusive_ptr<c10d::Work> work;
        at::Tensor own;
        Figures figures;
    };

    static at::Tensor view(void *data, std::int64_t count, DType type)
    {
        return at::from_blob(data, {count}, at::TensorOptions().dtype(scalarTypeOf(type)));
    }
    Operation &at(Ticket ticket) { return m_operations[ticket.sequence % kept]; }

    /// `wire`: times (n − 1) ÷ n of the payload that go over the network; 0: the payload itself.
    template<typename Start>
    Result<Ticket> start(std::int64_t payload, int wire, Start run)
    {
        if (m_error)
            return *m_error;
        const Ticket ticket{++m_sequence};
        Operation &operation = at(ticket);
        operation = Operation{};
        operation.figures.payload = payload;
        operation.figures.wire = wire == 0 ? payload : wire * payload * (size() - 1) / size();
        operation.figures.moved = operation.figures.wire;
        if (payload == 0)
            return ticket; // Gloo refuses empty tensors
        try {
            operation.work = run(operation);
        } catch (const std::exception &exception) {
            return fail(exception.what());
        }
        return ticket;
    }
    Error fail(const std::string &what)
    {
        if (!m_error) {
            // The first line: what follows is LibTorch's own call stack.
            m_error =
                Error::make(Code::RankFailed, "communication in group " + m_group.name + " failed",
                            "rank " + std::to_string(m_group.ranks[static_cast<std::size_t>(m_group.rank)]))
                    .withFound("operation " + std::to_string(m_sequence) + ": "
                               + what.substr(0, what.find('\n')));
        }
        return *m_error;
    }

    GlooGroup m_group;
    c10::intrusive_ptr<c10d::ProcessGroupGloo> m_gloo;
    std::optional<Error> m_error;
    std::uint64_t m_sequence = 0;
    std::vector<Operation> m_operations;
};

/// c10d's flight recorder keeps a map of all groups of the process that LibTorch 2.11 changes outside its lock, so that
/// two threads with a group each crash now and then (FlightRecorderDetail.hpp, recordWithResetEnabled); it also
/// allocates at every operation. It reads the variable once, when the first group of the process is made.
void silenceFlightRecorder()
{
    static std::once_flag once;
    std::call_once(once, [] { ::setenv("TORCH_FR_BUFFER_SIZE", "0", 1); });
}

} // namespace

Result<std::unique_ptr<Communicator>> makeGlooCommunicator(const GlooGroup &group)
{
    silenceFlightRecorder();
    auto communicator = std::make_unique<GlooCommunicator>(group);
    try {
        communicator->connect();
    } catch (const std::exception &exception) {
        const std::string what = exception.what();
        return Error::make(Code::RankFailed, "the ranks of group " + group.name + " cannot connect",
                           group.address)
            .withFound(what.substr(0, what.find('\n')));
    }
    return std::unique_ptr<Communicator>(std::move(communicator));
}

} // namespace rankyard::comm
