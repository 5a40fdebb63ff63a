// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/base/json.h"
#include "engine/predict/csv.h"
#include "engine/predict/shape.h"

#include <optional>

/// Memory by the formulas of other tools and papers, each as its authors print it: views beside the program's own bytes, for who comes
/// with their numbers. Bytes unless named; counts of parameters as double.
namespace rankyard::predict {

/// ZeRO paper (arXiv:1910.02054, Table 1): bytes a device of parameters, gradients and K optimizer bytes a parameter.
double zeroPaperStates(double params, double ranks, int stage, double paramBytes = 2, double gradBytes = 2,
                       double optimizerBytes = 12);
/// Elements a device sends and receives a step, in multiples of the parameters (section 7).
double zeroPaperTraffic(int stage);

/// Megatron-LM's distributed optimizer (docs/user-guide/features/dist_optimizer.md): bytes a parameter; `shards` 0: not sharded.
enum class StateRegime : std::uint8_t {
    Fp16, ///< fp16 parameters and gradients, fp32 main gradients: 20
    Bf16, ///< bf16 parameters, fp32 gradients: 18
    Fp32, ///< all fp32: 16
};
double megatronStateBytes(StateRegime regime, double shards);
/// Parameters of the last pipeline stage on one tensor rank, vocabulary padded: what Megatron-LM holds there.
double megatronLastStageParams(const Shape &shape, std::int64_t tp, std::int64_t pp);

/// Korthikanti et al. 2022 (arXiv:2205.05198, Table 2 and section 4.2.3): activations of the first stage, GELU and f = 4h.
struct Korthikanti {
    double layers = 0, hidden = 0, heads = 0, seq = 0, micro = 1;
    double tp = 1, pp = 1, interleave = 1;
    bool sequenceParallel = false;
    bool selective = false; ///< the attention's core is computed again
};
double korthikantiActivations(const Korthikanti &k);
/// 5as/h: what the core keeps, in units of sbh.
double korthikantiCore(const Korthikanti &k);
/// 18 bytes a parameter of 12h² a layer, without embeddings (Figure 1).
double korthikantiStates(const Korthikanti &k);
/// 2sbh for each micro-batch in flight on the first stage: what deallocating outputs saves (appendix B).
double korthikantiOutputs(const Korthikanti &k);

/// DeepSpeed's estimators (deepspeed/runtime/zero/stage_1_and_2.py and stage3.py): bytes of a device and of a host.
struct DeepSpeedCase {
    double params = 0;
    double largestLayer = 0;
    double gpusPerNode = 1;
    double nodes = 1;
    double buffers = 1.5; ///< "additional_buffer_factor", on the host alone
    bool offloadParams = false;
    bool offloadOptimizer = false;
    bool zeroInit = true;
    bool before5099 = false; ///< ZeRO 2 as its documentation prints it, 4P + 16P/N; since PR 5099 2P + 18P/N
};
struct DeepSpeedNeed {
    double device = 0;
    double host = 0;
};
DeepSpeedNeed deepspeedZero2(const DeepSpeedCase &c);
DeepSpeedNeed deepspeedZero3(const DeepSpeedCase &c);

/// A row of a table of memory values (tests/fixtures/published/memory_tables.csv): what the formula that its quantity names gives, in
/// the row's unit.
struct MemoryRow {
    std::string id;
    std::string source;
    std::string quantity;
    std::string unit;
    double value = 0;
    std::optional<double> predicted{};
    std::string skipped{};
};
/// BadData when the columns are not there.
Result<std::vector<MemoryRow>> readMemoryTable(const Csv &csv, const std::string &name);

} // namespace rankyard::predict
