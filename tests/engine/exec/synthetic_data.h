// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/exec/data_source.h"
#include "engine/exec/random.h"
#include "engine/spec/job.h"

namespace rankyard::exec::test {

/// A language with structure: the next token is mostly a function of the two before. Indexed by sample, so
/// layout-free.
class SyntheticData : public DataSource
{
public:
    explicit SyntheticData(const spec::JobSpec &job) : m_job(job) {}

    Status fill(plan::ProgramKind kind, std::int64_t batch, std::int64_t replica, std::int64_t microBatch,
                std::int32_t *tokens, std::int32_t *labels) override
    {
        const std::int64_t first =
            batch * m_job.batch.global + (replica * m_job.microBatches() + microBatch) * m_job.batch.micro;
        for (std::int64_t s = 0; s < m_job.batch.micro; ++s) {
            std::uint32_t previous = 1, current = 2;
            for (std::int64_t i = 0; i < m_job.model.seq; ++i) {
                const PhiloxBlock noise =
                    philox({static_cast<std::uint32_t>(first + s), static_cast<std::uint32_t>(i),
                            kind == plan::ProgramKind::Eval, 0},
                           {7, 7});
                const std::uint32_t next = (noise[0] % 8 == 0 ? noise[1] : 3 * previous + 5 * current + 1)
                    % static_cast<std::uint32_t>(m_job.model.vocab);
                tokens[s * m_job.model.seq + i] = static_cast<std::int32_t>(current);
                labels[s * m_job.model.seq + i] = static_cast<std::int32_t>(next);
                previous = current;
                current = next;
            }
        }
        return {};
    }
    std::int64_t evalBatches() const override { return 2; }

private:
    spec::JobSpec m_job;
};

} // namespace rankyard::exec::test
