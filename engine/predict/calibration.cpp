// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/predict/cost.h"

#include <algorithm>
#include <cmath>

namespace rankyard::predict {

namespace {

/// Written by packaging/fit/fit.
constexpr const char *fitted =
#include "engine/predict/fitted.inc"
    ;

Status setConstant(Calibration &calibration, const std::string &name, const Json &value,
                   const std::string &where)
{
    const auto &table = constants();
    const auto *found = std::find_if(table.data(), table.data() + table.size(),
                                     [&](const Constant &c) { return name == c.name; });
    if (found == table.data() + table.size())
        return Error::make(Code::BadData, "no constant of this name", where + "." + name);
    const double number = value.is_number() ? value.get<double>() : std::nan("");
    if (!(number >= found->least && number <= found->most)) {
        return Error::make(Code::BadData, "constant out of range", where + "." + name)
            .withFound(dumpJson(value))
            .withExpected(formatNumber(found->least, 3) + " to " + formatNumber(found->most, 3));
    }
    calibration.*(found->value) = number;
    return {};
}

Status setAll(Calibration &calibration, const Json &object, const std::string &where)
{
    if (!object.is_object())
        return Error::make(Code::BadData, "an object of constants is wanted", where);
    for (const auto &[name, value] : object.items())
        RY_TRY(setConstant(calibration, name, value, where));
    return {};
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
        {"attention", &C::attention, "share of the peak of fused attention", 0.05, 1.5},
        {"attention_backward", &C::attentionBackward, "backward's rate against forward's", 0.2, 1.5},
        {"head_half", &C::headHalf, "head width at which attention reaches half", 0, 256},
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

Result<std::vector<Calibration>> readCalibrations(const Json &document, const std::string &name)
{
    RY_TRY(checkSchema(document, "rankyard/calibration", 1, name));
    Calibration shared;
    shared.source = textOf(document, "source");
    shared.date = textOf(document, "date");
    if (const auto found = document.find("shared"); found != document.end())
        RY_TRY(setAll(shared, *found, name + ".shared"));
    std::vector<Calibration> all;
    const auto devices = document.find("devices");
    if (devices == document.end() || !devices->is_object())
        return Error::make(Code::BadData, "devices is missing", name);
    for (const auto &[family, values] : devices->items()) {
        Calibration one = shared;
        one.family = family;
        RY_TRY(setAll(one, values, name + ".devices." + family));
        all.push_back(std::move(one));
    }
    return all;
}

OrderedJson writeCalibrations(const std::vector<Calibration> &calibrations)
{
    const Calibration plain;
    OrderedJson devices = OrderedJson::object();
    for (const Calibration &calibration : calibrations) {
        OrderedJson values = OrderedJson::object();
        for (const Constant &constant : constants()) {
            if (calibration.*(constant.value) != plain.*(constant.value))
                values[constant.name] = calibration.*(constant.value);
        }
        devices[calibration.family] = std::move(values);
    }
    return {{"schema", "rankyard/calibration/1"},
            {"source", calibrations.empty() ? "" : calibrations.front().source},
            {"date", calibrations.empty() ? "" : calibrations.front().date},
            {"devices", std::move(devices)}};
}

const std::vector<Calibration> &fittedCalibrations()
{
    static const std::vector<Calibration> all = [] {
        auto document = parseJson(fitted, "fitted constants");
        auto read = document ? readCalibrations(*document, "fitted") : document.error();
        return read ? std::move(read).value() : std::vector<Calibration>{};
    }();
    return all;
}

Result<Calibration> calibrationFor(const std::string &family)
{
    std::string known;
    for (const Calibration &calibration : fittedCalibrations()) {
        if (calibration.family == family)
            return calibration;
        known += (known.empty() ? "" : ", ") + calibration.family;
    }
    return Error::make(Code::NotFound, "no constants for this device", family)
        .withExpected(known)
        .withHint("cluster probe measures it");
}

} // namespace rankyard::predict
