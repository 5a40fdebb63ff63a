// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/plan/verify/flow.h"

#include <algorithm>

namespace rankyard::plan {

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

// ---- Reductions in another type ----

bool FlowCheck::isConversion(const Op &op) const
{
    if (op.unit.kind != UnitKind::None || op.chunk == none || op.reads.empty() || op.writes.empty())
        return false;
    return op.kind == OpKind::Add
        ? m_program.buffer(op.reads[0]).dtype != m_program.buffer(op.writes[0]).dtype
        : isCollective(op.kind) && m_converted.contains(op.reads[0]);
}

Status FlowCheck::checkConversion(const Op &op)
{
    if (op.kind != OpKind::Add)
        return sumConverted(op);
    return m_converted.contains(op.reads[0]) ? convertBack(op) : convert(op);
}

/// A gradient that is whole on this rank and not on its way yet; or the slice that micro-batches' sums have come to.
Status FlowCheck::convert(const Op &op)
{
    const Bucket &bucket = m_program.buckets[at(op.chunk)];
    const BufferId source = op.reads[0];
    Converted converted{source};
    if (m_converted.contains(op.writes[0]) || m_norms[at(op.chunk)] != none)
        return broken(op, "converts " + name(source) + " at a time when that is wrong");
    if (source == bucket.gradSlice && bucket.grad == none) {
        if (!all(source, Content::Whole) || m_acrossBlocks[at(op.chunk)])
            return broken(op, "converts " + name(source) + ", which is not the sum of its block");
        converted.summed = true;
    } else {
        const bool done = source == bucket.grad ? m_encoded[at(op.chunk)] : m_roots[at(source)].reduced;
        if (done || m_bucketOf[at(source)] != op.chunk || !all(source, Content::Local)
            || !copiesSummed(bucket, source))
            return broken(op, "converts " + name(source) + (done ? " again" : " before all of it is there"));
        if (source == bucket.grad)
            m_encoded[at(op.chunk)] = true;
        else
            m_roots[at(source)].reduced = true;
        converted.summed = bucket.group == none;
    }
    m_converted[op.writes[0]] = converted;
    return {};
}

Status FlowCheck::sumConverted(const Op &op)
{
    const Bucket &bucket = m_program.buckets[at(op.chunk)];
    Converted sum = m_converted.at(op.reads[0]);
    const bool own = op.group == bucket.group, blocks = op.group == bucket.replicas;
    bool &done = own ? sum.summed : blocks ? sum.acrossBlocks : sum.tied;
    const bool early = !own
        && (!sum.summed || (!blocks && bucket.replicas != none && !sum.acrossBlocks)
            || (m_program.buffer(sum.source).kind == MemoryKind::Buckets));
    if (done || early)
        return broken(op, "sums " + name(op.reads[0]) + (done ? " again" : " too early"));
    done = true;
    m_converted.erase(op.reads[0]);
    m_converted[op.writes[0]] = sum;
    return {};
}

Status FlowCheck::convertBack(const Op &op)
{
    const Bucket &bucket = m_program.buckets[at(op.chunk)];
    const Converted sum = m_converted.at(op.reads[0]);
    m_converted.erase(op.reads[0]);
    if (!sum.summed || m_norms[at(op.chunk)] != none)
        return broken(op, "brings back " + name(op.reads[0]) + ", which is not the sum, or too late");
    const bool shard = m_program.buffer(sum.source).kind == MemoryKind::Buckets; // one micro-batch's
    if (shard && m_acrossBlocks[at(op.chunk)])
        return broken(op, "comes after the sum over all blocks");
    if (op.accumulate != (shard && all(bucket.gradSlice, Content::Whole)))
        return broken(
            op, op.accumulate ? "adds to a slice that nobody has set" : "overwrites a slice of gradients");
    m_acrossBlocks[at(op.chunk)] = m_acrossBlocks[at(op.chunk)] || sum.acrossBlocks;
    m_tied[at(op.chunk)] = m_tied[at(op.chunk)] || sum.tied;
    if (bucket.grad == none) {
        fill(bucket.gradSlice, Content::Whole);
        return {};
    }
    fill(bucket.grad, bucket.slices > 1 ? Content::Nothing : Content::Whole);
    m_roots[at(bucket.grad)].slice = bucket.slices > 1 ? Content::Whole : Content::Nothing;
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

} // namespace rankyard::plan
