// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

/// What there is to run on: nodes with their processors, memories, GPUs and network cards, how they are joined, and the fabric
/// between nodes. Plain data; equal nodes are told once with a count, so that ten thousand GPUs cost what one node costs.
/// Bandwidths are bytes/s in one direction, latencies seconds; 0: not known.
namespace rankyard::cluster {

enum class DeviceKind : std::uint8_t {
    Machine,
    Package, ///< a processor in its socket
    Numa,    ///< cores and the memory that is near them
    Core,    ///< told one by one only on nodes without GPUs, where ranks run on them
    Bridge,  ///< PCIe host bridge
    Switch,  ///< PCIe switch
    Gpu,
    Nic,
};

/// One box of a node. Devices form a tree; [0] is the machine.
struct Device {
    DeviceKind kind = DeviceKind::Machine;
    std::string name; ///< unique in its node
    int parent = -1;
    std::string model{};  ///< of a processor or GPU
    double bytes = 0;     ///< memory of a NUMA node or GPU
    int cores = 0;        ///< of a NUMA node
    double bandwidth = 0; ///< line rate of a NIC
    bool operator==(const Device &) const = default;
};

/// NVLink between two GPUs of a node.
struct Bond {
    int a = 0; ///< device indices, a < b
    int b = 0;
    int lanes = 0;
    double bandwidth = 0;
    bool operator==(const Bond &) const = default;
};

/// A kind of node.
struct Node {
    std::string type; ///< "DGX A100 80 GB"
    std::vector<Device> devices;
    std::vector<Bond> bonds;    ///< NVLink without a switch
    double switchBandwidth = 0; ///< NVSwitch: of each GPU to any other; 0: there is none
    int switchLanes = 0;
    double pcieBandwidth = 0; ///< of a GPU to its host
    bool operator==(const Node &) const = default;

    std::vector<int> of(DeviceKind kind) const; ///< device indices, ascending
    int cores() const;
    double hostBytes() const;
};

/// `count` equal nodes; their names are `prefix` and a number, or `prefix` alone when there is one.
struct NodeGroup {
    std::string prefix = "node-";
    int count = 1;
    int type = 0; ///< index into Cluster::types
    bool operator==(const NodeGroup &) const = default;
};

/// How nodes are joined. Two levels of switches, as fat trees of training clusters have: a leaf, and the spine above it.
struct Fabric {
    int domainNodes = 1;         ///< nodes that share one NVLink domain (18 in a GB200 rack)
    int leafNodes = 0;           ///< nodes under one leaf (or one set of rail leaves); 0: all
    bool rails = false;          ///< NIC i of every node goes to leaf i
    double oversubscription = 1; ///< leaf to spine: 2 halves what crosses it
    bool operator==(const Fabric &) const = default;
};

/// What a probe measured on one node of a cluster: rates, bandwidths and latencies by the names that the cost model gives them
/// (predict::constants and predict::Machine), and how well they explain what was measured.
struct Measured {
    std::string host;
    std::string date;   ///< ISO 8601, UTC
    std::string device; ///< the executor's name of it: "AMD EPYC …, AVX-512, 1 thread"
    int ranks = 0;      ///< that were at work at once
    std::map<std::string, double> values{};
    /// Predicted against measured, of one kind of work.
    struct Fit {
        std::string what;
        int samples = 0;
        double median = 0; ///< of |predicted ÷ measured − 1|
        double worst = 0;
        bool isRough() const { return median > 0.25; } ///< no base for fine choices
        bool operator==(const Fit &) const = default;
    };
    std::vector<Fit> fits{};
    bool operator==(const Measured &) const = default;
};

struct Cluster {
    std::string name;
    std::vector<Node> types;
    std::vector<NodeGroup> groups;
    Fabric fabric;
    std::vector<std::string> notes{}; ///< what was assumed and why
    std::optional<Measured> measured{};
    bool operator==(const Cluster &) const = default;

    int nodes() const;
    int gpus() const;
    int nics() const;
};

/// From the best to the worst. NVIDIA's codes beside them.
enum class Path : std::uint8_t {
    Self,       ///< X
    Memory,     ///< MEM: cores of one NUMA node
    NvSwitch,   ///< NV# to every GPU
    NvLink,     ///< NV#
    OneSwitch,  ///< PIX
    Switches,   ///< PXB
    HostBridge, ///< PHB
    NumaNode,   ///< NODE
    Sockets,    ///< SYS, once SOC
    Leaf,       ///< network, one hop
    Spine,      ///< network, over the spine
};
constexpr int pathCount = 11;

struct Link {
    Path path = Path::Self;
    int lanes = 0; ///< of NVLink
    double bandwidth = 0;
    double latency = 0;
    bool operator==(const Link &) const = default;
};

const char *codeOf(Path path);        ///< "PIX"; "NV" for both NVLinks; "NET" for both networks
const char *wordsOf(Path path);       ///< "one PCIe switch"
std::string textOf(const Link &link); ///< "NVSwitch, 300 GB/s"
const char *nameOf(DeviceKind kind);  ///< "gpu"

/// Between two devices of one node (GPUs and NICs; others by the tree alone).
Link linkIn(const Node &node, int a, int b);

/// The GPUs of a cluster, numbered node by node: the order in which ranks are placed. Where no GPU is, cores take their place. Holds no copy: the cluster must outlive it.
class Slots
{
public:
    struct Place {
        int node = 0; ///< over the whole cluster
        int type = 0;
        int device = 0; ///< in its node
        int local = 0;  ///< which slot of its node
    };

    explicit Slots(const Cluster &cluster);

    int count() const { return m_count; }
    DeviceKind kind() const { return m_kind; }
    Place place(int slot) const;
    /// First slot of a node; count() for the node after the last.
    int firstOf(int node) const;
    std::string nameOfNode(int node) const;
    int typeOfNode(int node) const;
    Link link(int a, int b) const;

    /// The worst link that two of `members` have between them, and one such pair. Looks at pairs of nodes' classes only, so that a
    /// group of all slots costs O(n).
    struct Worst {
        Link link;
        int a = 0;
        int b = 0;
        int nodes = 1;      ///< that the group touches
        bool island = true; ///< never leaves NVLink (or, without GPUs, its node)
    };
    Worst worstOf(const std::vector<int> &members) const;

private:
    struct Span {
        int firstNode;
        int firstSlot;
        int perNode;
        int group;
    };
    const Span &spanOfSlot(int slot) const;
    const Span &spanOfNode(int node) const;

    const Cluster &m_cluster;
    std::vector<Span> m_spans;
    std::vector<std::vector<int>> m_devices; ///< by type
    DeviceKind m_kind = DeviceKind::Gpu;
    int m_count = 0;
};

} // namespace rankyard::cluster
