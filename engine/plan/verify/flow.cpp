// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/plan/verify/checks.h"
#include "engine/plan/verify/steps.h"

#include <algorithm>
#include <set>
#include <tuple>

namespace rankyard::plan {

namespace {

/// What bytes hold, as far as the program says.
enum class Content : std::uint8_t {
    Nothing, ///< undefined, or out of date
    Local,   ///< a gradient that is this rank's only: its group has not summed it yet
    Whole,   ///< the value
};

constexpr std::array<OpId, laneCount> nobody = [] {
    std::array<OpId, laneCount> list{};
    list.fill(none);
    return list;
}();

/// A piece of a root buffer that is used as one: a view, or what no view covers.
struct Atom {
    Content content = Content::Nothing;
    OpId writer = none;
    std::array<OpId, laneCount> readers = nobody; ///< since the last write; the latest of each lane
};

struct Root {
    std::int32_t firstAtom = 0;
    std::int32_t atoms = 1;
    Content slice = Content::Nothing; ///< of this rank's slices, where a group shares the buffer
    bool reduced = false;             ///< one micro-batch's gradients that have been added to a slice
    OpId released = none;
    std::array<OpId, laneCount> users = nobody;
    bool read = false;
};

/// A view of some rows of a gradient: it is of its tensor's atom.
bool isPart(const StepProgram &program, const Buffer &buffer)
{
    return buffer.tensor != none && numelOf(buffer.shape) != program.tensors[at(buffer.tensor)].numel;
}

bool isGradient(const Buffer &buffer)
{
    return buffer.kind == MemoryKind::Grads || (buffer.kind == MemoryKind::Buckets && buffer.tensor != none);
}

enum class StatsPhase { Adding, Reduced, Done };

class FlowCheck
{
public:
    FlowCheck(const StepProgram &program, const Order &order);
    Status run();

private:
    Status checkRead(const Op &op, BufferId id);
    Status checkWrite(const Op &op, BufferId id);
    Status checkOrder(const Op &op, BufferId id, bool writes);
    Status checkAlive(const Op &op, BufferId id) const;
    Status readContent(const Op &op, BufferId id);
    Status writeContent(const Op &op, BufferId id);
    Status writeGradient(const Op &op, const Buffer &buffer, Atom &atom);
    Status reduceBucket(const Op &op);
    bool copiesSummed(const Bucket &bucket, BufferId root) const;
    Status reduceShard(const Op &op);
    Status checkCodec(const Op &op);
    Status sumReplicas(const Op &op);
    Status checkStepOf(const Op &op);
    Status encodeBucket(const Op &op);
    Status decodeBucket(const Op &op);
    Status gatherBucket(const Op &op);
    Status checkStats(const Op &op);
    Status checkStep(const Op &op);
    Status release(const Op &op, BufferId id);
    Status checkEnd() const;

    bool isSlice(BufferId id) const { return m_program.buffer(id).sliceGroup != none; }
    std::pair<std::int32_t, std::int32_t> atomsOf(BufferId id) const;
    bool all(BufferId root, Content content) const;
    void fill(BufferId root, Content content);
    std::string name(BufferId id) const { return m_program.buffer(id).name; }

    const StepProgram &m_program;
    const Order &m_order;
    std::vector<Root> m_roots; ///< by buffer; of roots only
    std::vector<Atom> m_atoms;
    std::vector<std::int32_t> m_atomOf;   ///< of views that are not slices
    std::vector<std::int32_t> m_bucketOf; ///< of parameter and gradient roots
    StatsPhase m_stats = StatsPhase::Adding;
    OpId m_scalars = none;
    std::set<std::pair<BufferId, TensorId>> m_copiesSummed; ///< in which storage, of which tensor
    std::vector<bool> m_tied;                               ///< by bucket
    std::vector<bool> m_encoded, m_decoded;                 ///< by bucket
    std::vector<bool> m_acrossBlocks;                       ///< by bucket
    Steps m_steps;
    std::vector<std::int32_t> m_codeOf; ///< by buffer: the bucket whose code it is, of this rank or of all
    std::vector<OpId> m_norms;
    std::vector<OpId> m_updates;
};

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

/// Every gradient that neighbours of the tensor group share is their sum by now.
bool FlowCheck::copiesSummed(const Bucket &bucket, BufferId root) const
{
    return std::all_of(bucket.tensors.begin(), bucket.tensors.end(), [&](TensorId id) {
        const auto &sections = m_program.tensors[at(id)].sections;
        const bool shared =
            std::any_of(sections.begin(), sections.end(), [](const Section &s) { return s.copies > 1; });
        return !shared || m_copiesSummed.contains({root, id});
    });
}

Status FlowCheck::reduceBucket(const Op &op)
{
    const Bucket &bucket = m_program.buckets[at(op.chunk)];
    if (m_program.groups[at(op.group)].pick == Pick::Inner && op.group != bucket.group) {
        const TensorId tensor = m_program.buffer(op.writes[0]).tensor;
        const bool isNew = m_copiesSummed.emplace(rootOf(m_program, op.writes[0]), tensor).second;
        if (m_atoms[at(m_atomOf[at(op.writes[0])])].content != Content::Local || !isNew)
            return broken(op, "sums the copies of " + name(op.writes[0]) + " at a time when that is wrong");
        return {};
    }
    if (op.group == bucket.tie) {
        const bool reduced = (bucket.slices > 1 && m_roots[at(bucket.grad)].slice == Content::Whole)
            || all(bucket.grad, bucket.group == none ? Content::Local : Content::Whole);
        if (!reduced || m_tied[at(op.chunk)] || (bucket.replicas != none && !m_acrossBlocks[at(op.chunk)]))
            return broken(op,
                          "sums the copies of a tied tensor " + std::string(reduced ? "again" : "too early"));
        m_tied[at(op.chunk)] = true;
        return {};
    }
    if (op.group == bucket.replicas)
        return sumReplicas(op);
    if (bucket.grad == none)
        return reduceShard(op);
    const BufferId root = op.writes[0];
    if (m_steps.knows(root))
        return broken(op, "reduces " + name(root) + ", which is reduced in steps");
    if (m_encoded[at(op.chunk)])
        return broken(op, "reduces " + name(root) + ", of which the codes are summed");
    if (!all(root, Content::Local)) {
        const bool done = m_roots[at(root)].slice == Content::Whole || all(root, Content::Whole);
        return broken(op,
                      "reduces " + name(root)
                          + (done ? ", which is reduced already" : " before all of its gradients are there"));
    }
    if (!copiesSummed(bucket, root))
        return broken(op, "reduces " + name(root) + " before its copies in the tensor group are summed");
    const bool scatter = op.kind == OpKind::ReduceScatter;
    fill(root, scatter ? Content::Nothing : Content::Whole);
    m_roots[at(root)].slice = scatter ? Content::Whole : Content::Nothing;
    return {};
}

/// Blocks that hold the same shards.
Status FlowCheck::sumReplicas(const Op &op)
{
    const Bucket &bucket = m_program.buckets[at(op.chunk)];
    const bool reduced = bucket.grad == none ? all(bucket.gradSlice, Content::Whole)
                                             : m_roots[at(bucket.grad)].slice == Content::Whole;
    if (!reduced || m_acrossBlocks[at(op.chunk)] || m_norms[at(op.chunk)] != none)
        return broken(op, "sums the shards of all blocks at a time when that is wrong");
    m_acrossBlocks[at(op.chunk)] = true;
    return {};
}

/// A Shift or an Add of a bucket's reduction or gather: after it some slices are sums.
Status FlowCheck::checkStepOf(const Op &op)
{
    const Bucket &bucket = m_program.buckets[at(op.chunk)];
    const BufferId view = op.kind == OpKind::Add ? op.writes[0] : op.reads[0];
    const BufferId root = rootOf(m_program, view);
    if (!m_steps.knows(root)) {
        const bool gradient = root == bucket.grad;
        const bool ready = gradient ? all(root, Content::Local) && copiesSummed(bucket, root)
                                    : m_roots[at(root)].slice == Content::Whole;
        if (!ready || m_encoded[at(op.chunk)])
            return broken(op, "begins to work on " + name(root) + " before it is there");
        m_steps.begin(root, bucket.group, gradient);
    }
    RY_TRY(m_steps.apply(op));
    if (m_steps.whole(root)) {
        fill(root, Content::Whole);
        m_roots[at(root)].slice = Content::Nothing;
    } else if (m_steps.own(root)) {
        fill(root, Content::Nothing);
        m_roots[at(root)].slice = Content::Whole;
    }
    return {};
}

/// One micro-batch's gradients into the slice: the first sets it, the others add.
Status FlowCheck::reduceShard(const Op &op)
{
    const BufferId root = op.reads[0];
    const BufferId slice = op.writes[0];
    if (m_bucketOf[at(root)] != op.chunk || m_roots[at(root)].reduced || !all(root, Content::Local))
        return broken(
            op, "reduces " + name(root) + (m_roots[at(root)].reduced ? " again" : " before it is whole"));
    if (!copiesSummed(m_program.buckets[at(op.chunk)], root))
        return broken(op, "reduces " + name(root) + " before its copies in the tensor group are summed");
    if (m_acrossBlocks[at(op.chunk)])
        return broken(op, "comes after the sum over all blocks");
    if (op.accumulate != all(slice, Content::Whole))
        return broken(
            op, op.accumulate ? "adds to a slice that nobody has set" : "overwrites a slice of gradients");
    if (m_norms[at(op.chunk)] != none)
        return broken(op, "comes after the gradient norm of its bucket");
    fill(root, Content::Nothing);
    fill(slice, Content::Whole);
    m_roots[at(root)].reduced = true;
    return {};
}

// ---- Reductions as codes ----

Status FlowCheck::encodeBucket(const Op &op)
{
    const Bucket &bucket = m_program.buckets[at(op.chunk)];
    if (m_encoded[at(op.chunk)])
        return broken(op, "encodes its bucket a second time");
    if (!all(bucket.grad, Content::Local))
        return broken(op, "encodes " + name(bucket.grad) + " before all of its gradients are there");
    if (!copiesSummed(bucket, bucket.grad))
        return broken(op,
                      "encodes " + name(bucket.grad) + " before its copies in the tensor group are summed");
    m_encoded[at(op.chunk)] = true;
    m_codeOf[at(op.writes[0])] = op.chunk;
    return {};
}

/// The sum of all codes takes the place of the gradient.
Status FlowCheck::decodeBucket(const Op &op)
{
    const Bucket &bucket = m_program.buckets[at(op.chunk)];
    if (!m_encoded[at(op.chunk)] || m_decoded[at(op.chunk)] || m_codeOf[at(op.reads[0])] != op.chunk)
        return broken(op, "decodes what is not the gathered code of its bucket");
    m_decoded[at(op.chunk)] = true;
    fill(bucket.grad, bucket.slices > 1 ? Content::Nothing : Content::Whole);
    m_roots[at(bucket.grad)].slice = bucket.slices > 1 ? Content::Whole : Content::Nothing;
    return {};
}

/// Of an op that encodes, gathers or decodes codes; the buffers' contents are checked as those of any op.
Status FlowCheck::checkCodec(const Op &op)
{
    if (op.kind == OpKind::Encode)
        return encodeBucket(op);
    if (op.kind == OpKind::Decode)
        return decodeBucket(op);
    if (m_codeOf[at(op.reads[0])] != op.chunk || m_codeOf[at(op.writes[0])] != none)
        return broken(op, "gathers " + name(op.reads[0]) + ", which is not a new code of its bucket");
    m_codeOf[at(op.writes[0])] = op.chunk;
    return {};
}

Status FlowCheck::gatherBucket(const Op &op)
{
    const BufferId root = op.writes[0];
    const bool slice = m_program.buckets[at(op.chunk)].param == none
        ? all(op.reads[0], Content::Whole)
        : m_roots[at(root)].slice == Content::Whole;
    if (m_bucketOf[at(root)] != op.chunk || !slice)
        return broken(op, "gathers " + name(root) + ", of which this rank's slice is not defined");
    if (all(root, Content::Whole))
        return broken(op, "gathers " + name(root) + ", which is whole already");
    fill(root, Content::Whole);
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
        const bool step =
            op.unit.kind == UnitKind::None && (op.kind == OpKind::Shift || op.kind == OpKind::Add);
        const bool bucketOp = isCollective(op.kind) && op.unit.kind == UnitKind::None
            && op.writes[0] != m_program.stats && !codes && !step;
        RY_TRY(checkStats(op));
        if (codes)
            RY_TRY(checkCodec(op));
        if (step)
            RY_TRY(checkStepOf(op));
        for (const BufferId id : op.reads) {
            if (!bucketOp && !(step && isSlice(id))
                && !(op.kind == OpKind::Encode && id == m_program.buckets[at(op.chunk)].grad))
                RY_TRY(readContent(op, id));
            RY_TRY(checkOrder(op, id, false));
            m_roots[at(rootOf(m_program, id))].read = true;
        }
        if (bucketOp)
            RY_TRY(op.kind == OpKind::AllGather ? gatherBucket(op) : reduceBucket(op));
        for (const BufferId id : op.writes) {
            if (!bucketOp && op.kind != OpKind::Decode && !(step && isSlice(id)))
                RY_TRY(writeContent(op, id));
            RY_TRY(checkOrder(op, id, true));
        }
        RY_TRY(checkStep(op));
        for (const BufferId id : op.releases)
            RY_TRY(release(op, id));
    }
    return checkEnd();
}

} // namespace

Status checkFlow(const StepProgram &program, const Order &order) { return FlowCheck(program, order).run(); }

} // namespace rankyard::plan
