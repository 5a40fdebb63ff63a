// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/predict/cost.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace rankyard::predict {

namespace {

/// Written by packaging/fit/fit.
constexpr const char *fitted =
#include "engine/predict/fitted.inc"
    ;

const Constant *findConstant(const std::string &name)
{
    for (const Constant &constant : constants()) {
        if (name == constant.name)
            return &constant;
    }
    return nullptr;
}

/// Calls put(constant, number) for each member of an object of constants; `inRange`: numbers are values of the constants, else factors.
template<typename Put>
Status readEach(const Json &object, const std::string &where, bool inRange, Put put)
{
    if (!object.is_object())
        return Error::make(Code::BadData, "an object of constants is wanted", where);
    for (const auto &[name, value] : object.items()) {
        const Constant *constant = findConstant(name);
        if (!constant)
            return Error::make(Code::BadData, "no constant of this name", where + "." + name);
        const double number = value.is_number() ? value.template get<double>() : std::nan("");
        const double least = inRange ? constant->least : 1e-3;
        const double most = inRange ? constant->most : 1e3;
        if (!(number >= least && number <= most)) {
            return Error::make(Code::BadData, "constant out of range", where + "." + name)
                .withFound(dumpJson(value))
                .withExpected(formatNumber(least, 3) + " to " + formatNumber(most, 3));
        }
        put(*constant, number);
    }
    return {};
}

Status setAll(Calibration &calibration, const Json &object, const std::string &where)
{
    return readEach(object, where, true,
                    [&](const Constant &constant, double number) { calibration.*(constant.value) = number; });
}

std::string textOf(const Json &document, const char *key)
{
    const auto found = document.find(key);
    return found != document.end() && found->is_string() ? found->get<std::string>() : std::string();
}

} // namespace

const std::vector<Constant> &constants()
{
    using C = Calibration;
    static const std::vector<Constant> all = {
        {"gemm", &C::gemm, "share of the 16-bit peak that a large product reaches", 0.05, 1},
        {"gemm_fp8", &C::gemmFp8, "share of the 8-bit peak", 0.05, 1},
        {"gemm_fp4", &C::gemmFp4, "share of the 4-bit peak", 0.02, 1},
        {"operands", &C::operands, "operand traffic not hidden by arithmetic", 0, 5},
        {"wave", &C::wave, "idle share of the last wave of tiles", 0, 3},
        {"alignment", &C::alignment, "slowdown of a product, each power of two its sides lack of 64", 0, 1},
        {"attention", &C::attention, "share of the peak of fused attention", 0.05, 1.5},
        {"attention_fp32", &C::attentionFp32, "that share at 32 bits against 16", 0.1, 10},
        {"attention_backward", &C::attentionBackward, "backward's rate against forward's", 0.2, 1.5},
        {"head_half", &C::headHalf, "head width at which attention reaches half", 0, 256},
        {"attention_tile", &C::attentionTile, "keys computed beyond each query's own, causal", 0, 1024},
        {"exponential", &C::exponential, "seconds of an exponential beyond its traffic", 0, 1e-6},
        {"scores", &C::scores, "passes of 2 bytes over the scores of unfused attention", 0, 100},
        {"misaligned", &C::misaligned, "slowdown of heads whose width is no multiple of 8", 1, 50},
        {"memory", &C::memory, "share of the memory bandwidth", 0.1, 1},
        {"traffic", &C::traffic, "element-wise traffic against one read and write each", 0, 10},
        {"kernel", &C::kernel, "seconds between two kernels", 0, 1e-3},
        {"host", &C::host, "seconds of the host for a kernel", 0, 1e-3},
        {"island", &C::island, "share of the line rate inside an island", 0.02, 1.2},
        {"network", &C::network, "share of the line rate between nodes", 0.01, 1.2},
        {"island_latency", &C::islandLatency, "seconds of a collective inside an island", 0, 1e-2},
        {"network_latency", &C::networkLatency, "seconds for each doubling of nodes", 0, 1e-2},
        {"hide_tensor", &C::hideTensor, "share of the tensor group's transfers under computation", 0, 1},
        {"hide_data", &C::hideData, "share of computation over the data group's transfers", 0, 1.5},
        {"hide_pipeline", &C::hidePipeline, "share of sends between stages under computation", 0, 1},
        {"contention", &C::contention, "slowdown of computation by hidden transfers", 0, 2},
        {"step", &C::step, "seconds a step takes whatever its size", 0, 10},
        {"straggler", &C::straggler, "slowest rank, each doubling of nodes", 0, 0.5},
        {"spread", &C::spread, "ln of the 80 % interval's upper bound over the prediction", 0, 3},
        {"peak", &C::peak, "FLOP/s at 16 bits, measured; 0: data sheet", 0, 1e18},
        {"memory_bandwidth", &C::memoryBandwidth, "bytes/s, measured; 0: data sheet", 0, 1e15},
    };
    return all;
}

Result<Calibrations> readCalibrations(const Json &document, const std::string &name)
{
    RY_TRY(checkSchema(document, "rankyard/calibration", 1, name));
    Calibration shared;
    shared.source = textOf(document, "source");
    shared.date = textOf(document, "date");
    if (const auto found = document.find("shared"); found != document.end())
        RY_TRY(setAll(shared, *found, name + ".shared"));
    Calibrations all;
    const auto devices = document.find("devices");
    if (devices == document.end() || !devices->is_object())
        return Error::make(Code::BadData, "devices is missing", name);
    for (const auto &[family, values] : devices->items()) {
        Calibration one = shared;
        one.family = family;
        RY_TRY(setAll(one, values, name + ".devices." + family));
        all.devices.push_back(std::move(one));
    }
    const Json traits = document.value("traits", Json::object());
    if (!traits.is_object())
        return Error::make(Code::BadData, "traits is no object", name);
    for (const auto &[trait, factors] : traits.items()) {
        Trait one{trait};
        RY_TRY(
            readEach(factors, name + ".traits." + trait, false, [&](const Constant &constant, double factor) {
                one.factors.emplace_back(constant.value, factor);
            }));
        all.traits.push_back(std::move(one));
    }
    return all;
}

OrderedJson writeCalibrations(const Calibrations &calibrations)
{
    const Calibration plain;
    OrderedJson devices = OrderedJson::object();
    for (const Calibration &calibration : calibrations.devices) {
        OrderedJson values = OrderedJson::object();
        for (const Constant &constant : constants()) {
            if (calibration.*(constant.value) != plain.*(constant.value))
                values[constant.name] = calibration.*(constant.value);
        }
        devices[calibration.family] = std::move(values);
    }
    OrderedJson traits = OrderedJson::object();
    for (const Trait &trait : calibrations.traits) {
        OrderedJson factors = OrderedJson::object();
        for (const auto &[value, factor] : trait.factors) {
            for (const Constant &constant : constants()) {
                if (constant.value == value)
                    factors[constant.name] = factor;
            }
        }
        traits[trait.name] = std::move(factors);
    }
    const bool any = !calibrations.devices.empty();
    return {{"schema", "rankyard/calibration/1"},
            {"source", any ? calibrations.devices.front().source : ""},
            {"date", any ? calibrations.devices.front().date : ""},
            {"devices", std::move(devices)},
            {"traits", std::move(traits)}};
}

const Calibrations &fittedCalibrations()
{
    static const Calibrations all = [] {
        auto document = parseJson(fitted, "fitted constants");
        auto read = document ? readCalibrations(*document, "fitted") : document.error();
        return read ? std::move(read).value() : Calibrations{};
    }();
    return all;
}

Calibration asProgrammed(Calibration calibration)
{
    calibration.hideTensor = 1; // what stands beside computation runs under it
    calibration.hidePipeline =
        0.5; // sends have lanes of their own: one of the two ways of a micro-batch waits
    calibration.hideData = 1;
    return calibration;
}

Result<Calibration> calibrationOf(const cluster::Measured &measured)
{
    static constexpr std::array absolute{"peak_fp32",        "peak_bf16",      "peak_fp16",
                                         "memory_bandwidth", "link_bandwidth", "team"};
    // Nothing that measured programs do not show: no software around them, nothing hidden that they do not hide.
    Calibration one;
    one.family = "cpu";
    one.source = "probe of " + measured.host;
    one.date = measured.date;
    one.gemm = one.memory = one.island = 1;
    one.operands = one.wave = one.alignment = one.kernel = one.host = one.islandLatency = one.step =
        one.straggler = 0;
    one.hideTensor = one.hideData = one.hidePipeline = one.contention = 0;
    for (const auto &[name, value] : measured.values) {
        if (std::find(absolute.begin(), absolute.end(), name) != absolute.end()) {
            if (!(value > 0))
                return Error::make(Code::BadData, "out of range", "measured.values." + name)
                    .withFound(std::to_string(value))
                    .withExpected("above 0");
            continue;
        }
        const auto &all = constants();
        const auto found =
            std::find_if(all.begin(), all.end(), [&](const Constant &c) { return name == c.name; });
        if (found == all.end())
            return Error::make(Code::BadData, "no such constant", "measured.values." + name);
        if (value < found->least || value > found->most)
            return Error::make(Code::BadData, "out of range", "measured.values." + name)
                .withFound(std::to_string(value))
                .withExpected(std::to_string(found->least) + " to " + std::to_string(found->most));
        one.*(found->value) = value;
    }
    return one;
}

Result<Calibration> Calibrations::of(const std::string &family, const std::vector<std::string> &with) const
{
    std::string known;
    for (const Calibration &calibration : devices) {
        known += (known.empty() ? "" : ", ") + calibration.family;
        if (calibration.family != family)
            continue;
        Calibration one = calibration;
        for (const Trait &trait : traits) {
            if (std::find(with.begin(), with.end(), trait.name) == with.end())
                continue;
            for (const auto &[value, factor] : trait.factors)
                one.*value *= factor;
        }
        for (const Constant &constant : constants())
            one.*(constant.value) = std::clamp(one.*(constant.value), constant.least, constant.most);
        return one;
    }
    return Error::make(Code::NotFound, "no constants for this device", family)
        .withExpected(known)
        .withHint(
            "Another cluster (--cluster, or the job's), whose devices are among those: nobody has published runs on this one");
}

} // namespace rankyard::predict
