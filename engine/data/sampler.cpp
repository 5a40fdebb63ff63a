// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/data/sampler.h"

#include "engine/data/permutation.h"

#include <algorithm>
#include <cstring>

namespace rankyard::data {

namespace {

/// Orders of validation lie far from every epoch of training.
constexpr std::uint64_t validationStream = 1ULL << 63;

} // namespace

Sampler::Sampler(const Corpus &corpus, const spec::JobSpec &job)
    : m_seq(job.model.seq),
      m_vocab(job.model.vocab),
      m_global(job.batch.global),
      m_micro(job.batch.micro),
      m_microBatches(job.microBatches()),
      m_seed(job.data.seed)
{
    m_train = {corpus.train(), corpus.train().samples(m_seq), 0};
    m_valid = {corpus.valid(), corpus.valid().samples(m_seq), validationStream};
    if (m_valid.samples > 0)
        m_evalBatches = std::clamp<std::int64_t>(m_valid.samples / m_global, 1,
                                                 std::max<std::int64_t>(1, job.run.evalBatches));
}

std::int64_t Sampler::firstIndex(std::int64_t step, std::int64_t replica, std::int64_t microBatch) const
{
    return step * m_global + (replica * m_microBatches + microBatch) * m_micro;
}

std::int64_t Sampler::windowOf(const Part &part, std::int64_t index) const
{
    const std::int64_t epoch = index / part.samples;
    const std::int64_t position = index % part.samples;
    if (!m_seed)
        return position;
    return Permutation(part.samples, *m_seed, part.firstStream + static_cast<std::uint64_t>(epoch))(position);
}

std::vector<std::int64_t> Sampler::windows(const Part &part, std::int64_t first) const
{
    std::vector<std::int64_t> ids;
    for (std::int64_t k = 0; k < m_micro && part.samples > 0; ++k)
        ids.push_back(windowOf(part, first + k));
    return ids;
}

std::vector<std::int64_t> Sampler::sampleIds(std::int64_t step, std::int64_t replica,
                                             std::int64_t microBatch) const
{
    return windows(m_train, firstIndex(step, replica, microBatch));
}

std::vector<std::int64_t> Sampler::evalSampleIds(std::int64_t batch, std::int64_t replica,
                                                 std::int64_t microBatch) const
{
    return windows(m_valid, firstIndex(batch, replica, microBatch));
}

Status Sampler::fillPart(const Part &part, std::int64_t first, std::int32_t *tokens,
                         std::int32_t *labels) const
{
    if (part.samples < 1)
        return Error::make(Code::Internal, "a sample was asked of an empty part of the corpus");
    for (std::int64_t k = 0; k < m_micro; ++k) {
        const std::int64_t begin = part.stream.begin + windowOf(part, first + k) * m_seq;
        std::int32_t *row = tokens + k * m_seq;
        std::int32_t *next = labels + k * m_seq;
        std::uint32_t largest = part.stream.dataset->read(begin, m_seq, row);
        largest = std::max(largest, part.stream.dataset->read(begin + m_seq, 1, next + m_seq - 1));
        std::memcpy(next, row + 1, static_cast<std::size_t>(m_seq - 1) * sizeof(std::int32_t));
        if (largest >= static_cast<std::uint64_t>(m_vocab)) {
            return Error::make(Code::BadData,
                               "token outside the vocabulary: the corpus changed since the run began", "data")
                .withFound(std::to_string(static_cast<std::int32_t>(largest)))
                .withExpected("less than model.vocab = " + std::to_string(m_vocab));
        }
    }
    return {};
}

Status Sampler::fill(std::int64_t step, std::int64_t replica, std::int64_t microBatch, std::int32_t *tokens,
                     std::int32_t *labels) const
{
    return fillPart(m_train, firstIndex(step, replica, microBatch), tokens, labels);
}

Status Sampler::fillEval(std::int64_t batch, std::int64_t replica, std::int64_t microBatch,
                         std::int32_t *tokens, std::int32_t *labels) const
{
    return fillPart(m_valid, firstIndex(batch, replica, microBatch), tokens, labels);
}

} // namespace rankyard::data
