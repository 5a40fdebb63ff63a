// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/plan/codec.h"
#include "engine/plan/passes/pass.h"

#include <algorithm>

namespace rankyard::plan {

bool compresses(const spec::JobSpec &job, const Tensor &tensor)
{
    const bool copies = std::any_of(tensor.sections.begin(), tensor.sections.end(),
                                    [](const Section &section) { return section.copies > 1; });
    return (job.layout.tp == 1 || tensor.axis != none) && !copies;
}

namespace {

/// Each replica's gradient as a code of fewer bytes (fp16, min/max int8, top-k with error feedback: Seide et al. 2014; Karimireddy
/// et al. 2019). Sums of codes are no codes, so they are gathered and every rank decodes what it needs. A bucket is decoded after
/// the next one is encoded: its gather is under way while the backward in between is computed, and two buckets of codes exist.
class Compression
{
public:
    explicit Compression(PassContext context) : m_context(context), m_program(context.program) {}
    void run();

private:
    bool isReduction(const Op &op) const;
    bool isOfSlice(const Op &op) const;
    void encode(const Op &reduction);
    void decode(std::size_t keep);
    Op make(OpKind kind, std::int32_t bucket, std::vector<BufferId> reads,
            std::vector<BufferId> writes) const;

    PassContext m_context;
    StepProgram &m_program;
    StepProgram m_out; ///< its ops only
    std::vector<std::pair<std::int32_t, BufferId>>
        m_pending;           ///< buckets that are not decoded yet, and their codes
    std::vector<Op> m_after; ///< sums of slices
};

/// Of a bucket over its group, whose tensors may all be compressed: buckets are of one sort (buckets.cpp).
bool Compression::isReduction(const Op &op) const
{
    if (op.unit.kind != UnitKind::None || op.chunk == none
        || (op.kind != OpKind::AllReduce && op.kind != OpKind::ReduceScatter))
        return false;
    const Bucket &bucket = m_program.buckets[static_cast<std::size_t>(op.chunk)];
    const Tensor &first = m_program.tensors[static_cast<std::size_t>(bucket.tensors.front())];
    return op.group == bucket.group && compresses(m_context.job, first);
}

Op Compression::make(OpKind kind, std::int32_t bucket, std::vector<BufferId> reads,
                     std::vector<BufferId> writes) const
{
    Op op;
    op.kind = kind;
    op.chunk = bucket;
    op.reads = std::move(reads);
    op.writes = std::move(writes);
    return op;
}

/// Sums of slices, once they are decoded: over blocks of shards, over the copies of a tied embedding.
bool Compression::isOfSlice(const Op &op) const
{
    if (op.unit.kind != UnitKind::None || op.kind != OpKind::AllReduce || op.chunk == none)
        return false;
    const Bucket &bucket = m_program.buckets[static_cast<std::size_t>(op.chunk)];
    return op.group == bucket.tie || op.group == bucket.replicas;
}

void Compression::encode(const Op &reduction)
{
    const spec::Compression &compression = m_context.job.compression;
    Bucket &bucket = m_program.buckets[static_cast<std::size_t>(reduction.chunk)];
    const Group &group = m_program.groups[static_cast<std::size_t>(bucket.group)];
    const DType type = m_program.buffer(bucket.grad).dtype;
    const std::int64_t bytes = codeBytes(compression, type, bucket.numel);
    const std::string suffix = "[" + std::to_string(reduction.chunk) + "]";
    if (compression.errorFeedback)
        bucket.error = addState(m_program, "error" + suffix, MemoryKind::Buckets, type, {bucket.numel});
    const BufferId code = addBuffer(m_program, "code" + suffix, MemoryKind::Buckets, DType::U8, {bytes});
    m_program.buffers.back().shared = true;
    const BufferId codes =
        addBuffer(m_program, "codes" + suffix, MemoryKind::Buckets, DType::U8, {group.size, bytes});
    m_program.buffers.back().shared = true;

    Op encode = make(OpKind::Encode, reduction.chunk, {bucket.grad}, {code});
    if (bucket.error != none) {
        encode.reads.push_back(bucket.error);
        encode.writes.push_back(bucket.error);
    }
    appendOp(m_out, std::move(encode));
    Op gather = make(OpKind::AllGather, reduction.chunk, {code}, {codes});
    gather.stream = reduction.stream;
    gather.group = bucket.group;
    gather.payload = m_program.buffer(codes).bytes;
    appendOp(m_out, std::move(gather));
    m_pending.emplace_back(reduction.chunk, codes);
    decode(1);
}

/// All pending buckets but the last `keep`.
void Compression::decode(std::size_t keep)
{
    while (m_pending.size() > keep) {
        const auto [index, codes] = m_pending.front();
        const Bucket &bucket = m_program.buckets[static_cast<std::size_t>(index)];
        appendOp(m_out, make(OpKind::Decode, index, {codes}, {bucket.gradSlice}));
        m_pending.erase(m_pending.begin());
    }
}

void Compression::run()
{
    std::vector<OpId> moved;
    for (Op op : std::vector<Op>(m_program.ops)) {
        for (OpId &wait : op.waits)
            wait = moved[static_cast<std::size_t>(wait)];
        if (isReduction(op)) {
            encode(op);
        } else if (isOfSlice(op)) {
            m_after.push_back(std::move(op));
        } else {
            appendOp(m_out, std::move(op));
        }
        moved.push_back(static_cast<OpId>(m_out.ops.size()) - 1);
    }
    decode(0);
    for (Op &op : m_after)
        appendOp(m_out, std::move(op));
    m_program.ops = std::move(m_out.ops);
}

} // namespace

void compressPass(PassContext context)
{
    if (context.training() && context.job.compression.mode != "none")
        Compression(context).run();
}

} // namespace rankyard::plan
