// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/plan/verify/flow.h"

#include <algorithm>

namespace rankyard::plan {

namespace {

/// A view of some rows of a gradient: it is of its tensor's atom.
bool isPart(const StepProgram &program, const Buffer &buffer)
{
    return buffer.tensor != none && numelOf(buffer.shape) != program.tensors[at(buffer.tensor)].numel;
}

bool isGradient(const Buffer &buffer)
{
    return buffer.kind == MemoryKind::Grads || (buffer.kind == MemoryKind::Buckets && buffer.tensor != none);
}

} // namespace

FlowCheck::FlowCheck(const StepProgram &program, const Order &order)
    : m_program(program),
      m_order(order),
      m_roots(program.buffers.size()),
      m_atomOf(program.buffers.size(), none),
      m_bucketOf(program.buffers.size(), none),
      m_tied(program.buckets.size(), false),
      m_encoded(program.buckets.size(), false),
      m_decoded(program.buckets.size(), false),
      m_acrossBlocks(program.buckets.size(), false),
      m_steps(program),
      m_codeOf(program.buffers.size(), none),
      m_norms(program.buckets.size(), none),
      m_updates(program.buckets.size(), none)
{
    std::vector<std::vector<BufferId>> views(program.buffers.size());
    for (const Buffer &buffer : program.buffers) {
        if (buffer.parent != none && buffer.sliceGroup == none && !isPart(program, buffer))
            views[at(buffer.parent)].push_back(buffer.id);
    }
    for (const Buffer &buffer : program.buffers) {
        if (buffer.parent != none)
            continue;
        Root &root = m_roots[at(buffer.id)];
        root.firstAtom = static_cast<std::int32_t>(m_atoms.size());
        root.atoms = std::max<std::int32_t>(1, static_cast<std::int32_t>(views[at(buffer.id)].size()));
        for (std::size_t i = 0; i < views[at(buffer.id)].size(); ++i)
            m_atomOf[at(views[at(buffer.id)][i])] = root.firstAtom + static_cast<std::int32_t>(i);
        m_atoms.resize(m_atoms.size() + at(root.atoms));
        if (buffer.persistent && buffer.kind != MemoryKind::Grads)
            fill(buffer.id, Content::Whole);
    }
    for (const Buffer &buffer : program.buffers) {
        if (buffer.tensor == none)
            continue;
        m_bucketOf[at(buffer.parent)] = program.tensors[at(buffer.tensor)].bucket;
        if (!isPart(program, buffer))
            continue;
        for (const BufferId view : views[at(buffer.parent)]) {
            if (program.buffer(view).tensor == buffer.tensor)
                m_atomOf[at(buffer.id)] = m_atomOf[at(view)];
        }
    }
    for (std::size_t i = 0; i < program.buckets.size(); ++i) {
        const Bucket &bucket = program.buckets[i];
        for (const BufferId root : {bucket.param, bucket.grad}) {
            if (root != none)
                m_bucketOf[at(root)] = static_cast<std::int32_t>(i);
        }
        if (bucket.slices > 1
            && bucket.param != none) { // the optimizer of the step before has made this rank's slice only
            fill(bucket.param, Content::Nothing);
            m_roots[at(bucket.param)].slice = Content::Whole;
        }
    }
}

std::pair<std::int32_t, std::int32_t> FlowCheck::atomsOf(BufferId id) const
{
    if (m_atomOf[at(id)] != none)
        return {m_atomOf[at(id)], m_atomOf[at(id)] + 1};
    const Root &root = m_roots[at(rootOf(m_program, id))];
    return {root.firstAtom, root.firstAtom + root.atoms};
}

bool FlowCheck::all(BufferId root, Content content) const
{
    const auto [begin, end] = atomsOf(root);
    return std::all_of(m_atoms.begin() + begin, m_atoms.begin() + end,
                       [&](const Atom &atom) { return atom.content == content; });
}

void FlowCheck::fill(BufferId root, Content content)
{
    const auto [begin, end] = atomsOf(root);
    for (std::int32_t i = begin; i < end; ++i)
        m_atoms[at(i)].content = content;
}

// ---- Streams: whoever touches the same bytes, one of them writing, must be ordered ----

Status FlowCheck::checkOrder(const Op &op, BufferId id, bool writes)
{
    const auto [begin, end] = atomsOf(id);
    for (std::int32_t i = begin; i < end; ++i) {
        Atom &atom = m_atoms[at(i)];
        if (atom.writer != none && atom.writer != op.id && !m_order.before(atom.writer, op.id))
            return broken(op,
                          std::string(writes ? "writes " : "reads ") + name(id) + " without waiting for "
                              + opName(m_program.op(atom.writer)) + ", which writes it");
        for (const OpId reader : atom.readers) {
            if (writes && reader != none && reader != op.id && !m_order.before(reader, op.id))
                return broken(op,
                              "writes " + name(id) + " without waiting for " + opName(m_program.op(reader))
                                  + ", which reads it");
        }
        if (writes) {
            atom.writer = op.id;
            atom.readers.fill(none);
        } else {
            atom.readers[static_cast<std::size_t>(laneOf(op))] = op.id;
        }
    }
    m_roots[at(rootOf(m_program, id))].users[static_cast<std::size_t>(laneOf(op))] = op.id;
    return {};
}

Status FlowCheck::checkAlive(const Op &op, BufferId id) const
{
    const OpId released = m_roots[at(rootOf(m_program, id))].released;
    return released == none
        ? Status()
        : broken(op, "uses " + name(id) + ", which " + opName(m_program.op(released)) + " has released");
}

// ---- Contents ----

Status FlowCheck::readContent(const Op &op, BufferId id)
{
    const BufferId rootId = rootOf(m_program, id);
    const Root &root = m_roots[at(rootId)];
    if (isSlice(id)) {
        if (root.slice != Content::Whole && !all(rootId, Content::Whole))
            return broken(op,
                          "reads " + name(id)
                              + (all(rootId, Content::Local) ? ", which its group has not reduced"
                                                             : ", which is not defined there"));
        return {};
    }
    const std::int32_t bucket = m_bucketOf[at(rootId)];
    const bool mayBeLocal = bucket != none && m_program.buckets[at(bucket)].group == none;
    const auto [begin, end] = atomsOf(id);
    for (std::int32_t i = begin; i < end; ++i) {
        const Content content = m_atoms[at(i)].content;
        if (content == Content::Nothing && root.slice == Content::Whole)
            return broken(op, "reads " + name(id) + ", of which only this rank's slice is current");
        if (content == Content::Nothing)
            return broken(op, "reads " + name(id) + ", which nobody has written");
        if (content == Content::Local && !mayBeLocal)
            return broken(op, "reads " + name(id) + ", which its group has not reduced");
    }
    return {};
}

Status FlowCheck::writeGradient(const Op &op, const Buffer &buffer, Atom &atom)
{
    const Root &root = m_roots[at(rootOf(m_program, buffer.id))];
    const std::int32_t bucket = m_bucketOf[at(rootOf(m_program, buffer.id))];
    if (root.slice == Content::Whole || root.reduced || atom.content == Content::Whole
        || (bucket != none && (m_encoded[at(bucket)] || m_tied[at(bucket)]))
        || m_copiesSummed.contains({rootOf(m_program, buffer.id), buffer.tensor})
        || m_steps.knows(rootOf(m_program, buffer.id)))
        return broken(op, "writes " + buffer.name + ", which is reduced already");
    if (op.accumulate && atom.content == Content::Nothing)
        return broken(op, "adds to " + buffer.name + ", which nobody has written");
    if (!op.accumulate && atom.content != Content::Nothing)
        return broken(op, "overwrites the gradient in " + buffer.name);
    atom.content = Content::Local;
    return {};
}

Status FlowCheck::writeContent(const Op &op, BufferId id)
{
    const Buffer &buffer = m_program.buffer(id);
    const BufferId rootId = rootOf(m_program, id);
    if (isSlice(id)) { // the others' slices are out of date now
        fill(rootId, Content::Nothing);
        m_roots[at(rootId)].slice = Content::Whole;
        return {};
    }
    const auto [begin, end] = atomsOf(id);
    for (std::int32_t i = begin; i < end; ++i) {
        if (isGradient(buffer))
            RY_TRY(writeGradient(op, buffer, m_atoms[at(i)]));
        else
            m_atoms[at(i)].content = Content::Whole;
    }
    return {};
}

// ---- The step: stats, scalars, updates ----

Status FlowCheck::checkStats(const Op &op)
{
    const bool writes = std::find(op.writes.begin(), op.writes.end(), m_program.stats) != op.writes.end();
    if (writes && m_stats != StatsPhase::Adding)
        return broken(op,
                      isCollective(op.kind) ? "reduces stats a second time"
                                            : "adds to stats after their reduction");
    if (isCollective(op.kind) && writes)
        m_stats = StatsPhase::Reduced;
    return {};
}

Status FlowCheck::checkStep(const Op &op)
{
    if (op.kind == OpKind::GradNorm) {
        if (m_norms[at(op.chunk)] != none)
            return broken(op, "counts its bucket a second time");
        const Bucket &bucket = m_program.buckets[at(op.chunk)];
        if ((bucket.grad != none && !copiesSummed(bucket, bucket.grad))
            || (bucket.tie != none && !m_tied[at(op.chunk)])
            || (bucket.replicas != none && !m_acrossBlocks[at(op.chunk)]))
            return broken(op, "counts gradients whose copies are not summed");
        m_norms[at(op.chunk)] = op.id;
    } else if (op.kind == OpKind::StepScalars) {
        if (m_scalars != none)
            return broken(op, "stands in the program a second time");
        if (m_stats == StatsPhase::Adding && !m_program.groups.empty())
            return broken(op, "reads stats that the ranks have not reduced");
        if (m_program.kind == ProgramKind::Train
            && std::find(m_norms.begin(), m_norms.end(), none) != m_norms.end())
            return broken(op, "comes before the gradient norm of every bucket");
        m_stats = StatsPhase::Done;
        m_scalars = op.id;
    } else if (op.kind == OpKind::Optimizer) {
        if (m_scalars == none || !m_order.before(m_scalars, op.id))
            return broken(op, "updates before the step's scalars are known");
        if (m_updates[at(op.chunk)] != none && op.rowBegin == 0)
            return broken(op, "updates its bucket a second time");
        m_updates[at(op.chunk)] = op.id;
    }
    return {};
}

// ---- Releases ----

Status FlowCheck::release(const Op &op, BufferId id)
{
    const Buffer &buffer = m_program.buffer(id);
    Root &root = m_roots[at(id)];
    if (buffer.persistent || buffer.parent != none)
        return broken(op, "releases " + buffer.name + ", which lives over all steps");
    if (root.released != none)
        return broken(op,
                      "releases " + buffer.name + ", which " + opName(m_program.op(root.released))
                          + " has released");
    bool used = false;
    for (const OpId user : root.users) {
        used = used || user != none;
        if (user != none && user != op.id && !m_order.before(user, op.id))
            return broken(
                op, "releases " + buffer.name + " while " + opName(m_program.op(user)) + " may still use it");
    }
    if (!used)
        return broken(op, "releases " + buffer.name + ", which nobody has used");
    root.released = op.id;
    return {};
}

Status FlowCheck::checkEnd() const
{
    using Place = std::tuple<UnitKind, std::int32_t, Segment, std::int32_t>;
    const auto placeOf = [](const Op &op) {
        return Place(op.unit.kind, op.unit.layer, op.segment, op.microbatch);
    };
    std::set<Place> again; // what backward needs of them is computed a second time
    for (const Op &op : m_program.ops) {
        if (op.kind == OpKind::Recompute)
            again.insert(placeOf(op));
    }
    for (const Buffer &buffer : m_program.buffers) {
        const Root &root = m_roots[at(buffer.id)];
        if (buffer.persistent || buffer.parent != none)
            continue;
        const OpId user = *std::max_element(root.users.begin(), root.users.end());
        if (user == none)
            return Error::make(Code::Internal, "nobody uses it", "buffer " + buffer.name);
        if (buffer.kind == MemoryKind::Buckets && m_bucketOf[at(buffer.id)] != none && !root.reduced)
            return broken(m_program.op(user), "is the last to use " + buffer.name + ", which nobody reduces");
        if (root.released == none)
            return broken(m_program.op(user),
                          "is the last to use " + buffer.name + ", which nobody releases");
        const bool batch = m_program.op(user).kind == OpKind::LoadBatch; // a stage needs tokens or labels
        const bool needed =
            m_program.kind == ProgramKind::Train && buffer.kind != MemoryKind::Workspace && !batch;
        const bool repeated =
            m_program.op(user).kind == OpKind::Forward && again.contains(placeOf(m_program.op(user)));
        if (needed && !root.read && !repeated)
            return broken(m_program.op(user), "writes " + buffer.name + ", which nobody reads");
    }
    if (m_program.kind == ProgramKind::Gather)
        return {};
    if (m_scalars == none)
        return Error::make(Code::Internal, "no op makes the step's scalars", nameOf(m_program.kind));
    for (std::size_t i = 0; i < m_updates.size() && m_program.kind == ProgramKind::Train; ++i) {
        if (m_updates[i] == none)
            return Error::make(Code::Internal, "no op updates it", "bucket " + std::to_string(i));
    }
    return {};
}

Status FlowCheck::run()
{
    for (const Op &op : m_program.ops) {
        for (const auto *list : {&op.reads, &op.writes}) {
            for (const BufferId id : *list)
                RY_TRY(checkAlive(op, id));
        }
        const bool codes = op.kind == OpKind::Encode || op.kind == OpKind::Decode
            || (op.kind == OpKind::AllGather && m_codeOf[at(op.reads[0])] != none);
        const bool converts = isConversion(op);
        const bool step = !converts && op.unit.kind == UnitKind::None
            && (op.kind == OpKind::Shift || op.kind == OpKind::Add);
        const bool bucketOp = isCollective(op.kind) && op.unit.kind == UnitKind::None
            && op.writes[0] != m_program.stats && !codes && !step && !converts;
        // Gradients that are not summed yet, and sums in their place.
        const auto gradient = [&](BufferId id) {
            return converts && op.kind == OpKind::Add && !m_converted.contains(id);
        };
        RY_TRY(checkStats(op));
        if (codes)
            RY_TRY(checkCodec(op));
        if (step)
            RY_TRY(checkStepOf(op));
        if (converts)
            RY_TRY(checkConversion(op));
        for (const BufferId id : op.reads) {
            if (!bucketOp && !(step && isSlice(id)) && !gradient(id)
                && !(op.kind == OpKind::Encode && id == m_program.buckets[at(op.chunk)].grad))
                RY_TRY(readContent(op, id));
            RY_TRY(checkOrder(op, id, false));
            m_roots[at(rootOf(m_program, id))].read = true;
        }
        if (bucketOp)
            RY_TRY(op.kind == OpKind::AllGather ? gatherBucket(op) : reduceBucket(op));
        for (const BufferId id : op.writes) {
            if (!bucketOp && op.kind != OpKind::Decode && !(step && isSlice(id)) && !gradient(id))
                RY_TRY(writeContent(op, id));
            RY_TRY(checkOrder(op, id, true));
        }
        RY_TRY(checkStep(op));
        for (const BufferId id : op.releases)
            RY_TRY(release(op, id));
    }
    return checkEnd();
}

Status checkFlow(const StepProgram &program, const Order &order) { return FlowCheck(program, order).run(); }

} // namespace rankyard::plan
