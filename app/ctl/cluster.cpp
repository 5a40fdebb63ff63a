// SPDX-License-Identifier: GPL-3.0-or-later
#include "app/ctl/command.h"
#include "engine/base/units.h"
#include "engine/cluster/catalogue.h"
#include "engine/cluster/sources.h"

#include <algorithm>
#include <map>

namespace rankyard::ctl {

namespace {

using namespace cluster;

std::string gbps(double bandwidth)
{
    return bandwidth > 0 ? formatNumber(bandwidth / 1e9, 3) + " GB/s" : "–";
}

/// "1 node", "2 nodes"
std::string counted(int count, const char *what)
{
    return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

/// "8 × A100 SXM 80 GB"
std::string gpusOf(const Node &node)
{
    std::map<std::string, int> models;
    for (const int gpu : node.of(DeviceKind::Gpu))
        ++models[node.devices[static_cast<std::size_t>(gpu)].model];
    std::string text;
    for (const auto &[model, count] : models)
        text += (text.empty() ? "" : ", ") + std::to_string(count) + " × " + (model.empty() ? "GPU" : model);
    return text;
}

std::string linkText(const Link &link)
{
    return link.path == Path::NvLink || link.path == Path::NvSwitch
        ? codeOf(link.path) + std::to_string(link.lanes)
        : codeOf(link.path);
}

/// The matrix of a node, as nvidia-smi topo -m would print it.
std::string matrixOf(const Node &node)
{
    std::vector<int> ends = node.of(DeviceKind::Gpu);
    const std::vector<int> nics = node.of(DeviceKind::Nic);
    ends.insert(ends.end(), nics.begin(), nics.end());
    std::vector<std::vector<std::string>> rows{{""}};
    for (const int end : ends)
        rows[0].push_back(node.devices[static_cast<std::size_t>(end)].name);
    for (const int from : ends) {
        rows.push_back({node.devices[static_cast<std::size_t>(from)].name});
        for (const int to : ends)
            rows.back().push_back(linkText(linkIn(node, from, to)));
    }
    return ends.size() > 1 && ends.size() <= 24 ? table(rows) : std::string();
}

void showText(Output &output, const Cluster &cluster)
{
    output.line(cluster.name + ": " + counted(cluster.nodes(), "node") + ", " + counted(cluster.gpus(), "GPU")
                + ", " + counted(cluster.nics(), "network card"));
    for (const NodeGroup &group : cluster.groups) {
        const Node &node = cluster.types[static_cast<std::size_t>(group.type)];
        output.line("");
        output.line(std::to_string(group.count) + " × " + node.type + ": " + std::to_string(node.cores())
                    + " cores, " + formatBytes(node.hostBytes())
                    + (gpusOf(node).empty() ? "" : ", " + gpusOf(node)));
        if (node.switchBandwidth > 0)
            output.line("NVSwitch, " + gbps(node.switchBandwidth) + " a GPU and direction");
        if (const std::string matrix = matrixOf(node); !matrix.empty())
            output.line(matrix);
    }
    const Slots slots(cluster);
    std::vector<int> all(static_cast<std::size_t>(slots.count()));
    for (int i = 0; i < slots.count(); ++i)
        all[static_cast<std::size_t>(i)] = i;
    if (slots.count() > 1) {
        const Slots::Worst worst = slots.worstOf(all);
        output.line("Worst link: " + textOf(worst.link));
    }
    for (const std::string &note : cluster.notes)
        output.note(note);
}

OrderedJson linksOf(const Node &node)
{
    OrderedJson links = OrderedJson::array();
    std::vector<int> ends = node.of(DeviceKind::Gpu);
    const std::vector<int> nics = node.of(DeviceKind::Nic);
    ends.insert(ends.end(), nics.begin(), nics.end());
    for (std::size_t i = 0; i < ends.size(); ++i) {
        for (std::size_t j = i + 1; j < ends.size(); ++j) {
            const Link link = linkIn(node, ends[i], ends[j]);
            links.push_back({{"a", node.devices[static_cast<std::size_t>(ends[i])].name},
                             {"b", node.devices[static_cast<std::size_t>(ends[j])].name},
                             {"code", linkText(link)},
                             {"words", textOf(link)},
                             {"bandwidth", link.bandwidth}});
        }
    }
    return links;
}

} // namespace

void addCluster(Commands &commands)
{
    CLI::App *parent = commands.root().add_subcommand("cluster", "What there is to run on");
    parent->require_subcommand(1);
    auto what = std::make_shared<std::string>();
    CLI::App *show = commands.add(
        *parent, "show", "Nodes, devices and links of a cluster", [what](Output &output) -> Result<Exit> {
            RY_ASSIGN(const Cluster cluster, openCluster(*what));
            if (!output.json) {
                showText(output, cluster);
                return Exit::Done;
            }
            OrderedJson document = writeCluster(cluster);
            document["totals"] = {
                {"nodes", cluster.nodes()}, {"gpus", cluster.gpus()}, {"nics", cluster.nics()}};
            for (std::size_t i = 0; i < cluster.groups.size(); ++i)
                document["nodes"][i]["links"] =
                    linksOf(cluster.types[static_cast<std::size_t>(cluster.groups[i].type)]);
            output.document(document);
            return Exit::Done;
        });
    show->add_option(
            "cluster", *what,
            "A file (cluster JSON, hwloc XML, text of nvidia-smi topo -m), a preset (dgx-h100x32), local, or "
            "hwloc's synthetic description")
        ->required();
}

} // namespace rankyard::ctl
