// SPDX-License-Identifier: GPL-3.0-or-later
#include "app/ctl/command.h"
#include "app/ctl/interrupts.h"
#include "engine/base/file.h"
#include "engine/base/units.h"
#include "engine/cluster/catalogue.h"
#include "engine/cluster/sources.h"
#include "engine/predict/cost.h"
#include "engine/probe/probe.h"

#include <algorithm>
#include <cmath>
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

void showMeasured(Output &output, const Measured &measured);

void showText(Output &output, const Cluster &cluster)
{
    output.line(cluster.name + ": " + counted(cluster.nodes(), "node") + ", " + counted(cluster.gpus(), "GPU")
                + ", " + counted(cluster.nics(), "network card"));
    for (const NodeGroup &group : cluster.groups) {
        const Node &node = cluster.types[static_cast<std::size_t>(group.type)];
        output.line("");
        std::string has; // what a source does not tell is not zero
        for (const std::string &part :
             {node.cores() > 0 ? counted(node.cores(), "core") : "",
              node.hostBytes() > 0 ? formatBytes(node.hostBytes()) : "", gpusOf(node)})
            has += part.empty() ? "" : (has.empty() ? ": " : ", ") + part;
        output.line(std::to_string(group.count) + " × " + node.type + has);
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
    if (cluster.measured) {
        output.line("");
        showMeasured(output, *cluster.measured);
    }
    for (const std::string &note : cluster.notes)
        output.note(note);
}

/// A file may name constants that this version does not know: then nothing is timed with it.
Status givesTimes(const Cluster &cluster)
{
    if (cluster.measured)
        RY_TRY(predict::calibrationOf(*cluster.measured));
    return {};
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

constexpr int mostRanks = 32; ///< of a probe: each takes 300 MB
constexpr double restless =
    0.12; ///< median error of a probe's products that idle cores do not have: theirs is 3 %

struct ProbeCommand {
    std::string out;
    std::vector<std::string> types{"fp32", "bf16", "fp16"};
};

std::string percent(double share) { return formatPercent(share, 2); }

std::string rate(double perSecond) { return formatNumber(perSecond / 1e9, 3) + " GFLOP/s"; }

/// The values that people know how to read; all of them stand in the file.
void showMeasured(Output &output, const Measured &measured)
{
    const auto value = [&](const char *name) {
        const auto found = measured.values.find(name);
        return found == measured.values.end() ? 0.0 : found->second;
    };
    output.line("Measured on " + measured.host + ", " + measured.date + ", " + measured.device + ", "
                + std::to_string(measured.ranks) + (measured.ranks == 1 ? " rank" : " ranks") + " at once");
    std::vector<std::vector<std::string>> rows;
    for (const char *type : {"fp32", "bf16", "fp16"}) {
        if (const double peak = value((std::string("peak_") + type).c_str()); peak > 0)
            rows.push_back({std::string("matrix products ") + type, rate(peak) + " a thread"});
    }
    rows.push_back({"memory", gbps(value("memory_bandwidth")) + " a thread"});
    rows.push_back({"between ranks",
                    gbps(value("link_bandwidth")) + ", " + formatDuration(value("island_latency"))
                        + " a step of a ring"});
    if (value("team") > 0)
        rows.push_back({"each further thread", percent(value("team")) + " of the first"});
    output.line(table(rows));
    rows = {{"predicted against measured", "samples", "median", "worst"}};
    for (const Measured::Fit &fit : measured.fits)
        rows.push_back({fit.what, std::to_string(fit.samples), percent(fit.median), percent(fit.worst)});
    output.line(table(rows));
    std::string rough;
    for (const Measured::Fit &fit : measured.fits) {
        if (fit.isRough())
            rough += (rough.empty() ? "" : ", ") + fit.what;
    }
    if (!rough.empty())
        output.line("rough: " + rough + ". One bandwidth stands for sizes within the caches and beyond them");
}

/// Of each placement and operation the smallest and the largest size that were measured.
void showLinks(Output &output, const std::vector<probe::LinkSample> &links)
{
    std::vector<std::vector<std::string>> rows{{"between ranks", "placement", "ranks", "", ""}};
    for (std::size_t i = 0, end = 0; i < links.size(); i = end) {
        const probe::LinkSample &small = links[i];
        while (end < links.size() && links[end].kind == small.kind && links[end].placement == small.placement)
            ++end;
        const probe::LinkSample &large = links[end - 1];
        rows.push_back({plan::nameOf(small.kind), small.placement, std::to_string(small.ranks),
                        formatBytes(small.bytes) + " in " + formatDuration(small.seconds),
                        formatBytes(large.bytes) + " in " + formatDuration(large.seconds) + ", "
                            + gbps(static_cast<double>(large.bytes) / large.seconds)});
    }
    output.line(table(rows));
}

OrderedJson documentOf(const probe::Report &report)
{
    OrderedJson products = OrderedJson::array(), links = OrderedJson::array();
    for (const probe::Product &product : report.products) {
        products.push_back({{"m", product.m},
                            {"n", product.n},
                            {"k", product.k},
                            {"type", nameOf(product.type)},
                            {"gflops", product.flopsPerSecond / 1e9},
                            {"predicted_gflops", product.predicted / 1e9}});
    }
    for (const probe::LinkSample &link : report.links) {
        links.push_back({{"operation", plan::nameOf(link.kind)},
                         {"placement", link.placement},
                         {"ranks", link.ranks},
                         {"bytes", link.bytes},
                         {"us", 1e6 * link.seconds}});
    }
    return {
        {"products", std::move(products)}, {"collectives", std::move(links)}, {"seconds", report.seconds}};
}

Result<Exit> runProbe(const ProbeCommand &command, Output &output)
{
    RY_ASSIGN(Cluster cluster, thisMachine());
    if (cluster.gpus() > 0)
        output.note("Cores are measured; the constants of GPUs come from published runs");
    probe::Options options;
    options.ranks =
        Slots(cluster).kind() == DeviceKind::Gpu ? cluster.types[0].cores() : Slots(cluster).count();
    options.ranks = std::clamp(options.ranks, 1, mostRanks);
    options.types.clear();
    for (const std::string &name : command.types) {
        DType type = DType::F32;
        dtypeFromName(name, type);
        options.types.push_back(type);
    }
    options.makeDevice = [] { return exec::makeCpuDevice(1); };
    options.makeWideDevice = [ranks = options.ranks] { return exec::makeCpuDevice(ranks); };
    options.progress = [&](double share, const std::string &what) {
        output.note(formatNumber(std::floor(100 * share), 3) + " %  " + what);
    };
    const StopOnInterrupt interrupt;
    options.stop = [stop = interrupt.token()] { return stop.stop_requested(); };
    RY_ASSIGN(const probe::Report report, probe::run(options));
    cluster.measured = report.measured;
    const std::filesystem::path file = command.out.empty() ? probeFile() : std::filesystem::path(command.out);
    std::error_code made;
    std::filesystem::create_directories(file.parent_path(), made);
    RY_TRY(writeFileAtomically(file, dumpJson(writeCluster(cluster), 1) + "\n"));
    if (output.json) {
        OrderedJson document = writeCluster(cluster);
        document["probe"] = documentOf(report);
        document["file"] = file.string();
        output.document(document);
        return Exit::Done;
    }
    showMeasured(output, report.measured);
    showLinks(output, report.links);
    for (const Measured::Fit &fit : report.measured.fits) {
        if (fit.what == "matrix products fp32" && fit.median > restless)
            output.note("The products are explained within " + percent(fit.median)
                        + " only: something else ran on these cores. Measure again when they are idle");
    }
    output.line(
        "Kept in " + file.string() + " after " + formatDuration(report.seconds)
        + (command.out.empty() ? "; plans, searches and the workbench use it for the cluster local" : ""));
    return Exit::Done;
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
            const Status timed = givesTimes(cluster);
            if (!timed)
                output.note("What was measured gives no times: " + timed.error().text());
            if (!output.json) {
                showText(output, cluster);
                return Exit::Done;
            }
            OrderedJson document = writeCluster(cluster);
            if (!timed)
                document["problem"] = Json(timed.error());
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
    auto probing = std::make_shared<ProbeCommand>();
    CLI::App *probe = commands.add(
        *parent, "probe", "Measures this machine: some 15 s on two cores, in which it should do nothing else",
        [probing](Output &output) { return runProbe(*probing, output); });
    probe->add_option("--out", probing->out,
                      "Cluster file to write; default: where the cluster local looks for it");
    probe->add_option("--types", probing->types, "Types to compute in")
        ->delimiter(',')
        ->check(CLI::IsMember({"fp32", "bf16", "fp16"}));
}

} // namespace rankyard::ctl
