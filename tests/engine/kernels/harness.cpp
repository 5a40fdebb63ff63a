// SPDX-License-Identifier: GPL-3.0-or-later
#include "tests/engine/kernels/harness.h"

#include "tests/engine/kernels/storage.h"

#include <stdexcept>

namespace rankyard::kernels::test {

namespace {

Values readAll(DType type, const std::byte *p, std::int64_t count)
{
    Storage storage(type, static_cast<std::size_t>(count));
    std::memcpy(storage.data(), p, static_cast<std::size_t>(count) * bytesOf(type));
    return storage.values();
}

void writeAll(DType type, std::byte *p, const Values &values)
{
    Storage storage(type, values);
    std::memcpy(p, storage.data(), values.size() * bytesOf(type));
}

} // namespace

Harness::Harness(const spec::JobSpec &job, exec::Device &device)
{
    Result<plan::Plan> made = plan::makePlan(job);
    if (!made)
        throw std::runtime_error(made.error().text());
    m_plan = std::make_unique<plan::Plan>(std::move(*made));
    m_train = bindProgram(plan::ProgramKind::Train, device);
    if (m_plan->has(plan::ProgramKind::Eval))
        m_eval = bindProgram(plan::ProgramKind::Eval, device);
}

Harness::Bound Harness::bindProgram(plan::ProgramKind kind, exec::Device &device)
{
    Bound bound;
    bound.program = &m_plan->program(kind, 0);
    // Garbage, so that what is read before it is written shows.
    for (const plan::Arena &arena : bound.program->arenas) {
        if (static_cast<std::size_t>(arena.id) >= m_arenas.size())
            m_arenas.resize(static_cast<std::size_t>(arena.id) + 1);
        auto &bytes = m_arenas[static_cast<std::size_t>(arena.id)];
        if (bytes.size() < static_cast<std::size_t>(arena.bytes) + 64)
            bytes.resize(static_cast<std::size_t>(arena.bytes) + 64, std::byte{0xff});
    }
    for (const plan::Buffer &buffer : bound.program->buffers) {
        auto &arena = m_arenas[static_cast<std::size_t>(buffer.arena)];
        const auto start = reinterpret_cast<std::uintptr_t>(arena.data());
        bound.address.push_back(arena.data() + (64 - start % 64) % 64 + buffer.offset);
        if (buffer.kind == plan::MemoryKind::Optimizer)
            std::memset(bound.address.back(), 0, static_cast<std::size_t>(buffer.bytes));
    }
    exec::BindContext context;
    context.plan = m_plan.get();
    context.program = bound.program;
    context.address = bound.address;
    for (const plan::Op &op : bound.program->ops) {
        if (op.kind == plan::OpKind::LoadBatch || op.kind == plan::OpKind::StepScalars) {
            bound.ops.push_back(nullptr);
            continue;
        }
        auto made = device.bind(context, op);
        if (!made)
            throw std::runtime_error(made.error().text());
        bound.ops.push_back(std::move(*made));
    }
    return bound;
}

const plan::Tensor &Harness::tensor(const std::string &name) const
{
    for (const plan::Tensor &tensor : m_train.program->tensors) {
        if (tensor.name == name)
            return tensor;
    }
    throw std::runtime_error("no tensor " + name);
}

void Harness::setParameter(const std::string &name, const Values &values)
{
    const plan::Tensor &t = tensor(name);
    writeAll(m_train.program->buffer(t.param).dtype, m_train.address[static_cast<std::size_t>(t.param)],
             values);
    const plan::Bucket &bucket = m_train.program->buckets[static_cast<std::size_t>(t.bucket)];
    if (bucket.master != plan::none) {
        const plan::Buffer &master = m_train.program->buffer(bucket.master);
        writeAll(master.dtype,
                 m_train.address[static_cast<std::size_t>(master.id)]
                     + t.offset * static_cast<std::int64_t>(bytesOf(master.dtype)),
                 values);
    }
}

Values Harness::parameter(const std::string &name) const
{
    const plan::Tensor &t = tensor(name);
    return readAll(m_train.program->buffer(t.param).dtype, m_train.address[static_cast<std::size_t>(t.param)],
                   t.numel);
}

Values Harness::gradient(const std::string &name) const
{
    const plan::Tensor &t = tensor(name);
    return readAll(m_train.program->buffer(t.grad).dtype, m_train.address[static_cast<std::size_t>(t.grad)],
                   t.numel);
}

Parameters Harness::parameters() const
{
    Parameters result;
    for (const plan::Tensor &t : m_train.program->tensors)
        result[t.name] = {t.shape, parameter(t.name)};
    return result;
}

void Harness::scalars(const Bound &bound)
{
    const auto count = bound.program->tensors.size();
    const auto *stats =
        reinterpret_cast<const double *>(bound.address[static_cast<std::size_t>(bound.program->stats)]);
    double squares = 0;
    for (std::size_t i = 0; i < count; ++i)
        squares += stats[i];
    m_state.loss = stats[count + plan::StatsLoss] * m_state.lossWeight;
    m_state.overflow = stats[count + plan::StatsNonFinite] > 0;
    m_state.gradNorm = std::sqrt(squares) / m_state.lossScale;
    const double clip = m_plan->job.optimizer.clip;
    // As torch.nn.utils.clip_grad_norm_.
    const double factor = clip > 0 ? std::min(1.0, clip / (m_state.gradNorm + 1e-6)) : 1.0;
    m_state.gradFactor = factor / m_state.lossScale;
}

void Harness::run(Bound &bound, const std::vector<std::int32_t> &tokens,
                  const std::vector<std::int32_t> &labels, bool update)
{
    const plan::Buffer &stats = bound.program->buffer(bound.program->stats);
    std::memset(bound.address[static_cast<std::size_t>(stats.id)], 0, static_cast<std::size_t>(stats.bytes));
    m_state.lossWeight =
        1.0 / static_cast<double>(std::count_if(labels.begin(), labels.end(), [](auto l) { return l >= 0; }));
    probed = 0;
    m_times.assign(bound.program->ops.size(), 0);
    const std::int64_t perMicro = m_plan->job.batch.micro * m_plan->job.model.seq;
    for (const plan::Op &op : bound.program->ops) {
        const std::int64_t begin = clock();
        if (op.kind == plan::OpKind::LoadBatch) {
            const auto bytes = static_cast<std::size_t>(perMicro) * sizeof(std::int32_t);
            std::memcpy(bound.address[static_cast<std::size_t>(op.writes[0])],
                        tokens.data() + op.microbatch * perMicro, bytes);
            std::memcpy(bound.address[static_cast<std::size_t>(op.writes[1])],
                        labels.data() + op.microbatch * perMicro, bytes);
        } else if (op.kind == plan::OpKind::StepScalars) {
            scalars(bound);
        } else if (op.kind != plan::OpKind::Optimizer || update) {
            const std::int64_t before = probe ? probe() : 0;
            bound.ops[static_cast<std::size_t>(op.id)]->run(m_state);
            probed += probe ? probe() - before : 0;
        }
        m_times[static_cast<std::size_t>(op.id)] = clock() - begin;
    }
}

void Harness::train(const std::vector<std::int32_t> &tokens, const std::vector<std::int32_t> &labels,
                    bool update)
{
    ++m_state.step;
    run(m_train, tokens, labels, update);
}

double Harness::evaluate(const std::vector<std::int32_t> &tokens, const std::vector<std::int32_t> &labels)
{
    run(m_eval, tokens, labels, false);
    return m_state.loss;
}

} // namespace rankyard::kernels::test
