// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/predict/cost.h"

#include "engine/cluster/catalogue.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <set>

namespace rankyard::predict {

namespace {

constexpr double tile = 128.0 * 256; ///< elements of c that a multiprocessor has at a time
constexpr double multiprocessors = 120;

std::size_t at(Precision precision) { return static_cast<std::size_t>(precision); }

double bytesOf(Precision precision)
{
    return precision == Precision::Fp32 ? 4
        : precision == Precision::Fp8   ? 1
        : precision == Precision::Fp4   ? 0.5
                                        : 2;
}

} // namespace

const char *nameOf(Precision precision)
{
    constexpr std::array<const char *, precisionCount> names{"fp32", "bf16", "fp16", "fp8", "fp4"};
    return names[at(precision)];
}

Precision precisionOf(DType type)
{
    return type == DType::BF16 ? Precision::Bf16 : type == DType::F16 ? Precision::Fp16 : Precision::Fp32;
}

double positivePart(double x, double soft) { return (x + std::sqrt(x * x + soft * soft)) / 2; }

CostModel::CostModel(Machine machine, Calibration calibration)
    : m_machine(std::move(machine)),
      m_calibration(std::move(calibration))
{
    const Calibration &c = m_calibration;
    if (c.peak > 0) {
        m_machine.peak[at(Precision::Bf16)] = c.peak;
        m_machine.peak[at(Precision::Fp16)] = c.peak;
    }
    if (c.memoryBandwidth > 0)
        m_machine.memoryBandwidth = c.memoryBandwidth;
    m_rate = m_machine.peak;
    for (double &rate : m_rate)
        rate *= c.gemm;
    m_rate[at(Precision::Fp8)] = m_machine.peak[at(Precision::Fp8)] * c.gemmFp8;
    m_rate[at(Precision::Fp4)] = m_machine.peak[at(Precision::Fp4)] * c.gemmFp4;
    m_bytes = m_machine.memoryBandwidth * c.memory;
    m_exponential = c.exponential / m_machine.threads;
}

double CostModel::gemm(double m, double n, double k, Precision precision) const
{
    const Calibration &c = m_calibration;
    const double flops = 2 * m * n * k;
    const double traffic = bytesOf(precision) * (m * k + k * n) + 2 * m * n;
    const double waves = m * n / (tile * multiprocessors);
    const double arithmetic = flops / gemmRate(precision);
    // Half a wave is idle on average; less than one wave cannot fill the device.
    return arithmetic * (1 + c.wave / (waves + 0.25)) + c.operands * traffic / m_bytes + c.kernel;
}

double CostModel::alignment(double rows, double columns) const
{
    const auto sides = static_cast<std::uint64_t>(rows) | static_cast<std::uint64_t>(columns) | 64;
    return 1 + m_calibration.alignment * (6 - std::countr_zero(sides));
}

double CostModel::attention(const Attention &what) const
{
    const Calibration &c = m_calibration;
    if (what.fused) {
        const double flops = 2 * what.tokens * (what.seq + c.attentionTile) * what.heads * what.width;
        const bool narrow = what.precision == Precision::Fp8 || what.precision == Precision::Fp4;
        const Precision precision = narrow ? Precision::Bf16 : what.precision;
        const double share = c.attention * (precision == Precision::Fp32 ? c.attentionFp32 : 1) * what.width
            / (what.width + c.headHalf);
        const double traffic = 8 * what.tokens * what.heads * what.width;
        return flops / (share * peak(precision)) + traffic / m_bytes + c.kernel;
    }
    // Scores whole, as dense products of one head each; softmax, mask and dropout pass over them in memory.
    const double flops = 4 * what.tokens * what.seq * what.heads * what.width;
    const double aligned =
        (std::fmod(what.width, 8) == 0 ? 1 : c.misaligned) * alignment(what.width, what.width);
    const double share = what.width / (what.width + c.headHalf);
    const double scores = what.tokens * what.seq * what.heads;
    return aligned * flops / (share * gemmRate(what.precision)) + 2 * c.scores * scores / m_bytes
        + 5 * c.kernel;
}

double CostModel::attentionBackward(const Attention &what) const
{
    const Calibration &c = m_calibration;
    if (what.fused) // five products instead of two
        return 2.5 * attention(what) / c.attentionBackward;
    return 2 * attention(what);
}

double CostModel::elementwise(double bytes) const
{
    return m_calibration.traffic * bytes / m_bytes + m_calibration.kernel;
}

double CostModel::exponentials(double count) const { return m_exponential * count; }

double CostModel::optimizer(double bytes) const { return bytes / m_bytes; }

double CostModel::copy(double bytes) const
{
    // Effective rates stand to line rates as on the links of an island (25 of 31.5 GB/s on PCIe 4).
    return m_machine.hostBandwidth > 0 ? bytes / (0.8 * m_machine.hostBandwidth) : elementwise(bytes);
}

double CostModel::busBandwidth(const Placement &placement) const
{
    const double inside = m_machine.islandBandwidth * m_calibration.island;
    if (placement.ranks <= placement.perIsland)
        return inside;
    const double outside = m_machine.networkBandwidth * m_calibration.network * placement.perIsland;
    // One after the other in a pipeline: the slower counts, with a round corner.
    if (placement.perIsland <= 1)
        return outside;
    return inside * outside / std::sqrt(inside * inside + outside * outside);
}

double CostModel::latency(const Placement &placement, bool tree) const
{
    const int inside = std::min(placement.ranks, placement.perIsland);
    double seconds = (inside - 1) * m_calibration.islandLatency / 7;
    if (placement.ranks > placement.perIsland && placement.perIsland > 0) {
        const double islands = static_cast<double>(placement.ranks) / placement.perIsland;
        seconds += (tree ? std::log2(islands) : islands - 1) * m_calibration.networkLatency;
    }
    return seconds;
}

double CostModel::collective(plan::OpKind kind, double bytes, const Placement &placement) const
{
    if (placement.ranks < 2)
        return 0;
    if (kind == plan::OpKind::Shift || kind == plan::OpKind::Send || kind == plan::OpKind::Recv)
        return send(bytes, placement.ranks <= placement.perIsland);
    const double n = placement.ranks;
    const bool both = kind == plan::OpKind::AllReduce;
    return (both ? 2 : 1) * (bytes * (n - 1) / n / busBandwidth(placement) + latency(placement, both));
}

double CostModel::send(double bytes, bool insideIsland) const
{
    const Calibration &c = m_calibration;
    return insideIsland ? bytes / (m_machine.islandBandwidth * c.island) + c.islandLatency
                        : bytes / (m_machine.networkBandwidth * c.network) + c.networkLatency;
}

std::string familyOf(const std::string &device)
{
    for (const char *family : {"V100", "A100", "H100", "B200"}) {
        if (device.find(family) != std::string::npos)
            return family;
    }
    if (device.find("H200") != std::string::npos || device.find("GH200") != std::string::npos)
        return "H100"; // the same cores with more memory
    if (device.find("B300") != std::string::npos)
        return "B200";
    return device.empty() ? "cpu" : device;
}

Ranks ranksOf(const spec::JobSpec &job) { return {job.layout.world(), job.run.threads.value_or(0)}; }

namespace {

double measuredValue(const cluster::Cluster &cluster, const char *name)
{
    if (!cluster.measured)
        return 0;
    const auto found = cluster.measured->values.find(name);
    return found == cluster.measured->values.end() ? 0 : found->second;
}

double networkBandwidthOf(const cluster::Cluster &cluster, double devicesPerNode)
{
    const cluster::Node &node = cluster.types.front();
    double cards = 0;
    for (const int nic : node.of(cluster::DeviceKind::Nic))
        cards += node.devices[static_cast<std::size_t>(nic)].bandwidth;
    return cards / devicesPerNode / std::max(1.0, cluster.fabric.oversubscription);
}

/// Ranks share a node's cores evenly (CoreShare): each has some of its own, or several take turns on one.
Result<Machine> hostOf(const cluster::Cluster &cluster, Ranks ranks)
{
    const cluster::Node &node = cluster.types.front();
    const double cores = node.cores();
    if (measuredValue(cluster, "peak_fp32") <= 0 || cores <= 0) {
        std::string hint = "rankyardctl cluster probe measures those of this machine";
        for (const std::string &note : cluster.notes) {
            if (note.starts_with("What was probed")) // and was of no use
                hint = note + ". " + hint;
        }
        return Error::make(Code::NotHere, "how fast these cores are is not known", cluster.name)
            .withHint(hint);
    }
    const double nodes = cluster.nodes();
    const double onNode = ranks.count > 0 ? std::ceil(static_cast<double>(ranks.count) / nodes) : cores;
    const double own = std::max(1.0, std::floor(cores / onNode));
    const double threads = ranks.threads > 0 ? std::min(own, static_cast<double>(ranks.threads)) : own;
    const double speed = 1 + (threads - 1) * measuredValue(cluster, "team");
    Machine machine;
    machine.family = familyOf("");
    machine.peak[at(Precision::Fp32)] = speed * measuredValue(cluster, "peak_fp32");
    machine.peak[at(Precision::Bf16)] = speed * measuredValue(cluster, "peak_bf16");
    machine.peak[at(Precision::Fp16)] = speed * measuredValue(cluster, "peak_fp16");
    machine.memoryBandwidth = speed * measuredValue(cluster, "memory_bandwidth");
    machine.memoryBytes = node.hostBytes() / onNode;
    machine.island = static_cast<int>(onNode);
    machine.islandBandwidth = measuredValue(cluster, "link_bandwidth");
    machine.networkBandwidth = networkBandwidthOf(cluster, onNode);
    machine.cooperative = true;
    machine.ranksPerCore = std::max(1.0, onNode / cores);
    machine.threads = threads;
    return machine;
}

/// What each GPU of a node reaches over NVLink; 0 where links do not join all of them, for a ring of all then goes over PCIe.
double bondedBandwidth(const cluster::Node &node, const std::vector<int> &gpus)
{
    std::map<int, double> sums;
    std::set<int> joined = {gpus.front()};
    for (std::size_t grown = 0; grown != joined.size();) {
        grown = joined.size();
        for (const cluster::Bond &bond : node.bonds) {
            if (joined.contains(bond.a) || joined.contains(bond.b))
                joined.insert({bond.a, bond.b});
        }
    }
    for (const cluster::Bond &bond : node.bonds) {
        sums[bond.a] += bond.bandwidth;
        sums[bond.b] += bond.bandwidth;
    }
    double least = joined.size() == gpus.size() ? sums[gpus.front()] : 0;
    for (const int gpu : gpus)
        least = std::min(least, sums[gpu]);
    return least;
}

/// The least memory of a node's GPUs, the data sheet's where the cluster does not tell it.
double leastMemory(const cluster::Node &node, const std::vector<int> &gpus, double dataSheet)
{
    double least = 0;
    for (const int gpu : gpus) {
        const double bytes = node.devices[static_cast<std::size_t>(gpu)].bytes;
        const double told = bytes > 0 ? bytes : dataSheet;
        least = least > 0 ? std::min(least, told) : told;
    }
    return least;
}

/// What so many ranks send over must be known.
Status checkLinks(const Machine &machine, const cluster::Cluster &cluster, std::int64_t ranks)
{
    const auto unknown = [&](const char *what, const char *hint) {
        return Error::make(Code::NotHere, std::string("the bandwidth ") + what + " is not known",
                           cluster.name)
            .withHint(hint);
    };
    if (ranks > 1 && machine.islandBandwidth <= 0)
        return unknown("between the GPUs of a node",
                       "a cluster file tells it by nvlink, nvswitch or pcie_bandwidth");
    if (ranks > machine.island && machine.networkBandwidth <= 0)
        return unknown("between nodes", "a cluster file tells it by the bandwidth of each nic");
    return {};
}

} // namespace

Result<Machine> machineOf(const cluster::Cluster &cluster, Ranks ranks)
{
    if (cluster.types.empty() || cluster.nodes() == 0)
        return Error::make(Code::NotHere, "the cluster has no nodes", cluster.name);
    const cluster::Node &node = cluster.types.front();
    const std::vector<int> gpus = node.of(cluster::DeviceKind::Gpu);
    if (gpus.empty())
        return hostOf(cluster, ranks);
    const std::string model = node.devices[static_cast<std::size_t>(gpus.front())].model;
    const cluster::GpuModel *gpu = cluster::findGpu(model);
    if (!gpu) {
        return Error::make(Code::NotHere, "no data sheet of this device: its speed is not known",
                           cluster.name)
            .withFound(model.empty() ? "a GPU without a name" : model)
            .withHint(
                "Write a \"model\" with a data sheet (H100 SXM, A100 SXM 80 GB …) into a cluster file of it; "
                "cluster show --json prints one");
    }
    Machine machine;
    machine.device = gpu->name;
    machine.family = familyOf(gpu->name);
    machine.peak = {gpu->tf32 > 0 ? gpu->tf32 : gpu->fp32, gpu->bf16, gpu->bf16, gpu->fp8, 2 * gpu->fp8};
    machine.memoryBandwidth = gpu->memoryBandwidth;
    machine.memoryBytes = leastMemory(node, gpus, gpu->memoryBytes);
    const int perNode = static_cast<int>(gpus.size());
    machine.island = perNode * std::max(1, std::min(cluster.fabric.domainNodes, cluster.nodes()));
    const double bonded = bondedBandwidth(node, gpus);
    machine.hostBandwidth = node.pcieBandwidth > 0 ? node.pcieBandwidth : gpu->pcieBandwidth;
    machine.islandBandwidth = node.switchBandwidth > 0 ? node.switchBandwidth
        : bonded > 0                                   ? bonded
                                                       : machine.hostBandwidth / 2;
    machine.hostBytes = node.hostBytes() / perNode;
    machine.networkBandwidth = networkBandwidthOf(cluster, perNode);
    return machine;
}

Result<CostModel> costModelOf(const cluster::Cluster &cluster, Ranks ranks)
{
    RY_ASSIGN(const Machine machine, machineOf(cluster, ranks));
    if (machine.cooperative) {
        RY_ASSIGN(const Calibration constants, calibrationOf(*cluster.measured));
        return CostModel(machine, constants);
    }
    RY_TRY(checkLinks(machine, cluster, ranks.count > 0 ? ranks.count : cluster.gpus()));
    RY_ASSIGN(const Calibration constants, fittedCalibrations().of(machine.family));
    return CostModel(machine, asProgrammed(constants));
}

Result<CostModel> costModelFor(const spec::JobSpec &job, const cluster::Cluster &cluster,
                               std::optional<Ranks> ranks)
{
    RY_ASSIGN(CostModel cost, costModelOf(cluster, ranks.value_or(ranksOf(job))));
    const DType type = job.precision.compute;
    if (type == DType::F64 || cost.peak(precisionOf(type)) <= 0) {
        return Error::make(Code::NotHere, "how fast this device computes in the job's type is not known",
                           "precision.compute")
            .withFound(nameOf(type));
    }
    return cost;
}

} // namespace rankyard::predict
