// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/base/file.h"
#include "engine/base/units.h"
#include "engine/cluster/build.h"
#include "engine/cluster/sources.h"

#include <algorithm>
#include <cctype>
#include <optional>
#include <set>

namespace rankyard::cluster {

namespace {

constexpr int version = 1;
constexpr double mostMeasured = 1e18; ///< FLOP/s of one core or device
constexpr const char *family = "rankyard/cluster";

constexpr DeviceKind kinds[] = {DeviceKind::Machine, DeviceKind::Package, DeviceKind::Numa, DeviceKind::Core,
                                DeviceKind::Bridge,  DeviceKind::Switch,  DeviceKind::Gpu,  DeviceKind::Nic};

/// A JSON object whose keys are taken one by one; what is left over is an error with its path.
class Fields
{
public:
    /// `told`: what `cluster show` and `cluster probe` say beside it; not read.
    static Result<Fields> of(const Json &json, const std::string &path, const std::set<std::string> &known,
                             const std::set<std::string> &told = {})
    {
        if (!json.is_object())
            return Error::make(Code::BadData, "an object is expected", path);
        for (const auto &[key, value] : json.items()) {
            if (known.contains(key) || told.contains(key))
                continue;
            std::string names;
            for (const std::string &name : known)
                names += (names.empty() ? "" : ", ") + name;
            return Error::make(Code::BadData, "unknown key", path + "." + key).withExpected(names);
        }
        return Fields(json, path);
    }

    /// No bandwidth or memory comes near the default of `most`; sums and quotients of such numbers stay finite.
    Result<double> number(const char *key, double fallback, double least = 0, double most = 1e18) const
    {
        if (!m_json->contains(key))
            return fallback;
        const Json &value = (*m_json)[key];
        if (!value.is_number() || !(value.get<double>() >= least && value.get<double>() <= most))
            return Error::make(Code::BadData, "a number is expected", m_path + "." + key)
                .withFound(dumpJson(value))
                .withExpected(formatNumber(least, 6) + " to " + formatNumber(most, 6));
        return value.get<double>();
    }

    Result<int> integer(const char *key, int fallback, int least, int most) const
    {
        if (!m_json->contains(key))
            return fallback;
        const Json &value = (*m_json)[key];
        if (!value.is_number_integer() || value.get<std::int64_t>() < least
            || value.get<std::int64_t>() > most)
            return Error::make(Code::BadData, "a whole number is expected", m_path + "." + key)
                .withFound(dumpJson(value))
                .withExpected(std::to_string(least) + " to " + std::to_string(most));
        return value.get<int>();
    }

    Result<std::string> text(const char *key, const std::string &fallback) const
    {
        if (!m_json->contains(key))
            return fallback;
        if (!(*m_json)[key].is_string())
            return Error::make(Code::BadData, "a text is expected", m_path + "." + key);
        return (*m_json)[key].get<std::string>();
    }

    Result<bool> flag(const char *key, bool fallback) const
    {
        if (!m_json->contains(key))
            return fallback;
        if (!(*m_json)[key].is_boolean())
            return Error::make(Code::BadData, "true or false is expected", m_path + "." + key);
        return (*m_json)[key].get<bool>();
    }

    bool has(const char *key) const { return m_json->contains(key); }
    const Json &at(const char *key) const { return (*m_json)[key]; }

private:
    Fields(const Json &json, std::string path) : m_json(&json), m_path(std::move(path)) {}

    const Json *m_json;
    std::string m_path;
};

Result<Device> readDevice(const Json &json, const std::string &path, const Node &node)
{
    RY_ASSIGN(const Fields fields,
              Fields::of(json, path, {"kind", "name", "parent", "model", "bytes", "cores", "bandwidth"}));
    Device device;
    RY_ASSIGN(const std::string kind, fields.text("kind", ""));
    const auto *found = std::find_if(std::begin(kinds), std::end(kinds),
                                     [&](DeviceKind each) { return kind == nameOf(each); });
    if (found == std::end(kinds))
        return Error::make(Code::BadData, "unknown kind of device", path + ".kind")
            .withFound(kind)
            .withExpected("machine, package, numa, core, bridge, switch, gpu, nic");
    device.kind = *found;
    RY_ASSIGN(device.name, fields.text("name", kind));
    RY_ASSIGN(device.model, fields.text("model", ""));
    RY_ASSIGN(device.bytes, fields.number("bytes", 0));
    RY_ASSIGN(device.cores, fields.integer("cores", 0, 0, 1 << 20));
    RY_ASSIGN(device.bandwidth, fields.number("bandwidth", 0));
    RY_ASSIGN(const std::string parent, fields.text("parent", ""));
    if (node.devices.empty()) {
        if (device.kind != DeviceKind::Machine || !parent.empty())
            return Error::make(Code::BadData, "the first device is the machine, without a parent", path);
        return device;
    }
    const auto above = std::find_if(node.devices.begin(), node.devices.end(),
                                    [&](const Device &each) { return each.name == parent; });
    if (above == node.devices.end())
        return Error::make(Code::BadData, "the parent must stand before its children", path + ".parent")
            .withFound(parent);
    if (std::any_of(node.devices.begin(), node.devices.end(),
                    [&](const Device &each) { return each.name == device.name; }))
        return Error::make(Code::BadData, "two devices of a node have one name", path + ".name")
            .withFound(device.name);
    device.parent = static_cast<int>(above - node.devices.begin());
    return device;
}

Result<Node> readNode(const Json &json, const std::string &path)
{
    RY_ASSIGN(const Fields fields,
              Fields::of(json, path, {"name", "devices", "nvlink", "nvswitch", "pcie_bandwidth"}));
    Node node;
    RY_ASSIGN(node.type, fields.text("name", "node"));
    if (!fields.has("devices") || !fields.at("devices").is_array() || fields.at("devices").empty())
        return Error::make(Code::BadData, "a list of devices is expected", path + ".devices");
    for (std::size_t i = 0; i < fields.at("devices").size(); ++i) {
        RY_ASSIGN(Device device,
                  readDevice(fields.at("devices")[i], path + ".devices[" + std::to_string(i) + "]", node));
        node.devices.push_back(std::move(device));
    }
    RY_ASSIGN(node.pcieBandwidth, fields.number("pcie_bandwidth", 0));
    if (fields.has("nvswitch")) {
        RY_ASSIGN(const Fields plane,
                  Fields::of(fields.at("nvswitch"), path + ".nvswitch", {"bandwidth", "lanes"}));
        RY_ASSIGN(node.switchBandwidth, plane.number("bandwidth", 0, 1));
        RY_ASSIGN(node.switchLanes, plane.integer("lanes", 0, 0, 1000));
    }
    const Json none = Json::array();
    const Json &links = fields.has("nvlink") ? fields.at("nvlink") : none;
    for (std::size_t i = 0; i < links.size(); ++i) {
        const std::string at = path + ".nvlink[" + std::to_string(i) + "]";
        RY_ASSIGN(const Fields link, Fields::of(links[i], at, {"between", "lanes", "bandwidth"}));
        Bond bond;
        RY_ASSIGN(bond.lanes, link.integer("lanes", 0, 0, 1000));
        RY_ASSIGN(bond.bandwidth, link.number("bandwidth", 0));
        int ends[2] = {-1, -1};
        for (std::size_t end = 0; end < 2; ++end) {
            const Json &between = link.has("between") ? link.at("between") : none;
            for (std::size_t d = 0; between.is_array() && between.size() == 2 && d < node.devices.size();
                 ++d) {
                if (between[end] == node.devices[d].name && node.devices[d].kind == DeviceKind::Gpu)
                    ends[end] = static_cast<int>(d);
            }
        }
        if (ends[0] < 0 || ends[1] < 0 || ends[0] == ends[1])
            return Error::make(Code::BadData, "two GPUs of this node are expected", at + ".between");
        bond.a = std::min(ends[0], ends[1]);
        bond.b = std::max(ends[0], ends[1]);
        node.bonds.push_back(bond);
    }
    return node;
}

Status readGroups(const Json &list, Cluster &cluster)
{
    if (!list.is_array() || list.empty())
        return Error::make(Code::BadData, "a list of nodes is expected", "nodes");
    for (std::size_t i = 0; i < list.size(); ++i) {
        const std::string path = "nodes[" + std::to_string(i) + "]";
        RY_ASSIGN(const Fields fields,
                  Fields::of(list[i], path, {"preset", "type", "count", "name"}, {"links"}));
        NodeGroup group;
        RY_ASSIGN(group.count, fields.integer("count", 1, 1, 1'000'000));
        RY_ASSIGN(group.prefix, fields.text("name", group.count > 1 ? "node-" : "node"));
        if (fields.has("preset") == fields.has("type"))
            return Error::make(Code::BadData, "either a preset or a type is expected", path);
        Node type;
        if (fields.has("preset")) {
            RY_ASSIGN(const std::string id, fields.text("preset", ""));
            RY_ASSIGN(Cluster made, makePreset(id, group.count));
            type = std::move(made.types[0]);
            if (i == 0)
                cluster.fabric = made.fabric;
        } else {
            RY_ASSIGN(type, readNode(fields.at("type"), path + ".type"));
        }
        const auto known = std::find(cluster.types.begin(), cluster.types.end(), type);
        group.type = static_cast<int>(known - cluster.types.begin());
        if (known == cluster.types.end())
            cluster.types.push_back(std::move(type));
        cluster.groups.push_back(std::move(group));
    }
    return {};
}

Result<Measured> readMeasured(const Json &json)
{
    RY_ASSIGN(const Fields fields,
              Fields::of(json, "measured", {"host", "date", "device", "ranks", "values", "fits"}));
    Measured measured;
    RY_ASSIGN(measured.host, fields.text("host", ""));
    RY_ASSIGN(measured.date, fields.text("date", ""));
    RY_ASSIGN(measured.device, fields.text("device", ""));
    RY_ASSIGN(measured.ranks, fields.integer("ranks", 0, 0, 1'000'000));
    const Json none = Json::object();
    const Json &values = fields.has("values") ? fields.at("values") : none;
    if (!values.is_object())
        return Error::make(Code::BadData, "an object is expected", "measured.values");
    for (const auto &[name, value] : values.items()) {
        if (!value.is_number() || !(value.get<double>() >= 0 && value.get<double>() <= mostMeasured))
            return Error::make(Code::BadData, "a number is expected", "measured.values." + name)
                .withFound(dumpJson(value))
                .withExpected("0 to " + formatNumber(mostMeasured, 6));
        measured.values[name] = value.get<double>();
    }
    for (std::size_t i = 0; fields.has("fits") && i < fields.at("fits").size(); ++i) {
        RY_ASSIGN(const Fields fit,
                  Fields::of(fields.at("fits")[i], "measured.fits[" + std::to_string(i) + "]",
                             {"what", "samples", "median", "worst"}));
        Measured::Fit one;
        RY_ASSIGN(one.what, fit.text("what", ""));
        RY_ASSIGN(one.samples, fit.integer("samples", 0, 0, 1'000'000'000));
        RY_ASSIGN(one.median, fit.number("median", 0));
        RY_ASSIGN(one.worst, fit.number("worst", 0));
        measured.fits.push_back(std::move(one));
    }
    return measured;
}

OrderedJson writeMeasured(const Measured &measured)
{
    OrderedJson values = OrderedJson::object(), fits = OrderedJson::array();
    for (const auto &[name, value] : measured.values)
        values[name] = value;
    for (const Measured::Fit &fit : measured.fits)
        fits.push_back(
            {{"what", fit.what}, {"samples", fit.samples}, {"median", fit.median}, {"worst", fit.worst}});
    return {{"host", measured.host},   {"date", measured.date},       {"device", measured.device},
            {"ranks", measured.ranks}, {"values", std::move(values)}, {"fits", std::move(fits)}};
}

} // namespace

Result<Cluster> readCluster(const Json &document, const std::string &name)
{
    RY_TRY(checkSchema(document, family, version, name));
    RY_ASSIGN(const Fields fields,
              Fields::of(document, name, {"schema", "name", "nodes", "fabric", "notes", "measured"},
                         {"totals", "problem", "probe", "file"}));
    Cluster cluster;
    RY_ASSIGN(cluster.name, fields.text("name", name));
    RY_TRY(readGroups(fields.has("nodes") ? fields.at("nodes") : Json(), cluster));
    if (fields.has("fabric")) {
        RY_ASSIGN(const Fields fabric,
                  Fields::of(fields.at("fabric"), "fabric",
                             {"domain_nodes", "leaf_nodes", "rails", "oversubscription"}));
        Fabric &into = cluster.fabric;
        RY_ASSIGN(into.domainNodes, fabric.integer("domain_nodes", into.domainNodes, 1, 1'000'000));
        RY_ASSIGN(into.leafNodes, fabric.integer("leaf_nodes", into.leafNodes, 0, 1'000'000));
        RY_ASSIGN(into.rails, fabric.flag("rails", into.rails));
        RY_ASSIGN(into.oversubscription, fabric.number("oversubscription", into.oversubscription, 1, 1e6));
    }
    if (fields.has("notes")) {
        for (const Json &note : fields.at("notes")) {
            if (note.is_string())
                cluster.notes.push_back(note.get<std::string>());
        }
    }
    if (fields.has("measured")) {
        RY_ASSIGN(cluster.measured, readMeasured(fields.at("measured")));
    }
    return cluster;
}

OrderedJson writeCluster(const Cluster &cluster)
{
    OrderedJson nodes = OrderedJson::array();
    for (const NodeGroup &group : cluster.groups) {
        const Node &type = cluster.types[static_cast<std::size_t>(group.type)];
        OrderedJson devices = OrderedJson::array();
        for (const Device &device : type.devices) {
            OrderedJson json{{"kind", nameOf(device.kind)}, {"name", device.name}};
            if (device.parent >= 0)
                json["parent"] = type.devices[static_cast<std::size_t>(device.parent)].name;
            if (!device.model.empty())
                json["model"] = device.model;
            if (device.bytes > 0)
                json["bytes"] = device.bytes;
            if (device.cores > 0)
                json["cores"] = device.cores;
            if (device.bandwidth > 0)
                json["bandwidth"] = device.bandwidth;
            devices.push_back(std::move(json));
        }
        OrderedJson json{
            {"name", type.type}, {"devices", std::move(devices)}, {"pcie_bandwidth", type.pcieBandwidth}};
        if (type.switchBandwidth > 0)
            json["nvswitch"] = {{"bandwidth", type.switchBandwidth}, {"lanes", type.switchLanes}};
        for (const Bond &bond : type.bonds)
            json["nvlink"].push_back({{"between",
                                       {type.devices[static_cast<std::size_t>(bond.a)].name,
                                        type.devices[static_cast<std::size_t>(bond.b)].name}},
                                      {"lanes", bond.lanes},
                                      {"bandwidth", bond.bandwidth}});
        nodes.push_back({{"name", group.prefix}, {"count", group.count}, {"type", std::move(json)}});
    }
    const Fabric &fabric = cluster.fabric;
    OrderedJson document{{"schema", std::string(family) + "/" + std::to_string(version)},
                         {"name", cluster.name},
                         {"nodes", std::move(nodes)},
                         {"fabric",
                          {{"domain_nodes", fabric.domainNodes},
                           {"leaf_nodes", fabric.leafNodes},
                           {"rails", fabric.rails},
                           {"oversubscription", fabric.oversubscription}}},
                         {"notes", cluster.notes}};
    if (cluster.measured)
        document["measured"] = writeMeasured(*cluster.measured);
    return document;
}

namespace {

/// This machine, with what a probe has measured on it, when it was this one.
Result<Cluster> measuredMachine()
{
    RY_ASSIGN(Cluster cluster, thisMachine());
    const auto file = probeFile();
    std::error_code none;
    if (!std::filesystem::exists(file, none))
        return cluster;
    const auto text = readFile(file);
    const auto document = text ? parseJson(*text, file.string()) : text.error();
    const auto probed = document ? readCluster(*document, file.string()) : document.error();
    if (!probed)
        cluster.notes.push_back("What was probed here cannot be read: " + probed.error().text());
    else if (probed->types != cluster.types || probed->groups != cluster.groups)
        cluster.notes.push_back("What was probed here was another machine: cluster probe measures this one");
    else
        cluster.measured = probed->measured;
    return cluster;
}

/// "dgx-h100 x 32" → preset and count; nothing when it does not begin with a preset's id.
std::optional<std::pair<std::string, int>> presetIn(const std::string &what)
{
    for (const Preset &preset : presets()) {
        const std::string id = preset.id;
        if (!what.starts_with(id))
            continue;
        std::string rest = what.substr(id.size());
        std::erase(rest, ' ');
        if (rest.starts_with("×")) // as clusters are called
            rest.replace(0, std::string_view("×").size(), "x");
        if (rest.empty())
            return std::pair(id, 1);
        const bool number = rest.size() > 1 && rest.size() < 9 && rest[0] == 'x'
            && std::all_of(rest.begin() + 1, rest.end(), [](unsigned char c) { return std::isdigit(c); });
        if (number)
            return std::pair(id, std::stoi(rest.substr(1)));
    }
    return std::nullopt;
}

} // namespace

std::filesystem::path probeFile() { return dataDir() / "probe.json"; }

Result<Cluster> openCluster(const std::string &what)
{
    if (what == "local")
        return measuredMachine();
    if (const auto preset = presetIn(what))
        return makePreset(preset->first, preset->second);
    std::error_code none;
    if (!std::filesystem::exists(what, none)) {
        if (what.find(':') != std::string::npos)
            return readSynthetic(what, what);
        return Error::make(Code::NotFound, "no such file, and no preset", what)
            .withExpected(presetIds() + ", local, or a file");
    }
    RY_ASSIGN(const std::string text, readFile(what));
    const std::string name = std::filesystem::path(what).stem().string();
    const std::size_t first = text.find_first_not_of(" \t\r\n");
    if (first != std::string::npos && text[first] == '{') {
        RY_ASSIGN(const Json document, parseJson(text, what));
        auto cluster = readCluster(document, what);
        if (cluster || cluster.error().where.find(what) != std::string::npos)
            return cluster;
        Error error = cluster.error(); // of a key: whose file it is in
        error.where = what + (error.where.empty() ? "" : ": " + error.where);
        return error;
    }
    const bool xml = first != std::string::npos && text[first] == '<';
    // Errors name the file as it was given; the cluster is called after it.
    RY_ASSIGN(Cluster cluster, xml ? readHwlocXml(text, what) : readTopoMatrix(text, what));
    cluster.name = name;
    return cluster;
}

} // namespace rankyard::cluster
