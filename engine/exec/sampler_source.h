// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/data/sampler.h"
#include "engine/exec/data_source.h"

namespace rankyard::exec {

/// A corpus behind a sampler.
class SamplerSource final : public DataSource
{
public:
    explicit SamplerSource(data::Sampler sampler) : m_sampler(std::move(sampler)) {}

    Status fill(plan::ProgramKind kind, std::int64_t batch, std::int64_t replica, std::int64_t microBatch,
                std::int32_t *tokens, std::int32_t *labels) override
    {
        return kind == plan::ProgramKind::Train
            ? m_sampler.fill(batch, replica, microBatch, tokens, labels)
            : m_sampler.fillEval(batch, replica, microBatch, tokens, labels);
    }
    std::int64_t evalBatches() const override { return m_sampler.evalBatches(); }

private:
    data::Sampler m_sampler;
};

} // namespace rankyard::exec
