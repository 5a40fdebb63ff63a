// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/plan/verify/checks.h"
#include "engine/plan/verify/signatures.h"

#include <array>
#include <tuple>

namespace rankyard::plan {

/// Whether operands are what the table in units.h says: of units operands.cpp, of transfers and of the step operands_transfers.cpp.
class OperandCheck
{
public:
    explicit OperandCheck(const StepProgram &program);
    Status run();

private:
    /// Whose value a buffer has: the op that computed it, or the Recv that brought it.
    struct Writer {
        OpId op = none;
        std::size_t place = 0;
        bool partial = false;    ///< a sum over the tensor group that has not been made
        std::int32_t shifts = 0; ///< how many ranks it has gone round the ring
    };
    /// What one op of a segment looks like; the others must look the same.
    using Shape = std::tuple<UnitKind, Segment, OpKind, std::size_t>;
    /// A use of a tensor: by whom and for which micro-batch.
    using Use = std::tuple<TensorId, UnitKind, std::int32_t, std::int32_t>;

    Status checkUnitOp(const Op &op);
    Status checkRead(const Op &op, BufferId id, const Source &source) const;
    Status checkWrite(const Op &op, BufferId id, char code) const;
    Status checkAlike(const Op &op);
    Status checkWeights(const Op &op);
    Status checkShapes(const Op &op, const Signature &signature) const;
    Status checkTransfer(const Op &op);
    Status checkRing(const Op &op) const;
    Status checkSaved(const Op &op);
    Status checkStepOp(const Op &op) const;
    Status checkCollective(const Op &op) const;
    Status checkCodec(const Op &op, const Bucket &bucket) const;
    Status checkStep(const Op &op, const Bucket &bucket) const;
    bool isConverted(BufferId id, const Bucket &bucket) const;
    Status checkConverted(const Op &op, const Bucket &bucket) const;
    Status checkConversion(const Op &op, const Bucket &bucket) const;
    bool isCode(BufferId id) const;
    Status checkRows(const Op &op);
    Status checkOnce() const;
    Status checkGradientsComplete();
    int placeOf(Unit unit) const;

    const StepProgram &m_program;
    Variant m_variant;
    Signatures m_signatures;
    std::vector<Writer> m_writers;    ///< of transient buffers
    std::vector<TensorId> m_tensorOf; ///< of parameter and gradient views
    std::array<std::vector<std::int64_t>, 5 * segmentCount * 20 * 8>
        m_shapes{};                               ///< of written operands, by segment, kind and place
    std::vector<std::vector<TensorId>> m_weights; ///< what a unit's segment reads in its forward
    std::vector<std::size_t> m_owner; ///< the segment that uses a tensor; its index in m_weights + 1
    std::vector<std::int64_t> m_rows; ///< tokens of the loss so far, by micro-batch
    std::vector<Use> m_uses;
    std::vector<Use> m_gradients;
    int m_layers = 0;
    std::int32_t m_microbatches = 0;
};

} // namespace rankyard::plan
