// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/plan/passes/pass.h"

namespace rankyard::plan {

namespace {

/// precision.reduce: gradients go over the replicas in another type than they accumulate in. Each reduction of a bucket works on a
/// converted copy, which comes back into the gradient after the next bucket's is under way: two copies exist. Where the ends of a
/// pipeline sum a tied embedding, all come back after the backward, as in compress.cpp. Sums of KV heads' copies inside the tensor
/// group stay in precision.grad: they are of one replica.
class Conversion
{
public:
    explicit Conversion(PassContext context)
        : m_context(context),
          m_program(context.program),
          m_tied(context.hasGroup("embedding"))
    {}
    void run();

private:
    /// Sums that are not back yet.
    struct Pending {
        std::int32_t bucket = none;
        std::int32_t microbatch = none;
        BufferId sum = none;
        bool accumulate = false;
    };

    bool isReduction(const Op &op) const;
    bool goesOn(const Op &op) const;
    void reduce(Op op);
    void bringBack(std::size_t keep);
    BufferId copyOf(const std::string &name, std::vector<std::int64_t> shape);
    Op conversion(const Pending &of, BufferId from, BufferId to) const;

    PassContext m_context;
    StepProgram &m_program;
    StepProgram m_out; ///< its ops only
    bool m_tied;
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

/// Over the next group: the sum over the one before, which has not come back.
bool Conversion::goesOn(const Op &op) const
{
    return !m_pending.empty() && m_pending.back().bucket == op.chunk
        && m_pending.back().microbatch == op.microbatch
        && op.group != m_program.buckets[static_cast<std::size_t>(op.chunk)].group;
}

void Conversion::reduce(Op op)
{
    const Bucket &bucket = m_program.buckets[static_cast<std::size_t>(op.chunk)];
    Pending sum{op.chunk, op.microbatch, none, op.accumulate};
    const Buffer source = m_program.buffer(op.reads[0]);
    if (goesOn(op)) {
        sum = m_pending.back();
        m_pending.pop_back();
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

/// All sums but the last `keep`.
void Conversion::bringBack(std::size_t keep)
{
    while (m_pending.size() > keep) {
        const Pending sum = m_pending.front();
        m_pending.erase(m_pending.begin());
        Op op = conversion(sum, sum.sum, m_program.buckets[static_cast<std::size_t>(sum.bucket)].gradSlice);
        op.accumulate = sum.accumulate;
        appendOp(m_out, std::move(op));
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
            if (!m_tied && slice && !goesOn(op)) // of what the micro-batches' sums have come to
                bringBack(0);
            reduce(std::move(op));
            place = static_cast<OpId>(m_out.ops.size()) - 1;
            if (!m_tied)
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
