// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/plan/passes/stage.h"

#include <algorithm>

namespace rankyard::plan {

StageEmitter::StageEmitter(PassContext context)
    : m_context(context),
      m_program(context.program),
      m_split(context.job),
      m_spans(stageSpans(context.job)),
      m_stage(context.program.role.stage),
      m_compute(context.job.precision.compute),
      m_statType(m_compute == DType::F64 ? DType::F64 : DType::F32),
      m_llama(context.job.model.family == "llama"),
      m_dropout(context.job.model.dropout > 0 && context.training()),
      m_pipeline(context.group("pp"))
{
    addTensors();
    m_wte = weight("wte.weight");
    m_wpe = weight("wpe.weight");
    m_norm = linear("norm");
    m_head = context.job.model.tied ? m_wte : weight("head.weight");
    for (std::int32_t chunk = 0; chunk < chunksOf(context.job); ++chunk) {
        const StageSpan &span =
            m_spans[static_cast<std::size_t>(virtualStageOf(context.job, m_stage, chunk))];
        for (std::int32_t i = span.begin; i < span.end; ++i) {
            const std::string attn = "layers." + std::to_string(i) + ".attn.";
            const std::string mlp = "layers." + std::to_string(i) + ".mlp.";
            m_layers[i] = {linear(attn + "norm"), linear(attn + "qkv"), linear(attn + "out"),
                           linear(mlp + "norm"),  linear(mlp + "up"),   linear(mlp + "down")};
        }
    }
}

// ---- Storage ----

/// The tensors of this rank's units in forward order; a tied embedding on another stage than the head's is there a second
/// time, as the head's.
void StageEmitter::addTensors()
{
    const spec::JobSpec &job = m_context.job;
    const std::vector<TensorSpec> specs = modelTensors(job);
    const auto add = [&](std::size_t index, bool counted) {
        const TensorSpec &spec = specs[index];
        Tensor tensor;
        tensor.id = static_cast<TensorId>(m_program.tensors.size());
        tensor.name = spec.name;
        tensor.index = static_cast<std::int32_t>(index);
        tensor.shape = tensor.global = spec.shape;
        tensor.axis = spec.axis;
        tensor.sections = spec.sections;
        tensor.counted = counted;
        if (spec.axis != none) {
            std::int64_t &size = tensor.shape[static_cast<std::size_t>(spec.axis)];
            size = 0;
            for (const Section &section : spec.sections)
                size += section.local;
        }
        tensor.numel = numelOf(tensor.shape);
        tensor.decay = spec.decay;
        tensor.param = addState(m_program, spec.name, MemoryKind::Params, m_compute, tensor.shape);
        m_program.buffers.back().tensor = tensor.id;
        if (m_context.training()) {
            tensor.grad =
                addState(m_program, "grad:" + spec.name, MemoryKind::Grads, job.precision.grad, tensor.shape);
            m_program.buffers.back().tensor = tensor.id;
        }
        m_weights[spec.name] = {tensor.param, tensor.grad};
        m_program.tensors.push_back(std::move(tensor));
    };
    bool embedding = false;
    bool head = false;
    std::vector<bool> mine(static_cast<std::size_t>(job.model.layers), false);
    for (std::int32_t chunk = 0; chunk < chunksOf(job); ++chunk) {
        const StageSpan &span = m_spans[static_cast<std::size_t>(virtualStageOf(job, m_stage, chunk))];
        embedding = embedding || span.embedding;
        head = head || span.head;
        std::fill(mine.begin() + span.begin, mine.begin() + span.end, true);
    }
    for (std::size_t i = 0; i < specs.size(); ++i) {
        const Unit unit = specs[i].unit;
        if (unit.layer != none                ? mine[static_cast<std::size_t>(unit.layer)]
                : unit.kind == UnitKind::Head ? head
                                              : embedding)
            add(i, true);
    }
    if (head && !embedding && job.model.tied)
        add(0, false);
    m_program.stats = addState(m_program, "stats", MemoryKind::Workspace, DType::F64,
                               {static_cast<std::int64_t>(specs.size()) + statsSlots});
}

StageEmitter::Weight StageEmitter::weight(const std::string &name) const
{
    const auto found = m_weights.find(name);
    return found == m_weights.end() ? Weight() : found->second;
}

BufferId StageEmitter::activation(const std::string &name, std::vector<std::int64_t> shape, DType dtype)
{
    return addBuffer(m_program, name + "@" + std::to_string(m_microbatch), MemoryKind::Activations, dtype,
                     std::move(shape));
}

/// Without those that the model does not have.
std::vector<BufferId> StageEmitter::only(std::vector<BufferId> ids)
{
    std::erase(ids, none);
    return ids;
}

Op StageEmitter::make(OpKind kind, Unit unit, Segment segment, std::vector<BufferId> reads,
                      std::vector<BufferId> writes) const
{
    Op op;
    op.kind = kind;
    op.unit = unit;
    op.segment = segment;
    op.microbatch = m_microbatch;
    op.reads = only(std::move(reads));
    op.writes = only(std::move(writes));
    op.flops = opFlops(m_context.job, kind, segment, m_split.tokens);
    return op;
}

Op &StageEmitter::op(OpKind kind, Unit unit, Segment segment, std::vector<BufferId> reads,
                     std::vector<BufferId> writes)
{
    return appendOp(m_program, make(kind, unit, segment, std::move(reads), std::move(writes)));
}

/// Now, or with the chunk's deferred ones.
void StageEmitter::weightOp(Unit unit, Segment segment, std::vector<BufferId> reads, const Weight &target)
{
    Op op = make(OpKind::BackwardWeight, unit, segment, std::move(reads), {target.grad});
    if (m_defer)
        m_batches[m_microbatch].weights[static_cast<std::size_t>(m_chunk)].push_back(std::move(op));
    else
        appendOp(m_program, std::move(op));
}

// ---- Between stages ----

StageEmitter::Border StageEmitter::borderOf(const Action &action, bool input) const
{
    const std::int32_t own = virtualStageOf(m_context.job, m_stage, action.chunk);
    const bool forwards = action.kind == ActionKind::Forward;
    const std::int32_t other = own + (forwards == input ? -1 : 1);
    Border border;
    if (other < 0 || other >= static_cast<std::int32_t>(m_spans.size()))
        return border;
    border.virtualStage = other;
    const StageSpan &span = m_spans[static_cast<std::size_t>(input ? other : own)]; // who has written it
    if (forwards) {
        border.segment = Segment::Join;
        border.unit = span.begin == span.end ? Unit{UnitKind::Embedding} : Unit{UnitKind::Mlp, span.end - 1};
    } else {
        border.segment = Segment::Norm;
        border.unit = span.begin == span.end ? Unit{UnitKind::Head} : Unit{UnitKind::Attention, span.begin};
    }
    return border;
}

Op StageEmitter::transfer(OpKind kind, const Action &action, const Border &border, BufferId value) const
{
    const spec::JobSpec &job = m_context.job;
    const bool forwards = action.kind == ActionKind::Forward;
    // In the second chunk of a V activations flow down.
    const bool down = job.layout.schedule == "zbv" && action.chunk == 1;
    const bool after = (kind == OpKind::Send) == (forwards != down); // the peer is the stage after this one
    Op op;
    op.kind = kind;
    op.unit = border.unit;
    op.segment = border.segment;
    op.microbatch = action.microbatch;
    op.stream = Stream::Pipeline;
    op.group = m_pipeline;
    op.peer = after ? 1 : -1;
    op.channel = static_cast<std::int32_t>(forwards ? (down ? Channel::ForwardDown : Channel::ForwardUp)
                                                    : (down ? Channel::BackwardUp : Channel::BackwardDown));
    op.payload = m_program.buffer(value).bytes;
    (kind == OpKind::Send ? op.reads : op.writes) = {value};
    return op;
}

BufferId &StageEmitter::inputOf(const Action &action)
{
    MicroBatch &batch = m_batches[action.microbatch];
    const auto chunks = static_cast<std::size_t>(chunksOf(m_context.job));
    for (auto *list : {&batch.x, &batch.dx})
        list->resize(chunks, none);
    batch.weights.resize(chunks);
    return (action.kind == ActionKind::Forward ? batch.x : batch.dx)[static_cast<std::size_t>(action.chunk)];
}

void StageEmitter::prepare(const Action &action)
{
    if (action.kind == ActionKind::BackwardWeight)
        return;
    const Border border = borderOf(action, true);
    BufferId &input = inputOf(action);
    // On the same rank the chunk before has left it there.
    if (border.virtualStage == none
        || placeOfVirtualStage(m_context.job, border.virtualStage).stage == m_stage)
        return;
    m_microbatch = action.microbatch;
    const char *name = action.kind == ActionKind::Forward ? ".x" : ".dx";
    input = activation("received." + placeName(border.unit, Segment::None) + name,
                       {m_split.rows, m_split.hidden});
    Op recv = transfer(OpKind::Recv, action, border, input);
    // Its buffer may lie where something lay that computation has released up to here.
    for (auto before = m_program.ops.rbegin(); before != m_program.ops.rend() && recv.waits.empty();
         ++before) {
        if (before->stream == Stream::Compute)
            recv.waits.push_back(before->id);
    }
    appendOp(m_program, std::move(recv));
}

/// What leaves a chunk: to the next one on this rank, or to another stage. A Send that has not been met keeps its buffer, so the
/// op that makes the next value waits for the one before: at most two of a channel exist.
void StageEmitter::sendOn(const Action &action, BufferId value)
{
    const Border border = borderOf(action, false);
    if (border.virtualStage == none)
        return;
    const StagePlace place = placeOfVirtualStage(m_context.job, border.virtualStage);
    if (place.stage == m_stage) {
        inputOf({action.kind, place.chunk, action.microbatch}) = value;
        return;
    }
    Op send = transfer(OpKind::Send, action, border, value);
    std::vector<OpId> &sends = m_sends[send.channel];
    if (!sends.empty())
        m_program.ops.back().waits.push_back(sends.back());
    sends.push_back(appendOp(m_program, std::move(send)).id);
}

void StageEmitter::emit(const Action &action)
{
    m_microbatch = action.microbatch;
    m_chunk = action.chunk;
    MicroBatch &batch = m_batches[m_microbatch];
    if (action.kind == ActionKind::BackwardWeight) {
        for (Op &op : batch.weights[static_cast<std::size_t>(m_chunk)])
            appendOp(m_program, std::move(op));
        batch.weights[static_cast<std::size_t>(m_chunk)].clear();
        return;
    }
    if (action.kind == ActionKind::Forward) {
        forward(m_chunk);
        sendOn(action, m_batches[m_microbatch].x[static_cast<std::size_t>(m_chunk)]);
    } else {
        backward(m_chunk, action.kind == ActionKind::BackwardInput);
        sendOn(action, m_batches[m_microbatch].dx[static_cast<std::size_t>(m_chunk)]);
    }
}

void stagePass(PassContext context)
{
    StageEmitter emitter(context);
    const std::int32_t stage = context.program.role.stage;
    const std::vector<Action> actions =
        context.training() ? trainSchedule(context.job, stage) : evalSchedule(context.job, stage);
    for (std::size_t i = 0; i < actions.size(); ++i) {
        if (i == 0)
            emitter.prepare(actions[0]);
        if (i + 1 < actions.size()) // one action ahead: its transfer goes on under this one
            emitter.prepare(actions[i + 1]);
        emitter.emit(actions[i]);
    }
}

} // namespace rankyard::plan
