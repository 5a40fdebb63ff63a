// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/plan/passes/pass.h"

#include <algorithm>

namespace rankyard::plan {

namespace {

/// precision.reduce: gradients go over the replicas in another type than they accumulate in. Each reduction of a bucket works on a
/// converted copy, which comes back into the gradient after the next bucket's is under way: two copies exist, and that of a tied
/// embedding, which the ends of a pipeline sum after the backward. Sums of KV heads' copies inside the tensor group stay in
/// precision.grad: they are of one replica.
class Conversion
{
public:
    explicit Conversion(PassContext context) : m_context(context), m_program(context.program) {}
    void run();

private:
    /// Sums that are not back yet.
    struct Pending {
        std::int32_t bucket = none;
        std::int32_t microbatch = none;
        BufferId sum = none;
        bool accumulate = false;
        bool tied = false; ///< the sum over the copies of a tied embedding is still to come
    };

    bool isReduction(const Op &op) const;
    std::vector<Pending>::iterator before(const Op &op);
    void reduce(Op op);
    void bringBack(std::size_t keep);
    BufferId copyOf(const std::string &name, std::vector<std::int64_t> shape);
    Op conversion(const Pending &of, BufferId from, BufferId to) const;

    PassContext m_context;
    StepProgram &m_program;
    StepProgram m_out; ///< its ops only
    std::vector<Pending> m_pending;
};

/// Over the replicas or the copies of a tied embedding, of a step or of one micro-batch.
bool Conversion::isReduction(const Op &op) const
{
    if (op.unit.kind != UnitKind::None || op.chunk == none
        || (op.kind != OpKind::AllReduce && op.kind != OpKind::ReduceScatter))
        return false;
    const Bucket &bucket = m_program.buckets[static_cast<std::size_t>(op.chunk)];
    return op.group == bucket.group || op.group == bucket.replicas || op.group == bucket.tie;
}

BufferId Conversion::copyOf(const std::string &name, std::vector<std::int64_t> shape)
{
    const BufferId id =
        addBuffer(m_program, name, MemoryKind::Buckets, m_context.job.precision.reduce, std::move(shape));
    m_program.buffers.back().shared = true;
    return id;
}

Op Conversion::conversion(const Pending &of, BufferId from, BufferId to) const
{
    Op op;
    op.kind = OpKind::Add;
    op.chunk = of.bucket;
    op.microbatch = of.microbatch;
    op.reads = {from};
    op.writes = {to};
    return op;
}

/// Of a sum over the next group: that over the one before, which has not come back; else the end.
std::vector<Conversion::Pending>::iterator Conversion::before(const Op &op)
{
    if (op.group == m_program.buckets[static_cast<std::size_t>(op.chunk)].group)
        return m_pending.end();
    return std::find_if(m_pending.begin(), m_pending.end(), [&op](const Pending &sum) {
        return sum.bucket == op.chunk && sum.microbatch == op.microbatch;
    });
}

void Conversion::reduce(Op op)
{
    const Bucket &bucket = m_program.buckets[static_cast<std::size_t>(op.chunk)];
    Pending sum{op.chunk, op.microbatch, none, op.accumulate, bucket.tie != none && op.group != bucket.tie};
    const Buffer source = m_program.buffer(op.reads[0]);
    if (const auto known = before(op); known != m_pending.end()) {
        sum.sum = known->sum;
        sum.accumulate = known->accumulate;
        m_pending.erase(known);
    } else {
        sum.sum = copyOf(source.name + ".reduced" + (op.group == bucket.group ? "" : "'"), source.shape);
        appendOp(m_out, conversion(sum, source.id, sum.sum));
    }
    op.reads = op.writes = {sum.sum};
    op.accumulate = false;
    op.payload = m_program.buffer(sum.sum).bytes;
    if (op.kind == OpKind::ReduceScatter) {
        const std::int64_t own = bucket.padded / bucket.slices;
        op.writes = {copyOf(m_program.buffer(sum.sum).name + ".slice", {own})};
    }
    sum.sum = op.writes[0];
    appendOp(m_out, std::move(op));
    m_pending.push_back(sum);
}

/// All sums that are complete, but the last `keep`.
void Conversion::bringBack(std::size_t keep)
{
    auto complete =
        std::count_if(m_pending.begin(), m_pending.end(), [](const Pending &sum) { return !sum.tied; });
    for (auto sum = m_pending.begin(); complete > static_cast<std::ptrdiff_t>(keep);) {
        if (sum->tied) {
            ++sum;
            continue;
        }
        Op op =
            conversion(*sum, sum->sum, m_program.buckets[static_cast<std::size_t>(sum->bucket)].gradSlice);
        op.accumulate = sum->accumulate;
        appendOp(m_out, std::move(op));
        sum = m_pending.erase(sum);
        --complete;
    }
}

void Conversion::run()
{
    std::vector<OpId> moved;
    for (Op op : std::vector<Op>(m_program.ops)) {
        for (OpId &wait : op.waits)
            wait = moved[static_cast<std::size_t>(wait)];
        OpId place = none;
        if (isReduction(op)) {
            const bool slice = op.group != m_program.buckets[static_cast<std::size_t>(op.chunk)].group;
            if (slice && before(op) == m_pending.end()) // of what the micro-batches' sums have come to
                bringBack(0);
            reduce(std::move(op));
            place = static_cast<OpId>(m_out.ops.size()) - 1;
            bringBack(1);
        } else {
            place = appendOp(m_out, std::move(op)).id;
        }
        moved.push_back(place);
    }
    bringBack(0);
    m_program.ops = std::move(m_out.ops);
}

} // namespace

void convertPass(PassContext context)
{
    if (context.training() && context.job.precision.reduce != context.job.precision.grad)
        Conversion(context).run();
}

} // namespace rankyard::plan
