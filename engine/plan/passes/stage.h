// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/plan/passes/pass.h"
#include "engine/plan/passes/schedule.h"
#include "engine/plan/units.h"

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace rankyard::plan {

/// Emits the units of one stage, action by action, after the table in units.h; with the sizes of one rank of its tensor and
/// context group, and as if these groups had one member: their passes put the transfers in. Used by stagePass, on one thread.
class StageEmitter
{
public:
    explicit StageEmitter(PassContext context);

    /// The Recv of an action's input, if it comes from another stage. Before emit(), as early as the transfer may begin.
    void prepare(const Action &action);
    void emit(const Action &action);

private:
    /// Storage of a parameter and of its gradient; `grad` is none in eval programs.
    struct Weight {
        BufferId param = none;
        BufferId grad = none;
    };
    struct Linear {
        Weight weight, bias;
    };
    struct Layer {
        Linear attnNorm, qkv, out, mlpNorm, up, down;
    };
    struct NormSaved {
        BufferId x = none, n = none, stats = none;
    };
    /// What a layer's forward leaves for its backward. Released by the dependency pass, not here.
    struct LayerSaved {
        NormSaved attnNorm, mlpNorm;
        BufferId qkv = none, o = none, lse = none, u = none, a = none;
    };
    /// A micro-batch on its way through this rank's chunks.
    struct MicroBatch {
        BufferId tokens = none, labels = none;
        std::map<std::int32_t, LayerSaved> layers;
        NormSaved head;
        std::vector<BufferId> x;              ///< into each chunk, then out of it
        std::vector<BufferId> dx;             ///< the same backwards
        std::vector<std::vector<Op>> weights; ///< of each chunk, deferred
    };

    void addTensors();
    Weight weight(const std::string &name) const;
    Linear linear(const std::string &name) const
    {
        return {weight(name + ".weight"), weight(name + ".bias")};
    }
    BufferId activation(const std::string &name, std::vector<std::int64_t> shape, DType dtype);
    BufferId activation(const std::string &name, std::vector<std::int64_t> shape)
    {
        return activation(name, std::move(shape), m_compute);
    }
    Op make(OpKind kind, Unit unit, Segment segment, std::vector<BufferId> reads,
            std::vector<BufferId> writes) const;
    Op &op(OpKind kind, Unit unit, Segment segment, std::vector<BufferId> reads,
           std::vector<BufferId> writes);
    void weightOp(Unit unit, Segment segment, std::vector<BufferId> reads, const Weight &target);

    /// Where the value that enters or leaves a chunk is computed: the op that its transfer is named after.
    struct Border {
        std::int32_t virtualStage = none; ///< on the other side; none at the ends of the model
        Unit unit;
        Segment segment = Segment::None;
    };
    Border borderOf(const Action &action, bool input) const;
    Op transfer(OpKind kind, const Action &action, const Border &border, BufferId value) const;
    void sendOn(const Action &action, BufferId value);
    /// The buffer in which an action's input lies.
    BufferId &inputOf(const Action &action);

    void forward(std::int32_t chunk);
    void norm(Unit unit, NormSaved &saved, const std::string &prefix, const Linear &weights);
    BufferId join(Unit unit, BufferId x, BufferId y, const Weight &bias);
    BufferId attention(std::int32_t layer, BufferId x);
    BufferId mlp(std::int32_t layer, BufferId x);
    void loss();

    void backward(std::int32_t chunk, bool split);
    BufferId joinBackward(Unit unit, const std::string &prefix, BufferId dx, const Weight &bias);
    BufferId normBackward(Unit unit, BufferId dn, const NormSaved &saved, const Linear &weights, BufferId dx);
    BufferId mlpBackward(std::int32_t layer, BufferId dx);
    BufferId attentionBackward(std::int32_t layer, BufferId dx);
    void embeddingBackward(BufferId dx);

    static std::vector<BufferId> only(std::vector<BufferId> ids);

    PassContext m_context;
    StepProgram &m_program;
    Split m_split;
    std::vector<StageSpan> m_spans; ///< by virtual stage of the whole pipeline
    std::int32_t m_stage;
    DType m_compute;
    DType m_statType;
    bool m_llama;
    bool m_dropout;
    GroupId m_pipeline;

    std::map<std::string, Weight> m_weights;
    std::map<std::int32_t, Layer> m_layers;
    Linear m_norm;
    Weight m_wte, m_wpe, m_head;

    std::int32_t m_microbatch = 0; ///< in work
    std::int32_t m_chunk = 0;
    bool m_defer = false;
    std::map<std::int32_t, MicroBatch> m_batches;
    std::map<std::int32_t, std::vector<OpId>> m_sends; ///< by channel, in order
};

} // namespace rankyard::plan
