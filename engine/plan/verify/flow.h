// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/plan/verify/checks.h"
#include "engine/plan/verify/steps.h"

#include <set>
#include <tuple>

namespace rankyard::plan {

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

enum class StatsPhase { Adding, Reduced, Done };

/// What the bytes of a program hold while it runs: flow.cpp; what reductions and gathers make of them: flow_reductions.cpp.
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
    bool isConversion(const Op &op) const;
    Status checkConversion(const Op &op);
    Status convert(const Op &op);
    Status sumConverted(const Op &op);
    Status convertBack(const Op &op);
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

    /// A gradient in the type in which it is summed.
    struct Converted {
        BufferId source = none;
        bool summed = false, acrossBlocks = false, tied = false;
    };

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
    std::map<BufferId, Converted> m_converted;
    std::vector<OpId> m_norms;
    std::vector<OpId> m_updates;
};

} // namespace rankyard::plan
