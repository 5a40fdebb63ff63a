// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/spec/job.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// Models as the planner knows them: wider than what a job can run ("plan only": experts, latent attention, squared ReLU).
namespace rankyard::predict {

/// A mixture of experts in the MLP of all layers but the first `denseLayers`.
struct Experts {
    std::int64_t count = 0;  ///< routed experts; 0: the model is dense
    std::int64_t topK = 0;   ///< that a token goes to
    std::int64_t shared = 0; ///< experts that every token goes to
    std::int64_t ffn = 0;    ///< width of one expert
    std::int64_t denseLayers = 0;
    bool operator==(const Experts &) const = default;
};

/// Multi-head latent attention (arXiv:2405.04434): queries and keys through low ranks; a key is `nope` columns of its own and
/// `rope` that all heads share.
struct Latent {
    std::int64_t queryRank = 0; ///< 0: queries are not compressed
    std::int64_t keyRank = 0;
    std::int64_t nope = 0;
    std::int64_t rope = 0;
    std::int64_t value = 0; ///< columns of a value head
    bool operator==(const Latent &) const = default;
};

/// Sizes of a decoder. Plain data. Widths are columns, `seq` tokens, `vocab` rows before padding.
struct Shape {
    std::string name;
    std::int64_t layers = 0;
    std::int64_t hidden = 0;
    std::int64_t heads = 0;
    std::int64_t kvHeads = 0;
    std::int64_t headDim = 0;
    std::int64_t ffn = 0; ///< of a dense layer
    std::int64_t seq = 0;
    std::int64_t vocab = 0;
    bool gated = false;     ///< gate, up and down (SwiGLU); else up and down (GELU, ReLU, squared ReLU)
    bool tied = true;       ///< one table for embedding and head
    bool biases = true;     ///< on linear layers and norms (GPT); else RMSNorm without
    bool positions = true;  ///< a learned table of seq rows
    bool queryBias = false; ///< q, k and v have biases although the rest has none (Qwen 2)
    bool parallelBlock =
        false; ///< attention and MLP side by side on one norm: half the tensor group's transfers
    Experts experts{};
    std::optional<Latent> latent{};
    bool operator==(const Shape &) const = default;

    bool sparse() const { return experts.count > 0; }
    std::int64_t mlpMatrices() const { return gated ? 3 : 2; }
    std::int64_t queryWidth() const { return heads * headDim; }
    std::int64_t keyWidth() const { return kvHeads * headDim; }
};

/// The shape of a job's model.
Shape shapeOf(const spec::Model &model);

/// Parameters of one layer, exact: the projections of attention, the MLP (or router and experts), biases and norms.
/// GPT: 12h² + 13h; Llama: (2 + 2g)h² + 3hf + 2h (Narayanan et al. 2021; Touvron et al. 2023).
std::int64_t attentionParams(const Shape &shape);
std::int64_t denseMlpParams(const Shape &shape);
std::int64_t sparseMlpParams(const Shape &shape); ///< all experts
std::int64_t normParams(const Shape &shape);      ///< of a layer
/// One table of tokens with `vocab` rows.
std::int64_t tableParams(const Shape &shape, std::int64_t vocab);
/// All of the model, with `vocab` rows (padded or not) in the table(s).
std::int64_t paramsOf(const Shape &shape, std::int64_t vocab);
inline std::int64_t paramsOf(const Shape &shape) { return paramsOf(shape, shape.vocab); }
/// What a token passes: routed experts counted top-k times.
std::int64_t activeParams(const Shape &shape);

/// ⌈V / (multiple · tp)⌉ · multiple · tp: as Megatron-LM pads (make_vocab_size_divisible_by, 128).
std::int64_t paddedVocab(std::int64_t vocab, std::int64_t tp, std::int64_t multiple = 128);

/// A published model by name, case and separators ignored ("LLAMA3-8B", "Llama 3.1 8B"); null when it is none of ours. Sizes from
/// the models' papers and configuration files; `seq` is what they were trained with.
const Shape *findModel(std::string_view name);
/// As their authors write them: those of the catalogue that no job can run, for `plan_only.model`.
const std::vector<const char *> &plannedModels();

} // namespace rankyard::predict
