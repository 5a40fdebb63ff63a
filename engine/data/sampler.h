// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/base/result.h"
#include "engine/data/corpus.h"
#include "engine/spec/job.h"

#include <cstdint>
#include <vector>

namespace rankyard::data {

/// Which tokens each replica trains on (DESIGN section 4, batch). A sample is a window of seq + 1 tokens, windows lie seq
/// apart; window w's inputs are tokens [w·seq, w·seq + seq), its labels the ones after each. In step s (from 0) sample j of
/// the global batch has index s·global + j and belongs to replica j ÷ (micro·m), micro-batch (j mod micro·m) ÷ micro. The
/// index becomes a window through a permutation keyed by (data.seed, epoch), so neither depends on the layout. Validation
/// uses one fixed set in the same arrangement. No state: a step can be asked for in any order, which is all that resuming
/// needs. Immutable; any thread.
class Sampler
{
public:
    /// `job` must be the one that `corpus` was opened for, up to layout and batch.
    Sampler(const Corpus &corpus, const spec::JobSpec &job);

    std::int64_t trainSamples() const { return m_train.samples; } ///< windows of an epoch
    std::int64_t validSamples() const { return m_valid.samples; }
    std::int64_t micro() const { return m_micro; }
    std::int64_t microBatches() const { return m_microBatches; }
    /// Validation batches without repeating a sample: at most run.eval_batches, at least 1 if there is a sample at all (a set
    /// smaller than the global batch repeats), else 0.
    std::int64_t evalBatches() const { return m_evalBatches; }

    /// Index of the first sample of a micro-batch, s·global + j; the others follow it. It identifies a sample of the whole
    /// run, as random numbers need it.
    std::int64_t firstIndex(std::int64_t step, std::int64_t replica, std::int64_t microBatch) const;
    /// The windows of a micro-batch, [micro].
    std::vector<std::int64_t> sampleIds(std::int64_t step, std::int64_t replica,
                                        std::int64_t microBatch) const;
    std::vector<std::int64_t> evalSampleIds(std::int64_t batch, std::int64_t replica,
                                            std::int64_t microBatch) const;

    /// Writes tokens and labels, each [micro, seq] row by row. Allocates nothing unless it fails: BadData when the files hold a
    /// token outside the vocabulary after all (they changed since they were opened), Internal without samples.
    Status fill(std::int64_t step, std::int64_t replica, std::int64_t microBatch, std::int32_t *tokens,
                std::int32_t *labels) const;
    /// The same for batch 0 ≤ `batch` < evalBatches() of the validation set.
    Status fillEval(std::int64_t batch, std::int64_t replica, std::int64_t microBatch, std::int32_t *tokens,
                    std::int32_t *labels) const;

private:
    struct Part {
        TokenStream stream;
        std::int64_t samples = 0;
        std::uint64_t firstStream = 0; ///< of the permutation, at epoch 0
    };
    std::int64_t windowOf(const Part &part, std::int64_t index) const;
    std::vector<std::int64_t> windows(const Part &part, std::int64_t first) const;
    Status fillPart(const Part &part, std::int64_t first, std::int32_t *tokens, std::int32_t *labels) const;

    Part m_train;
    Part m_valid;
    std::int64_t m_seq;
    std::int64_t m_vocab;
    std::int64_t m_global;
    std::int64_t m_micro;
    std::int64_t m_microBatches;
    std::int64_t m_evalBatches = 0;
    std::optional<std::uint64_t> m_seed;
};

} // namespace rankyard::data
