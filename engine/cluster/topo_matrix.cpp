// SPDX-License-Identifier: GPL-3.0-or-later
// `nvidia-smi topo -m`: a matrix of codes between GPUs and NICs, from which the tree that explains it is made again.
#include "engine/cluster/build.h"
#include "engine/cluster/catalogue.h"
#include "engine/cluster/sources.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <sstream>

namespace rankyard::cluster {

namespace {

/// NVLink 2 to 4: 25 GB/s a lane and direction; 5: 50 (NVIDIA's architecture papers).
constexpr double laneBandwidth = 25e9;

struct Cell {
    Path path = Path::Sockets;
    int lanes = 0;
};

struct Matrix {
    std::vector<std::string> names;
    std::vector<std::vector<Cell>> cells;
    std::map<std::string, int> numa;         ///< by device name
    std::map<std::string, std::string> real; ///< NIC0 → mlx5_0
};

std::string withoutColours(std::string_view text)
{
    std::string plain;
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (text[i] == '\x1b' && i + 1 < text.size() && text[i + 1] == '[') {
            i += 2;
            while (i < text.size() && !(text[i] >= '@' && text[i] <= '~'))
                ++i;
        } else if (text[i] != '\r') {
            plain += text[i];
        }
    }
    return plain;
}

std::vector<std::string> tokensOf(const std::string &line)
{
    std::istringstream in(line);
    std::vector<std::string> tokens;
    for (std::string token; in >> token;)
        tokens.push_back(token);
    return tokens;
}

std::optional<Cell> cellOf(const std::string &code)
{
    static const std::map<std::string, Path> codes = {
        {"X", Path::Self},         {"PIX", Path::OneSwitch}, {"PXB", Path::Switches},
        {"PHB", Path::HostBridge}, {"NODE", Path::NumaNode}, {"SYS", Path::Sockets},
        {"SOC", Path::Sockets},
    };
    if (const auto found = codes.find(code); found != codes.end())
        return Cell{found->second, 0};
    const bool number = code.size() > 2 && code.size() < 5
        && std::all_of(code.begin() + 2, code.end(), [](char c) { return c >= '0' && c <= '9'; });
    if (code.starts_with("NV") && number)
        return Cell{Path::NvLink, std::stoi(code.substr(2))};
    return std::nullopt;
}

bool isGpu(const std::string &name) { return name.starts_with("GPU"); }

Error bad(std::string what, const std::string &name, int line)
{
    return Error::make(Code::BadData, std::move(what), name + ":" + std::to_string(line))
        .withHint("It must be the text of nvidia-smi topo -m, from its header line to its last row");
}

Status readRow(Matrix &matrix, const std::vector<std::string> &tokens, const std::string &name, int line)
{
    const std::size_t n = matrix.names.size();
    if (tokens.size() < n + 1)
        return bad("the row of " + tokens[0] + " is too short", name, line);
    std::vector<Cell> row;
    for (std::size_t i = 0; i < n; ++i) {
        const auto cell = cellOf(tokens[i + 1]);
        if (!cell)
            return bad("unknown kind of link", name, line).withFound(tokens[i + 1]);
        row.push_back(*cell);
    }
    if (row[matrix.cells.size()].path != Path::Self)
        return bad("a device is not itself", name, line).withFound(tokens[matrix.cells.size() + 1]);
    matrix.cells.push_back(std::move(row));
    // "0-63  0  N/A": cores, then the NUMA node; "N/A" where there is none.
    if (tokens.size() > n + 2 && !tokens[n + 2].empty()
        && std::isdigit(static_cast<unsigned char>(tokens[n + 2][0])))
        matrix.numa[tokens[0]] = std::atoi(tokens[n + 2].c_str());
    return {};
}

Result<Matrix> readMatrix(const std::string &text, const std::string &name)
{
    Matrix matrix;
    std::istringstream in(text);
    int line = 0;
    for (std::string row; std::getline(in, row);) {
        ++line;
        const std::vector<std::string> tokens = tokensOf(row);
        if (tokens.empty())
            continue;
        if (matrix.names.empty()) {
            if (!isGpu(tokens[0]) || (tokens.size() > 1 && cellOf(tokens[1])))
                continue; // a prompt or a time stamp above it
            for (const std::string &token : tokens) {
                if (token == "CPU" || token == "NUMA")
                    break;
                matrix.names.push_back(token);
            }
        } else if (matrix.cells.size() < matrix.names.size()) {
            if (tokens[0] != matrix.names[matrix.cells.size()])
                return bad("rows are not in the order of the columns", name, line).withFound(tokens[0]);
            RY_TRY(readRow(matrix, tokens, name, line));
        } else if (tokens.size() == 2 && tokens[0].starts_with("NIC") && tokens[0].ends_with(":")) {
            matrix.real[tokens[0].substr(0, tokens[0].size() - 1)] = tokens[1];
        }
    }
    if (matrix.names.empty())
        return Error::make(Code::BadData, "there is no header with GPUs", name)
            .withExpected("the text of nvidia-smi topo -m; or cluster JSON, or hwloc's XML");
    if (matrix.cells.size() < matrix.names.size())
        return bad("rows are missing", name, line)
            .withFound(std::to_string(matrix.cells.size()))
            .withExpected(std::to_string(matrix.names.size()));
    for (std::size_t i = 0; i < matrix.names.size(); ++i) {
        for (std::size_t j = 0; j < i; ++j) {
            const Cell &a = matrix.cells[i][j];
            const Cell &b = matrix.cells[j][i];
            if (a.path != b.path || a.lanes != b.lanes)
                return Error::make(Code::BadData, "the matrix is not symmetric", name)
                    .withFound(matrix.names[i] + " – " + matrix.names[j]);
        }
    }
    return matrix;
}

/// Sets of devices that are joined by `path` or something closer.
std::vector<int> joined(const Matrix &matrix, Path path)
{
    const std::size_t n = matrix.names.size();
    std::vector<int> set(n);
    std::iota(set.begin(), set.end(), 0);
    const auto merge = [&](std::size_t a, std::size_t b) {
        const int from = std::max(set[a], set[b]);
        const int to = std::min(set[a], set[b]);
        std::replace(set.begin(), set.end(), from, to);
    };
    for (std::size_t i = 0; i < n; ++i) {
        for (std::size_t j = 0; j < i; ++j) {
            const Path between = matrix.cells[i][j].path;
            // NVLink hides what PCIe is like between the two.
            if (between >= Path::OneSwitch && between <= path)
                merge(i, j);
            if (path == Path::NumaNode) {
                const auto a = matrix.numa.find(matrix.names[i]);
                const auto b = matrix.numa.find(matrix.names[j]);
                if (a != matrix.numa.end() && b != matrix.numa.end() && a->second == b->second)
                    merge(i, j);
            }
        }
    }
    return set;
}

/// The tree: a NUMA node, host bridge or switch for each set of more than one, in this order downwards.
void growTree(Node &node, const Matrix &matrix, std::vector<int> &deviceOf)
{
    const int machine = add(node, DeviceKind::Machine, "machine", -1);
    const struct {
        Path path;
        DeviceKind kind;
        const char *name;
    } levels[] = {{Path::NumaNode, DeviceKind::Numa, "NUMA "},
                  {Path::HostBridge, DeviceKind::Bridge, "host bridge "},
                  {Path::Switches, DeviceKind::Switch, "PCIe root switch "},
                  {Path::OneSwitch, DeviceKind::Switch, "PCIe switch "}};
    std::vector<int> parent(matrix.names.size(), machine);
    const std::vector<int> closest = joined(matrix, Path::OneSwitch);
    for (const auto &level : levels) {
        const std::vector<int> set = joined(matrix, level.path);
        // A wider set that holds no more than one switch adds nothing to it.
        const auto isOneSwitch = [&](std::size_t at) {
            for (std::size_t other = 0; other < set.size(); ++other) {
                if (set[other] == set[at] && closest[other] != closest[at])
                    return false;
            }
            return level.path != Path::OneSwitch;
        };
        std::map<int, int> made;
        for (std::size_t i = 0; i < set.size(); ++i) {
            const bool alone = std::count(set.begin(), set.end(), set[i]) < 2;
            const bool numa = level.kind == DeviceKind::Numa && matrix.numa.contains(matrix.names[i]);
            // Under a root switch everybody stands behind a switch of its own, also who is alone there.
            const bool leaf = level.path == Path::OneSwitch
                && node.devices[static_cast<std::size_t>(parent[i])].kind == DeviceKind::Switch;
            if (!numa && !leaf && (alone || isOneSwitch(i)))
                continue;
            const auto [found, fresh] = made.try_emplace(set[i], 0);
            if (fresh)
                found->second =
                    add(node, level.kind, level.name + std::to_string(made.size() - 1), parent[i]);
            parent[i] = found->second;
        }
    }
    for (std::size_t i = 0; i < matrix.names.size(); ++i) {
        const auto real = matrix.real.find(matrix.names[i]);
        std::string name = real == matrix.real.end() ? matrix.names[i] : real->second;
        if (isGpu(name) && name.size() > 3)
            name = "GPU " + name.substr(3);
        deviceOf[i] = add(node, isGpu(matrix.names[i]) ? DeviceKind::Gpu : DeviceKind::Nic, name, parent[i]);
    }
}

void linkGpus(Node &node, const Matrix &matrix, const std::vector<int> &deviceOf, double lane)
{
    int lanes = -1;
    int pairs = 0;
    int gpus = 0;
    for (std::size_t i = 0; i < matrix.names.size(); ++i) {
        gpus += isGpu(matrix.names[i]) ? 1 : 0;
        for (std::size_t j = 0; j < i; ++j) {
            const Cell &cell = matrix.cells[i][j];
            if (cell.path != Path::NvLink)
                continue;
            ++pairs;
            lanes = lanes < 0 || lanes == cell.lanes ? cell.lanes : 0;
            node.bonds.push_back({deviceOf[j], deviceOf[i], cell.lanes, cell.lanes * lane});
        }
    }
    // The same to everybody, among more GPUs than have cables for that: a switch.
    if (gpus > 4 && pairs == gpus * (gpus - 1) / 2 && lanes > 0) {
        node.bonds.clear();
        node.switchLanes = lanes;
        node.switchBandwidth = lanes * lane;
    }
}

} // namespace

Result<Cluster> readTopoMatrix(std::string_view text, const std::string &name, std::string_view gpu)
{
    RY_ASSIGN(const Matrix matrix, readMatrix(withoutColours(text), name));
    Node node;
    node.type = "node";
    std::vector<int> deviceOf(matrix.names.size());
    growTree(node, matrix, deviceOf);
    const GpuModel *model = gpu.empty() ? nullptr : findGpu(gpu);
    const bool fifth = model && std::string_view(model->name).find("B200") != std::string_view::npos;
    linkGpus(node, matrix, deviceOf, fifth ? 2 * laneBandwidth : laneBandwidth);
    for (const int device : node.of(DeviceKind::Gpu)) {
        if (!model)
            continue;
        node.devices[static_cast<std::size_t>(device)].model = model->name;
        node.devices[static_cast<std::size_t>(device)].bytes = model->memoryBytes;
    }
    node.pcieBandwidth = model ? model->pcieBandwidth : 0;
    Cluster cluster;
    cluster.name = name;
    if (!model)
        cluster.notes.push_back("The matrix does not say which GPU it is; NVLink is taken as 25 GB/s a lane");
    for (std::size_t i = 0; i < matrix.names.size(); ++i) {
        for (std::size_t j = 0; j < i; ++j) {
            const Path made = linkIn(node, deviceOf[i], deviceOf[j]).path;
            const Path given = matrix.cells[i][j].path;
            if (std::string(codeOf(made)) != codeOf(given))
                cluster.notes.push_back(matrix.names[j] + " – " + matrix.names[i] + " is " + codeOf(given)
                                        + ", which no tree explains together with the rest");
        }
    }
    cluster.types.push_back(std::move(node));
    cluster.groups.push_back({"node", 1, 0});
    return cluster;
}

} // namespace rankyard::cluster
