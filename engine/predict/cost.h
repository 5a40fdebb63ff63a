// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/base/json.h"
#include "engine/cluster/cluster.h"
#include "engine/plan/step_program.h"
#include "engine/spec/job.h"

#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

/// What one device and its links take: the primitives under the closed form of a step (step_time.h) and under the durations of a
/// step program's ops (durations.h). Seconds, bytes, FLOP. Smooth in every size, so that no ranking jumps at a threshold.
namespace rankyard::predict {

enum class Precision : std::uint8_t { Fp32, Bf16, Fp16, Fp8, Fp4 };
constexpr int precisionCount = 5;
const char *nameOf(Precision precision);
Precision precisionOf(DType type);

/// One device among its peers, as data sheets have it. Bandwidths in bytes/s of one device and one direction.
struct Machine {
    std::string device; ///< name in the catalogue; "" where cores take their place
    std::string family; ///< whose constants are meant: "V100", "A100", "H100", "B200", "cpu"
    std::array<double, precisionCount> peak{}; ///< dense FLOP/s; 0: cannot
    double memoryBandwidth = 0;
    double memoryBytes = 0;
    int island = 1; ///< devices that reach each other fast: a node, or an NVLink domain of several
    double islandBandwidth = 0;
    double networkBandwidth = 0; ///< of one device's share of its node's cards
    double hostBandwidth = 0;    ///< of a device to its host's memory
    double hostBytes = 0;        ///< of that memory, a device's share
    // Of ranks on cores:
    bool cooperative = false; ///< transfers advance on the thread that computes, not beside it
    double ranksPerCore = 1;  ///< above 1: they take turns
    double threads = 1;       ///< of a rank
    bool operator==(const Machine &) const = default;
};
/// How many of a job's ranks share a cluster. Where cores take the place of GPUs, each rank has its part of them.
struct Ranks {
    std::int64_t count = 0;   ///< 0: one on each device
    std::int64_t threads = 0; ///< of each, on cores; 0: all that it has
};
Ranks ranksOf(const spec::JobSpec &job);
/// The first kind of node stands for all. NotHere for a cluster whose device is neither in the catalogue nor measured.
Result<Machine> machineOf(const cluster::Cluster &cluster, Ranks ranks = {});
/// "A100 SXM 80 GB" → "A100": devices with the same cores share constants.
std::string familyOf(const std::string &device);

/// The constants of a device and its software: fitted on published runs, or measured on the spot. Plain numbers without unit
/// unless named. Absolute values that are 0 are taken from the machine's data sheet.
struct Calibration {
    std::string family;
    std::string source; ///< "published runs", "probe of node-3"
    std::string date;   ///< ISO

    double gemm = 0.75;    ///< share of the peak that an endless matrix product reaches
    double gemmFp8 = 0.55; ///< the same at 8 bits, of that peak
    double gemmFp4 = 0.4;
    double operands = 1;      ///< how much of a product's operand traffic is not hidden by its arithmetic
    double wave = 0.5;        ///< idle share of the last wave of tiles
    double alignment = 0.04;  ///< slowdown of a product for each halving of its sides' common divisor with 64
    double attention = 0.6;   ///< share of the peak of fused attention with endless heads, forward
    double attentionFp32 = 1; ///< that share at 32 bits against 16
    double attentionBackward = 0.8; ///< its backward's rate against its forward's
    double headHalf = 32;           ///< width of a head at which fused attention reaches half of that
    double attentionTile = 0;       ///< keys that causal attention computes beyond each query's own: a tile's
    double exponential = 0;         ///< seconds of an exponential beyond its traffic, one thread
    double scores = 12;    ///< passes of 2 bytes over the scores that unfused attention makes, forward
    double misaligned = 3; ///< how much slower unfused products are when a head's width is no multiple of 8
    double memory = 0.8;   ///< share of the memory bandwidth that element-wise kernels reach
    double traffic = 1;    ///< element-wise traffic against what segments read and write once
    double kernel = 4e-6;  ///< seconds between two kernels on the device
    double host = 8e-6;    ///< seconds of the host for each kernel: bounds small models
    double island = 0.7;   ///< share of the line rate inside an island
    double network = 0.7;  ///< share of the line rate between nodes
    double islandLatency = 8e-6; ///< seconds a collective takes at least, each step of its ring
    double networkLatency = 20e-6;
    double hideTensor =
        0; ///< share of the tensor group's transfers that runs under computation; of our programs: of those beside it
    double hideData = 0.8;    ///< share of computation under which the data group's transfers may run
    double hidePipeline = 0;  ///< share of sends between stages that runs under computation
    double contention = 0.1;  ///< how much hidden transfers slow the computation above them
    double step = 10e-3;      ///< seconds a step takes whatever its size: loader, logging, synchronisation
    double straggler = 0.005; ///< how much slower the slowest rank is, each doubling of nodes
    double spread = 0.12;     ///< ln of the 80 % interval's upper bound over the prediction

    double peak = 0; ///< FLOP/s at 16 bits, measured
    double memoryBandwidth = 0;
    bool operator==(const Calibration &) const = default;
};
/// Every constant with its name and what it means: reader, writer, fit and `validate` read this table.
struct Constant {
    const char *name;
    double Calibration::*value;
    const char *what;
    double least;
    double most;
};
const std::vector<Constant> &constants();

/// What a system or a machine has that others have not ("deepspeed", "fsdp", "tensor overlap"): some constants times a factor.
struct Trait {
    std::string name;
    std::vector<std::pair<double Calibration::*, double>> factors{};
    bool operator==(const Trait &) const = default;
};

/// The constants for programs of our own: what runs under computation stands in the program, whatever other systems hide.
Calibration asProgrammed(Calibration calibration);
/// The constants of a measured machine's programs; the absolute values are machineOf()'s. BadData for a name that nobody knows and for a
/// value out of range.
Result<Calibration> calibrationOf(const cluster::Measured &measured);

/// Constants of several devices, and traits.
struct Calibrations {
    std::vector<Calibration> devices;
    std::vector<Trait> traits{};
    bool operator==(const Calibrations &) const = default;

    /// Of this family with those traits, unknown ones ignored; NotFound names the families that are there.
    Result<Calibration> of(const std::string &family, const std::vector<std::string> &with = {}) const;
};

/// `rankyard/calibration/1`: {schema, source, date, shared: {name: value}, devices: {family: {name: value}}, traits: {trait: {name: factor}}};
/// a device's own values over the shared ones over the defaults above. Unknown names and values out of range are errors with their path.
Result<Calibrations> readCalibrations(const Json &document, const std::string &name);
OrderedJson writeCalibrations(const Calibrations &calibrations);
/// Fitted on published runs (packaging/fit writes them), built in.
const Calibrations &fittedCalibrations();

/// Where a group's ranks are: `ranks` of it, `perIsland` neighbours of them in each island.
struct Placement {
    int ranks = 1;
    int perIsland = 1;
};

/// Any thread; immutable.
class CostModel
{
public:
    CostModel(Machine machine, Calibration calibration);

    /// c[m,n] = a[m,k] · b[k,n]: arithmetic at the rate above, part of the operands' traffic, the tail of the last wave of tiles, a
    /// kernel's gap.
    double gemm(double m, double n, double k, Precision precision) const;
    /// How much slower products are with a matrix of these sides: tensor cores like multiples of 64, and each power of two that is missing costs
    /// (Anthony et al. 2024, arXiv:2401.14489).
    double alignment(double rows, double columns) const;
    /// Causal attention of `tokens` queries in sequences of `seq` over `heads` heads of `width`, `keyShare` of the keys' heads.
    /// Fused (Dao et al. 2022) or with the scores in memory, which `Dropped` passes over.
    struct Attention {
        double tokens = 0;
        double seq = 0;
        double heads = 0;
        double width = 0;
        bool fused = true;
        Precision precision = Precision::Bf16;
    };
    double attention(const Attention &what) const;
    double attentionBackward(const Attention &what) const;
    /// An element-wise kernel that reads and writes so many bytes.
    double elementwise(double bytes) const;
    /// What exponentials (GELU, SiLU, softmax) take beyond that.
    double exponentials(double count) const;
    double optimizer(double bytes) const;
    /// Between the device's memory and the host's.
    double copy(double bytes) const;

    /// Ring with as many cards as an island has members of the group (Thakur et al. 2005; NCCL's channels): the slower of island
    /// and network; latency of a ring inside the island, over islands of a tree for all-reduce, else of a ring. `bytes` is the whole tensor.
    double collective(plan::OpKind kind, double bytes, const Placement &placement) const;
    double send(double bytes, bool insideIsland) const;
    /// bytes/s of the ring above.
    double busBandwidth(const Placement &placement) const;
    double latency(const Placement &placement, bool tree) const;

    const Machine &machine() const { return m_machine; }
    const Calibration &constants() const { return m_calibration; }
    double peak(Precision precision) const { return m_machine.peak[static_cast<std::size_t>(precision)]; }

private:
    double gemmRate(Precision precision) const { return m_rate[static_cast<std::size_t>(precision)]; }

    Machine m_machine;
    Calibration m_calibration;
    std::array<double, precisionCount> m_rate{}; ///< FLOP/s of an endless product
    double m_bytes = 0;                          ///< bytes/s of memory that kernels reach
    double m_exponential = 0;                    ///< seconds of one, all threads at work
};

/// For our own programs on a cluster's devices: with what was measured on them, else with the fitted constants of their family. NotHere
/// and NotFound say what is not known of them.
Result<CostModel> costModelOf(const cluster::Cluster &cluster, Ranks ranks = {});
/// For this job. NotHere as well where its devices cannot compute in the job's type, and for fp64, which no constants are of. `ranks`: in
/// place of the job's own.
Result<CostModel> costModelFor(const spec::JobSpec &job, const cluster::Cluster &cluster,
                               std::optional<Ranks> ranks = std::nullopt);

/// max(0, x) with a round corner of width `soft`: what of a transfer is left when something covers it.
double positivePart(double x, double soft);

} // namespace rankyard::predict
