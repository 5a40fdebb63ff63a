// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/cluster/cluster.h"

#include "engine/base/units.h"

#include <algorithm>
#include <numeric>

namespace rankyard::cluster {

namespace {

// Start-up times of a transfer. Calculon's fits for A100 clusters (calculon-ai/calculon, systems/a100_80g.json).
constexpr double nvlinkLatency = 10e-6;
constexpr double networkLatency = 20e-6;

} // namespace

std::vector<int> Node::of(DeviceKind kind) const
{
    std::vector<int> found;
    for (std::size_t i = 0; i < devices.size(); ++i) {
        if (devices[i].kind == kind)
            found.push_back(static_cast<int>(i));
    }
    return found;
}

int Node::cores() const
{
    return std::accumulate(devices.begin(), devices.end(), 0,
                           [](int sum, const Device &device) { return sum + device.cores; });
}

double Node::hostBytes() const
{
    double sum = 0;
    for (const Device &device : devices)
        sum += device.kind == DeviceKind::Numa ? device.bytes : 0;
    return sum;
}

int Cluster::nodes() const
{
    return std::accumulate(groups.begin(), groups.end(), 0,
                           [](int sum, const NodeGroup &group) { return sum + group.count; });
}

namespace {

int countOf(const Cluster &cluster, DeviceKind kind)
{
    int sum = 0;
    for (const NodeGroup &group : cluster.groups)
        sum += group.count
            * static_cast<int>(cluster.types[static_cast<std::size_t>(group.type)].of(kind).size());
    return sum;
}

} // namespace

int Cluster::gpus() const { return countOf(*this, DeviceKind::Gpu); }
int Cluster::nics() const { return countOf(*this, DeviceKind::Nic); }

const char *codeOf(Path path)
{
    static const char *const codes[pathCount] = {"X",   "MEM",  "NV",  "NV",  "PIX", "PXB",
                                                 "PHB", "NODE", "SYS", "NET", "NET"};
    return codes[static_cast<int>(path)];
}

const char *wordsOf(Path path)
{
    static const char *const words[pathCount] = {"itself",
                                                 "memory of one NUMA node",
                                                 "NVSwitch",
                                                 "NVLink",
                                                 "one PCIe switch",
                                                 "several PCIe switches",
                                                 "the host bridge of a processor",
                                                 "host bridges of one NUMA node",
                                                 "the link between processors",
                                                 "network, one switch",
                                                 "network, over the spine"};
    return words[static_cast<int>(path)];
}

const char *nameOf(DeviceKind kind)
{
    static const char *const names[] = {"machine", "package", "numa", "core",
                                        "bridge",  "switch",  "gpu",  "nic"};
    return names[static_cast<int>(kind)];
}

std::string textOf(const Link &link)
{
    std::string text = wordsOf(link.path);
    if (link.path == Path::NvLink && link.lanes > 0)
        text += " × " + std::to_string(link.lanes);
    if (link.bandwidth > 0)
        text += ", " + formatNumber(link.bandwidth / 1e9, 3) + " GB/s";
    return text;
}

namespace {

/// Lowest device that holds both; `directly`: as the parent of each.
int commonAncestor(const Node &node, int a, int b)
{
    std::vector<int> above;
    for (int at = a; at >= 0; at = node.devices[static_cast<std::size_t>(at)].parent)
        above.push_back(at);
    for (int at = b; at >= 0; at = node.devices[static_cast<std::size_t>(at)].parent) {
        if (std::find(above.begin(), above.end(), at) != above.end())
            return at;
    }
    return 0;
}

Path pathThrough(const Node &node, int a, int b)
{
    const int common = commonAncestor(node, a, b);
    const auto parent = [&node](int at) { return node.devices[static_cast<std::size_t>(at)].parent; };
    switch (node.devices[static_cast<std::size_t>(common)].kind) {
    case DeviceKind::Switch:
        return parent(a) == common && parent(b) == common ? Path::OneSwitch : Path::Switches;
    case DeviceKind::Bridge:
        return Path::HostBridge;
    case DeviceKind::Numa:
        return Path::NumaNode;
    default:
        return Path::Sockets;
    }
}

} // namespace

Link linkIn(const Node &node, int a, int b)
{
    if (a == b)
        return {};
    if (a > b)
        std::swap(a, b);
    const auto kind = [&node](int at) { return node.devices[static_cast<std::size_t>(at)].kind; };
    if (kind(a) == DeviceKind::Gpu && kind(b) == DeviceKind::Gpu) {
        if (node.switchBandwidth > 0)
            return {Path::NvSwitch, node.switchLanes, node.switchBandwidth, nvlinkLatency};
        for (const Bond &bond : node.bonds) {
            if (bond.a == a && bond.b == b)
                return {Path::NvLink, bond.lanes, bond.bandwidth, nvlinkLatency};
        }
    }
    const Path path = pathThrough(node, a, b);
    // Cores meet in memory, whose rate is not in any table.
    if (kind(a) == DeviceKind::Core && kind(b) == DeviceKind::Core)
        return {path == Path::NumaNode ? Path::Memory : path, 0, 0, 0};
    return {path, 0, node.pcieBandwidth, 0};
}

Slots::Slots(const Cluster &cluster) : m_cluster(cluster)
{
    m_kind = cluster.gpus() > 0 ? DeviceKind::Gpu : DeviceKind::Core;
    for (const Node &type : cluster.types)
        m_devices.push_back(type.of(m_kind));
    int node = 0;
    for (std::size_t i = 0; i < cluster.groups.size(); ++i) {
        const NodeGroup &group = cluster.groups[i];
        const int perNode = static_cast<int>(m_devices[static_cast<std::size_t>(group.type)].size());
        m_spans.push_back({node, m_count, perNode, static_cast<int>(i)});
        node += group.count;
        m_count += group.count * perNode;
    }
}

const Slots::Span &Slots::spanOfSlot(int slot) const
{
    // The last span that begins at or before it; spans without slots share their first with the next.
    auto after = std::upper_bound(m_spans.begin(), m_spans.end(), slot,
                                  [](int wanted, const Span &span) { return wanted < span.firstSlot; });
    do {
        --after;
    } while (after->perNode == 0 && after != m_spans.begin());
    return *after;
}

const Slots::Span &Slots::spanOfNode(int node) const
{
    const auto after = std::upper_bound(m_spans.begin(), m_spans.end(), node,
                                        [](int wanted, const Span &span) { return wanted < span.firstNode; });
    return *(after - 1);
}

Slots::Place Slots::place(int slot) const
{
    const Span &span = spanOfSlot(slot);
    Place place;
    place.type = m_cluster.groups[static_cast<std::size_t>(span.group)].type;
    place.node = span.firstNode + (slot - span.firstSlot) / span.perNode;
    place.local = (slot - span.firstSlot) % span.perNode;
    place.device = m_devices[static_cast<std::size_t>(place.type)][static_cast<std::size_t>(place.local)];
    return place;
}

int Slots::firstOf(int node) const
{
    if (node >= m_cluster.nodes())
        return m_count;
    const Span &span = spanOfNode(node);
    return span.firstSlot + (node - span.firstNode) * span.perNode;
}

int Slots::typeOfNode(int node) const
{
    return m_cluster.groups[static_cast<std::size_t>(spanOfNode(node).group)].type;
}

std::string Slots::nameOfNode(int node) const
{
    const Span &span = spanOfNode(node);
    const NodeGroup &group = m_cluster.groups[static_cast<std::size_t>(span.group)];
    if (group.count == 1)
        return group.prefix;
    const std::string last = std::to_string(group.count - 1);
    std::string number = std::to_string(node - span.firstNode);
    number.insert(0, std::max(last.size(), std::size_t(2)) - number.size(), '0');
    return group.prefix + number;
}

Link Slots::link(int a, int b) const
{
    const Place from = place(a);
    const Place to = place(b);
    const Node &node = m_cluster.types[static_cast<std::size_t>(from.type)];
    const Node &other = m_cluster.types[static_cast<std::size_t>(to.type)];
    if (from.node == to.node)
        return linkIn(node, from.device, to.device);
    const Fabric &fabric = m_cluster.fabric;
    if (fabric.domainNodes > 1 && from.node / fabric.domainNodes == to.node / fabric.domainNodes)
        return {Path::NvSwitch, node.switchLanes, node.switchBandwidth, nvlinkLatency};
    const bool sameLeaves =
        fabric.leafNodes == 0 || from.node / fabric.leafNodes == to.node / fabric.leafNodes;
    // On rails another number of GPU is another leaf, which is reached over the spine.
    const bool direct = sameLeaves && (!fabric.rails || from.local == to.local);
    const auto share = [](const Node &of, std::size_t slots) {
        double sum = 0;
        for (const Device &device : of.devices)
            sum += device.kind == DeviceKind::Nic ? device.bandwidth : 0;
        return slots > 0 ? sum / static_cast<double>(slots) : 0;
    };
    const double bandwidth = std::min(share(node, m_devices[static_cast<std::size_t>(from.type)].size()),
                                      share(other, m_devices[static_cast<std::size_t>(to.type)].size()));
    return {direct ? Path::Leaf : Path::Spine, 0,
            direct ? bandwidth : bandwidth / std::max(1.0, fabric.oversubscription), networkLatency};
}

Slots::Worst Slots::worstOf(const std::vector<int> &members) const
{
    Worst worst;
    if (members.empty())
        return worst;
    worst.a = worst.b = members[0];
    const auto consider = [&](int a, int b) {
        const Link link = this->link(a, b);
        const bool worse = link.path != worst.link.path ? link.path > worst.link.path
                                                        : link.bandwidth < worst.link.bandwidth;
        if (worse) {
            worst.link = link;
            worst.a = a;
            worst.b = b;
        }
    };
    // Within nodes every pair; between nodes it matters only whether domain, leaf and rail are shared, and where two of the
    // group differ in one of them, some member differs from the first or from the last of the first's node.
    std::vector<int> sorted = members;
    std::sort(sorted.begin(), sorted.end());
    std::size_t firstEnd = 0;
    for (std::size_t begin = 0; begin < sorted.size();) {
        const int node = place(sorted[begin]).node;
        std::size_t end = begin;
        while (end < sorted.size() && sorted[end] < firstOf(node + 1))
            ++end;
        for (std::size_t i = begin; i < end; ++i) {
            for (std::size_t j = i + 1; j < end; ++j)
                consider(sorted[i], sorted[j]);
        }
        if (begin == 0) {
            firstEnd = end;
        } else {
            ++worst.nodes;
            for (std::size_t i = begin; i < end; ++i) {
                consider(sorted[0], sorted[i]);
                consider(sorted[firstEnd - 1], sorted[i]);
            }
        }
        begin = end;
    }
    worst.island = m_kind == DeviceKind::Gpu ? worst.link.path <= Path::NvLink : worst.nodes == 1;
    return worst;
}

} // namespace rankyard::cluster
