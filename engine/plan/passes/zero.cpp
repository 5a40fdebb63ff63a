// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/plan/passes/pass.h"

#include <algorithm>
#include <limits>
#include <map>

namespace rankyard::plan {

namespace {

/// Unsharded gradients that may be there at once: a bucket is filled while another is on its way. Beside a hundred times larger ones a bucket
/// (of a norm between two matrices) does not count; it would take the place of one whose reduction hides.
constexpr int rootsAtOnce = 2;
constexpr std::int64_t negligible = 100;

/// ZeRO 2 and 3 (Rajbhandari et al. 2020): no rank ever has a whole gradient but of the buckets in work.
class GradientShards
{
public:
    explicit GradientShards(PassContext context);
    void run();

private:
    using Key = std::pair<std::int32_t, std::int32_t>; ///< bucket, micro-batch
    struct Root {
        BufferId buffer = none;
        std::map<TensorId, BufferId> views;
        OpId last = none; ///< in the program as it was
    };

    void findLast();
    Root &rootOf(Key key);
    void reduce(Key key);
    OpId storage() const;
    void acrossBlocks();
    bool sharded(BufferId id) const;

    PassContext m_context;
    StepProgram &m_program;
    StepProgram m_out; ///< its ops only
    std::map<Key, Root> m_roots;
    std::map<std::int32_t, bool> m_reduced; ///< by bucket: its slice has something
    struct Reduction {
        OpId op = none; ///< in m_out
        std::int64_t elements = 0;
    };
    std::vector<Reduction> m_reductions; ///< in the order in which they run
    std::int64_t m_largest = 0;          ///< elements of a bucket
};

GradientShards::GradientShards(PassContext context) : m_context(context), m_program(context.program) {}

bool GradientShards::sharded(BufferId id) const
{
    const Buffer &buffer = m_program.buffer(id);
    return buffer.kind == MemoryKind::Grads && buffer.tensor != none && buffer.parent == none;
}

void GradientShards::findLast()
{
    for (const Op &op : m_program.ops) {
        for (const BufferId id : op.writes) {
            if (sharded(id))
                m_roots[{m_program.tensors[static_cast<std::size_t>(m_program.buffer(id).tensor)].bucket,
                         op.microbatch}]
                    .last = op.id;
        }
    }
}

GradientShards::Root &GradientShards::rootOf(Key key)
{
    Root &root = m_roots.at(key);
    if (root.buffer != none)
        return root;
    const Bucket &bucket = m_program.buckets[static_cast<std::size_t>(key.first)];
    const DType type = m_context.job.precision.grad;
    const std::string suffix = "[" + std::to_string(key.first) + "]@" + std::to_string(key.second);
    root.buffer = addBuffer(m_program, "grads" + suffix, MemoryKind::Buckets, type, {bucket.padded});
    m_program.buffers.back().shared = true;
    for (const TensorId id : bucket.tensors) {
        const Tensor &tensor = m_program.tensors[static_cast<std::size_t>(id)];
        const BufferId view = addBuffer(m_program, "grad:" + tensor.name + "@" + std::to_string(key.second),
                                        MemoryKind::Buckets, type, tensor.shape);
        makeView(m_program, view, root.buffer, tensor.offset * static_cast<std::int64_t>(bytesOf(type)));
        m_program.buffers.back().tensor = id;
        root.views[id] = view;
    }
    return root;
}

void GradientShards::reduce(Key key)
{
    const Root &root = m_roots.at(key);
    for (Op &op : copyReductions(m_context, key.first, [&](TensorId id) { return root.views.at(id); })) {
        op.microbatch = key.second;
        appendOp(m_out, std::move(op));
    }
    const Bucket &bucket = m_program.buckets[static_cast<std::size_t>(key.first)];
    Op op;
    op.kind = OpKind::ReduceScatter;
    op.chunk = key.first;
    op.microbatch = key.second;
    op.stream = Stream::Data;
    op.group = bucket.group;
    op.reads = {root.buffer};
    op.writes = {bucket.gradSlice};
    op.accumulate = m_reduced[key.first];
    op.payload = m_program.buffer(root.buffer).bytes;
    if (!m_context.job.comm.overlapGrads)
        op.waits = {static_cast<OpId>(m_out.ops.size()) - 1};
    m_reductions.push_back({appendOp(m_out, std::move(op)).id, bucket.padded});
    m_reduced[key.first] = true;
}

/// The reduction whose bytes the next bucket may take; none while there are few. Buckets that stay open for long (norms, a tied embedding)
/// count when they are reduced: whatever they are, the others are at most so many behind.
OpId GradientShards::storage() const
{
    int behind = m_context.job.comm.overlapGrads ? rootsAtOnce : 1;
    for (auto at = m_reductions.rbegin(); at != m_reductions.rend(); ++at) {
        if (at->elements * negligible >= m_largest && --behind == 0)
            return at->op;
    }
    return none;
}

/// The slices of all micro-batches, summed over the blocks that hold the same ones.
void GradientShards::acrossBlocks()
{
    for (std::size_t index = 0; index < m_program.buckets.size(); ++index) {
        const Bucket &bucket = m_program.buckets[index];
        if (bucket.replicas == none || bucket.grad != none)
            continue;
        Op op;
        op.kind = OpKind::AllReduce;
        op.chunk = static_cast<std::int32_t>(index);
        op.stream = Stream::Data;
        op.group = bucket.replicas;
        op.reads = op.writes = {bucket.gradSlice};
        op.payload = m_program.buffer(bucket.gradSlice).bytes;
        appendOp(m_out, std::move(op));
    }
}

void GradientShards::run()
{
    findLast();
    for (const auto &[key, root] : m_roots)
        m_largest = std::max(m_largest, m_program.buckets[static_cast<std::size_t>(key.first)].padded);
    std::vector<OpId> moved;
    for (Op op : std::vector<Op>(m_program.ops)) {
        for (OpId &wait : op.waits)
            wait = moved[static_cast<std::size_t>(wait)];
        std::vector<Key> complete;
        for (BufferId &id : op.writes) {
            if (!sharded(id))
                continue;
            const TensorId tensor = m_program.buffer(id).tensor;
            const Key key{m_program.tensors[static_cast<std::size_t>(tensor)].bucket, op.microbatch};
            const bool isNew = m_roots.at(key).buffer == none;
            Root &root = rootOf(key);
            if (const OpId reduced = isNew ? storage() : none; reduced != none)
                op.waits.push_back(reduced);
            id = root.views.at(tensor);
            if (root.last == op.id && std::find(complete.begin(), complete.end(), key) == complete.end())
                complete.push_back(key);
        }
        moved.push_back(appendOp(m_out, std::move(op)).id);
        for (const Key &key : complete)
            reduce(key);
    }
    acrossBlocks();
    m_program.ops = std::move(m_out.ops);
    for (Tensor &tensor : m_program.tensors) {
        if (tensor.grad != none && sharded(tensor.grad))
            tensor.grad = none;
    }
}

/// One use of a bucket's parameters: ops of one direction and micro-batch that follow each other with nothing else between.
struct Use {
    std::int32_t bucket = none;
    OpId first = none;
    OpId last = none;
    bool gathers = true;          ///< false: still there from the use before
    std::size_t gatherBefore = 0; ///< the use at whose begin the gather is issued
    bool keeps = false;           ///< until the bucket's next use
};

/// ZeRO 3. Sizes are in elements, as the job's limits are.
class UnitGathers
{
public:
    explicit UnitGathers(PassContext context) : m_context(context), m_program(context.program) {}
    void run();

private:
    std::int32_t bucketOf(const Op &op) const;
    void findUses();
    void keepForReuse();
    void prefetch();
    void emit();
    std::vector<Op> gatherOf(std::int32_t bucket, BufferId root, const std::string &suffix);
    std::int64_t size(const Use &use) const
    {
        return m_program.buckets[static_cast<std::size_t>(use.bucket)].padded;
    }

    PassContext m_context;
    StepProgram &m_program;
    std::vector<Use> m_uses;
    std::vector<std::int64_t> m_live; ///< by use: elements that are gathered while it runs
};

/// The bucket whose gathered parameters an op reads; none without.
std::int32_t UnitGathers::bucketOf(const Op &op) const
{
    for (const BufferId id : op.reads) {
        const Buffer &buffer = m_program.buffer(id);
        if (buffer.tensor == none || buffer.kind != MemoryKind::Params)
            continue; // a parameter's own buffer, before it has a place
        const std::int32_t bucket = m_program.tensors[static_cast<std::size_t>(buffer.tensor)].bucket;
        if (m_program.buckets[static_cast<std::size_t>(bucket)].param == none)
            return bucket;
    }
    return none;
}

void UnitGathers::findUses()
{
    for (const Op &op : m_program.ops) {
        const std::int32_t bucket = bucketOf(op);
        if (bucket == none)
            continue;
        if (m_uses.empty() || m_uses.back().bucket != bucket)
            m_uses.push_back({bucket, op.id, op.id});
        m_uses.back().last = op.id;
    }
    for (std::size_t i = 0; i < m_uses.size(); ++i) {
        m_uses[i].gatherBefore = i;
        m_live.push_back(size(m_uses[i]));
    }
}

/// What is used again within `max_reuse_distance` elements stays, where `max_live` has room for it all the while.
void UnitGathers::keepForReuse()
{
    const spec::Zero &zero = m_context.job.zero;
    for (std::size_t i = 0; i < m_uses.size(); ++i) {
        std::int64_t distance = 0;
        std::size_t next = i + 1;
        for (; next < m_uses.size() && m_uses[next].bucket != m_uses[i].bucket; ++next)
            distance += size(m_uses[next]);
        if (next == m_uses.size() || distance > zero.maxReuseDistance)
            continue;
        const auto begin = m_live.begin() + static_cast<std::ptrdiff_t>(i) + 1;
        const auto end = m_live.begin() + static_cast<std::ptrdiff_t>(next);
        const std::int64_t own = size(m_uses[i]);
        if (std::any_of(begin, end, [&](std::int64_t live) { return live + own > zero.maxLive; }))
            continue;
        std::for_each(begin, end, [&](std::int64_t &live) { live += own; });
        m_uses[i].keeps = true;
        m_uses[next].gathers = false;
    }
}

/// A gather goes as early as `max_live` allows while less than `prefetch_bytes` of gathers before it wait for their use, in the order of
/// use: the next unit's always, however large it is, unless the budget is 0.
void UnitGathers::prefetch()
{
    if (!m_context.job.comm.overlapParams)
        return;
    const spec::Zero &zero = m_context.job.zero;
    const auto bytes = static_cast<std::int64_t>(bytesOf(m_context.job.precision.compute));
    // Parameters on the host take staging buffers besides.
    const std::int64_t most = m_context.job.offload.params == "none"
        ? std::numeric_limits<std::int64_t>::max()
        : m_context.job.offload.buffers;
    std::size_t earliest = 0;
    for (std::size_t i = 0; i < m_uses.size(); ++i) {
        Use &use = m_uses[i];
        if (!use.gathers)
            continue;
        std::int64_t ahead = 0; // of gathers that it overtakes
        std::size_t at = i;
        while (at > earliest && m_live[at - 1] + size(use) <= zero.maxLive && ahead < zero.prefetchBytes
               && static_cast<std::int64_t>(i - at) < most) {
            --at;
            ahead += m_uses[at].gathers ? size(m_uses[at]) * bytes : 0;
        }
        for (std::size_t k = at; k < i; ++k)
            m_live[k] += size(use);
        use.gatherBefore = at;
        earliest = at; // gathers are first in, first out
    }
}

/// The parameters of a bucket into `root`: from the host where they live there, from all ranks where each has a slice.
std::vector<Op> UnitGathers::gatherOf(std::int32_t index, BufferId root, const std::string &suffix)
{
    const Bucket &bucket = m_program.buckets[static_cast<std::size_t>(index)];
    std::vector<Op> ops;
    const auto add = [&](OpKind kind, Stream stream, BufferId from, BufferId to) -> Op & {
        Op &op = ops.emplace_back();
        op.kind = kind;
        op.chunk = index;
        op.stream = stream;
        op.reads = {from};
        op.writes = {to};
        return op;
    };
    BufferId slice = bucket.paramSlice;
    const Buffer own = m_program.buffer(slice);
    if (own.kind == MemoryKind::Host && bucket.slices > 1) {
        slice = addBuffer(m_program, own.name + suffix, MemoryKind::Gathered, own.dtype, own.shape);
        add(OpKind::Copy, Stream::Copy, bucket.paramSlice, slice);
    }
    if (bucket.slices == 1) {
        add(OpKind::Copy, Stream::Copy, slice, root);
        return ops;
    }
    Op &gather = add(OpKind::AllGather, Stream::Data, slice, root);
    gather.group = bucket.group;
    gather.payload = m_program.buffer(root).bytes;
    return ops;
}

void UnitGathers::emit()
{
    Insertions insertions;
    std::map<std::int32_t, std::map<TensorId, BufferId>>
        current; // views of the gathered parameters, by bucket
    std::vector<std::map<TensorId, BufferId>> views(m_uses.size());
    for (std::size_t i = 0; i < m_uses.size(); ++i) {
        const Use &use = m_uses[i];
        const Bucket bucket = m_program.buckets[static_cast<std::size_t>(use.bucket)];
        if (use.gathers) {
            const DType type = m_context.job.precision.compute;
            const std::string suffix = "#" + std::to_string(i);
            const BufferId root = addBuffer(m_program, "params[" + std::to_string(use.bucket) + "]" + suffix,
                                            MemoryKind::Gathered, type, {bucket.padded});
            auto &own = current[use.bucket];
            own.clear();
            for (const TensorId id : bucket.tensors) {
                const Tensor &tensor = m_program.tensors[static_cast<std::size_t>(id)];
                own[id] =
                    addBuffer(m_program, tensor.name + suffix, MemoryKind::Gathered, type, tensor.shape);
                makeView(m_program, own[id], root, tensor.offset * static_cast<std::int64_t>(bytesOf(type)));
                m_program.buffers.back().tensor = id;
            }
            const OpId place = use.gatherBefore == 0 ? 0 : m_uses[use.gatherBefore].first;
            for (Op &op : gatherOf(use.bucket, root, suffix)) {
                // Into bytes that the uses before have let go.
                if (use.gatherBefore > 0)
                    op.waits = {m_uses[use.gatherBefore - 1].last};
                insertions.emplace_back(place, std::move(op));
            }
        }
        views[i] = current.at(use.bucket);
    }
    std::size_t i = 0;
    for (Op &op : m_program.ops) {
        if (bucketOf(op) == none)
            continue;
        while (m_uses[i].last < op.id)
            ++i;
        for (BufferId &id : op.reads) {
            const auto view = views[i].find(m_program.buffer(id).tensor);
            if (m_program.buffer(id).kind == MemoryKind::Params && view != views[i].end())
                id = view->second;
        }
    }
    insertOps(m_program, std::move(insertions));
    for (Tensor &tensor : m_program.tensors) {
        if (m_program.buckets[static_cast<std::size_t>(tensor.bucket)].param == none)
            tensor.param = none;
    }
}

void UnitGathers::run()
{
    findUses();
    keepForReuse();
    prefetch();
    emit();
}

} // namespace

void gradientShardPass(PassContext context)
{
    if (context.training() && context.job.zero.stage >= 2)
        GradientShards(context).run();
}

void unitGatherPass(PassContext context)
{
    if (context.job.zero.stage >= 3 || context.job.offload.params != "none")
        UnitGathers(context).run();
}

} // namespace rankyard::plan
