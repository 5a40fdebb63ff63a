// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

/// What clients and the agent agree on. After the 16 bytes of `attachMagic` both sides send frames (engine/telemetry/wire.h):
///
///   Hello, both, first: {protocol: [lowest, highest], build, …}. The agent adds {host, pid, boot_id, monotonic_ns, wall_ns}.
///   Request {id, method, params} → Reply {id, result} or {id, error}:
///     start {run, job, job_dir, run_dir, resume} → report    subscribe {run, from: [[epoch, rank, sequence]…]} → {}
///     stop, kill, pause, resume, checkpoint, unsubscribe {run} → {}    list {} → {runs: [report…]}
///     describe {run} → {report, job}    remove {run} → {}
///   Notice {kind: "status", report} to every client, and to a subscriber first of all; {kind: "caught-up", run} to subscribers, when the run has ended and
///     everything it recorded was sent.
///   RunRecord to subscribers. Ping → Pong.
///
/// A report is what remote/agent/run.h writes: {run, name, state, run_dir, epoch, world, steps, started_ns, step, loss, error, log, last_lines, ranks}.
namespace rankyard::agent {

constexpr int protocolLowest = 1;
constexpr int protocolHighest = 1;
/// What `attach` prints first; clients skip what a shell may have printed before it.
constexpr char attachMagic[] = "RANKYARD-AGENT/1"; // 16 bytes and the terminator
constexpr int attachMagicBytes = 16;

} // namespace rankyard::agent
