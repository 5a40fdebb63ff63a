// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/kernels/bind.h"

namespace rankyard::kernels {

using plan::Segment;
using plan::UnitKind;

// The table in engine/plan/units.h by kind of op and segment.

BindResult bindForward(KernelDevice &device, const exec::BindContext &context, const plan::Op &op)
{
    const Binder b(device, context, op);
    switch (op.segment) {
    case Segment::Lookup:
        return bindLookup(b);
    case Segment::Join:
        return op.unit.kind == UnitKind::Embedding ? bindEmbeddingJoin(b) : bindJoin(b);
    case Segment::Norm:
        return bindNorm(b);
    case Segment::Qkv:
        return bindQkv(b);
    case Segment::Kv:
        return bindKeyValues(b);
    case Segment::Core:
        return bindCore(b);
    case Segment::Out:
    case Segment::Down:
        return bindProduct(b);
    case Segment::Up:
        return bindUp(b);
    case Segment::Act:
        return bindActivation(b);
    case Segment::Logits:
        return bindLogits(b);
    case Segment::Loss:
        return bindLoss(b);
    default:
        return b.missing("no kernel");
    }
}

BindResult bindBackwardInput(KernelDevice &device, const exec::BindContext &context, const plan::Op &op)
{
    const Binder b(device, context, op);
    switch (op.segment) {
    case Segment::Join:
        return op.unit.kind == UnitKind::Embedding ? bindEmbeddingJoinBackward(b) : bindJoinBackward(b);
    case Segment::Norm:
        return bindNormBackward(b);
    case Segment::Qkv:
        return bindQkvBackward(b);
    case Segment::Kv:
        return bindKeyValuesBackward(b);
    case Segment::Core:
        return bindCoreBackward(b);
    case Segment::Out:
    case Segment::Down:
        return bindProductInput(b);
    case Segment::Up:
        return bindUpBackward(b);
    default:
        return b.missing("no kernel");
    }
}

BindResult bindBackwardWeight(KernelDevice &device, const exec::BindContext &context, const plan::Op &op)
{
    const Binder b(device, context, op);
    switch (op.segment) {
    case Segment::Lookup:
        return bindLookupBackward(b);
    case Segment::Qkv:
    case Segment::Out:
    case Segment::Up:
    case Segment::Down:
        return bindProductWeight(b);
    default:
        return b.missing("no kernel");
    }
}

} // namespace rankyard::kernels
