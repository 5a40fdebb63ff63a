// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/plan/passes/pass.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

namespace rankyard::plan {

bool recomputes(const spec::Recompute &recompute, std::int32_t layer)
{
    if (!recompute.ratio)
        return layer % recompute.every == 0;
    const double ratio = *recompute.ratio;
    return std::floor((layer + 1) * ratio + 1e-9) > std::floor(layer * ratio + 1e-9);
}

namespace {

/// Activation checkpointing (Chen et al. 2016; selective: Korthikanti et al. 2022): backward reads activations that are computed
/// again right before their first use, so that the first ones are released in the forward.
class Recomputation
{
public:
    explicit Recomputation(PassContext context) : m_context(context), m_program(context.program) {}
    void run();

private:
    using Key = std::pair<std::int32_t, std::int32_t>; ///< layer, micro-batch
    struct Layer {
        bool backward = false;                         ///< its forward is over
        std::map<BufferId, std::vector<OpId>> writers; ///< of the forward, in order
        std::set<BufferId> dropped;
        std::map<BufferId, BufferId> again;
    };

    bool drops(const Op &op, std::size_t place) const;
    void record(Layer &layer, const Op &op);
    BufferId again(Layer &layer, BufferId id);
    void repeat(Layer &layer, const Op &op);
    void rescue(Layer &layer, const Op &op);

    PassContext m_context;
    StepProgram &m_program;
    StepProgram m_out; ///< its ops only
    std::map<Key, Layer> m_layers;
};

/// selective: norms and the MLP's activation; attention: the core too; full: everything but the layer's input.
bool Recomputation::drops(const Op &op, std::size_t place) const
{
    const std::string &mode = m_context.job.recompute.mode;
    if (mode == "full")
        return true;
    return op.segment == Segment::Norm || (op.segment == Segment::Up && place == 1)
        || (op.segment == Segment::Core && mode == "attention");
}

void Recomputation::record(Layer &layer, const Op &op)
{
    for (std::size_t place = 0; place < op.writes.size(); ++place) {
        layer.writers[op.writes[place]].push_back(op.id);
        if (!isTransfer(op.kind) ? drops(op, place) : layer.dropped.contains(op.reads[0]))
            layer.dropped.insert(op.writes[place]);
    }
}

/// The buffer that has the value of `id` again; emits the ops that make it, once.
BufferId Recomputation::again(Layer &layer, BufferId id)
{
    if (!layer.dropped.contains(id))
        return id;
    if (const auto found = layer.again.find(id); found != layer.again.end())
        return found->second;
    for (const OpId writer : layer.writers.at(id))
        repeat(layer, m_program.op(writer));
    return layer.again.at(id);
}

void Recomputation::repeat(Layer &layer, const Op &first)
{
    Op op = first;
    op.waits.clear();
    if (!isTransfer(op.kind))
        op.kind = OpKind::Recompute;
    // From u, which is there, the activation alone.
    if (op.segment == Segment::Up && !layer.dropped.contains(op.writes[0])) {
        op.segment = Segment::Act;
        op.reads = {op.writes[0]};
        op.writes = {op.writes[1]};
        op.flops = 0;
    }
    for (BufferId &id : op.reads)
        id = again(layer, id);
    for (BufferId &id : op.writes) {
        const auto found = layer.again.find(id);
        if (found != layer.again.end()) {
            id = found->second; // in place
            continue;
        }
        const Buffer buffer = m_program.buffer(id);
        std::string name = buffer.name;
        name.insert(std::min(name.rfind('@'), name.size()), "'");
        const BufferId copy = addBuffer(m_program, std::move(name), buffer.kind, buffer.dtype, buffer.shape);
        layer.again[id] = copy;
        id = copy;
    }
    appendOp(m_out, std::move(op));
}

/// What is made again from a buffer is made before a gradient takes its place (u, where weight ops are deferred).
void Recomputation::rescue(Layer &layer, const Op &op)
{
    for (const BufferId id : op.writes) {
        const auto found = layer.writers.find(id);
        if (found == layer.writers.end())
            continue;
        for (const OpId writer : found->second) {
            for (const BufferId output : m_program.op(writer).writes)
                again(layer, output);
        }
    }
}

void Recomputation::run()
{
    std::vector<OpId> moved;
    for (const Op &original : std::vector<Op>(m_program.ops)) {
        Op op = original;
        for (OpId &wait : op.waits)
            wait = moved[static_cast<std::size_t>(wait)];
        if (op.unit.layer != none && recomputes(m_context.job.recompute, op.unit.layer)
            && op.kind != OpKind::Send && op.kind != OpKind::Recv) {
            Layer &layer = m_layers[{op.unit.layer, op.microbatch}];
            layer.backward =
                layer.backward || op.kind == OpKind::BackwardInput || op.kind == OpKind::BackwardWeight;
            if (!layer.backward) {
                record(layer, original);
            } else {
                rescue(layer, original);
                for (BufferId &id : op.reads) {
                    const BufferId value = again(layer, id);
                    for (BufferId &written : op.writes) // u, which becomes its gradient
                        written = written == id ? value : written;
                    id = value;
                }
            }
        }
        moved.push_back(appendOp(m_out, std::move(op)).id);
    }
    m_program.ops = std::move(m_out.ops);
}

} // namespace

void recomputePass(PassContext context)
{
    if (context.training() && context.job.recompute.mode != "none")
        Recomputation(context).run();
}

} // namespace rankyard::plan
