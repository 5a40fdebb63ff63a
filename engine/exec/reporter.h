// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/exec/executor.h"
#include "engine/telemetry/record.h"
#include "engine/telemetry/ring.h"

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <variant>
#include <vector>

namespace rankyard::exec {

/// A StepRecord without storage of its own: what the interpreter's thread can hand over without allocating.
struct StepSample {
    static constexpr std::size_t mostGroups = 8;
    struct Group {
        comm::Figures figures;
        double ms = 0;
        double exposedMs = 0;
    };
    telemetry::StepRecord record; ///< `comm` empty
    std::array<Group, mostGroups> groups{};
    std::size_t groupCount = 0; ///< by group id of the train program
};

/// From the interpreter's thread to the one that speaks with the agent: a queue that never blocks. Steps and
/// spans are handed over without allocating; what is rare (events, logs, reports) may allocate. A full queue
/// drops and counts.
class Reporter
{
public:
    /// A message of the rank to the agent's control channel: {kind: "ready" | "paused" | …}.
    struct Report {
        Json message;
    };

    /// Names of the groups of the train program by id; ops of the largest program.
    Reporter(std::vector<std::string> groupNames, std::size_t mostOps);

    // The interpreter's thread:
    void put(const StepSample &sample);
    void put(telemetry::Payload payload);
    void report(Json message);
    void log(telemetry::Level level, std::int64_t step, std::string text);
    /// The spans of one execution; dropped when four are waiting already.
    void putSpans(const Execution &execution);

    // The other thread: hands over what is there, in order.
    void drain(const std::function<void(telemetry::Payload &&)> &payload,
               const std::function<void(Json &&)> &report);
    std::uint64_t dropped() const { return m_ring.dropped(); }

private:
    using Item =
        std::variant<std::monostate, StepSample, telemetry::SpanRecord *, telemetry::Payload, Report>;

    telemetry::StepRecord expand(const StepSample &sample) const;

    std::vector<std::string> m_groupNames;
    telemetry::Ring<Item> m_ring;
    std::array<telemetry::SpanRecord, 4> m_spans;
    telemetry::Ring<telemetry::SpanRecord *> m_free; ///< back to the interpreter's thread
    telemetry::SpanRecord *m_spare = nullptr; ///< of the interpreter's thread: could not be handed over
};

} // namespace rankyard::exec
