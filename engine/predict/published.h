// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/predict/csv.h"
#include "engine/predict/flops.h"
#include "engine/predict/step_time.h"

#include <string>
#include <vector>

/// Published training runs as tables tell them (tests/fixtures/published): one row a run, completed by the rules below, predicted by the
/// cost model. A row's id and source name are carried through and never looked at.
///
/// Rules for what a row leaves empty, in this order:
///   sizes of the model     from the catalogue by the model's name; then kv_heads = heads, ffn 4h (gated: 8/3 h, up to a multiple of
///                          256), vocabulary 51200; heads: GPT-3's 96 from 12288 columns on, else 128 columns each. A GPT
///                          without layers and hidden: by params_b, hidden about 128 times the layers; others: not read
///   dp                     n_gpus / (tp · cp · pp); the column where it says the same; where the product is another, the quotient
///                          counts, and a row whose n_gpus is no multiple is not read
///   tp, pp                 1 where parameters are sharded (FSDP, ZeRO 3) or one of them is given; both unknown elsewhere: not read
///   cp, ep, vpp            1. An interleaved schedule without vpp has one layer a chunk
///   micro_batch            by notes (grad_accum=, GA=); else 1 with a pipeline or sequences of 32k; else all of a replica's, up to 16k tokens
///   global_batch           dp · micro_batch where that is told and there is no pipeline; else not read
///   precision              fp16 on V100, else bf16
///   recompute              none
///   schedule               notes' "schedule="; else interleaved with vpp > 1, and on Hopper and later where vpp is not told; else 1f1b
///   interconnect           "8x400G", "1600 Gbps" and such in the text: of a node; else as the device's usual box has it
///   attention              fused, but on V100, and on A100 with recomputation outside FSDP (before 2022's kernels; full recomputation
///                          was there because scores filled the memory)
///   overlap                gradients under backward: FSDP, "overlap" in the text, and Megatron's distributed optimizer on Hopper and later
///   measured time          iter_time_s; else from tokens/s; else from TFLOP/s by the row's convention, or the MFU
namespace rankyard::predict {

/// What a row is compared with: only Dense counts for the targets.
enum class RunClass : std::uint8_t { Dense, Experts, LowPrecision, FineTuning };
constexpr int runClassCount = 4;
const char *nameOf(RunClass what); ///< "dense", "experts", "fp8", "fine_tuning"

/// What a prediction is made from.
struct Run {
    Shape shape;
    Machine machine;
    Micro micro;
    Layout layout;
    Recompute recompute = Recompute::None;
    double devices = 0;
    double globalBatch = 0;
    RunClass what = RunClass::Dense;
    std::optional<Convention> convention{}; ///< of the row's TFLOP/s
    std::vector<std::string> traits{};      ///< of the software and the machine, of those that constants know
};

struct Row {
    std::string id;
    std::string source;
    std::string gpu;
    std::optional<Run> run{};
    std::string skipped{}; ///< why there is no run
    double measured = 0;   ///< seconds a step
    double tflops = 0;     ///< as published, 0: not
};

/// A row that cannot be used has its reason in `skipped`; the table's own faults are the error.
Result<std::vector<Row>> readRuns(std::string_view text, const std::string &name);

/// Seconds of a step of this run; by the defaults where `calibrations` have nothing of its family.
StepTime predictRun(const Run &run, const Calibrations &calibrations);

} // namespace rankyard::predict
