// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/predict/conventions.h"

#include <algorithm>
#include <cmath>

namespace rankyard::predict {

double zeroPaperStates(double params, double ranks, int stage, double paramBytes, double gradBytes,
                       double optimizerBytes)
{
    const auto share = [&](int from) { return stage >= from ? 1 / ranks : 1.0; };
    return params * (paramBytes * share(3) + gradBytes * share(2) + optimizerBytes * share(1));
}

double zeroPaperTraffic(int stage) { return stage == 3 ? 3 : 2; }

double megatronStateBytes(StateRegime regime, double shards)
{
    const double whole = regime == StateRegime::Fp16 ? 20 : regime == StateRegime::Bf16 ? 18 : 16;
    const double kept = regime == StateRegime::Fp16 ? 4 : regime == StateRegime::Bf16 ? 6 : 8;
    return shards > 0 ? kept + (whole - kept) / shards : whole;
}

double megatronLastStageParams(const Shape &shape, std::int64_t tp, std::int64_t pp)
{
    Shape bare = shape; // the biases that tensor ranks share are in none of its shards but whole
    bare.biases = false;
    const double h = static_cast<double>(shape.hidden);
    const double matrices = static_cast<double>(attentionParams(bare) + denseMlpParams(bare));
    const double whole = shape.biases ? static_cast<double>(normParams(shape)) + 2 * h
                                      : static_cast<double>(normParams(shape));
    const double cut = shape.biases
        ? static_cast<double>(attentionParams(shape) + denseMlpParams(shape)) - matrices - 2 * h
        : 0;
    const double layer = (matrices + cut) / static_cast<double>(tp) + whole;
    const double table =
        static_cast<double>(tableParams(shape, paddedVocab(shape.vocab, tp))) / static_cast<double>(tp);
    const double tables = pp == 1 && !shape.tied ? 2 : 1;
    const double positions = pp == 1 && shape.positions ? static_cast<double>(shape.seq) * h : 0;
    return static_cast<double>(shape.layers) / static_cast<double>(pp) * layer + tables * table + positions
        + static_cast<double>(normParams(shape)) / 2;
}

double korthikantiCore(const Korthikanti &k) { return 5 * k.heads * k.seq / k.hidden; }

double korthikantiActivations(const Korthikanti &k)
{
    const double sbh = k.seq * k.micro * k.hidden;
    const double core = k.selective ? 0 : korthikantiCore(k) / k.tp;
    const double rest = k.sequenceParallel ? 34 / k.tp : 10 + 24 / k.tp;
    const double flight = k.interleave > 1 ? 1 + (k.pp - 1) / (k.pp * k.interleave) : 1;
    return k.layers * sbh * (rest + core) * flight;
}

double korthikantiStates(const Korthikanti &k)
{
    return 18 * 12 * k.hidden * k.hidden * k.layers / (k.tp * k.pp);
}

double korthikantiOutputs(const Korthikanti &k) { return 2 * k.seq * k.micro * k.hidden * k.pp; }

DeepSpeedNeed deepspeedZero2(const DeepSpeedCase &c)
{
    const double n = c.gpusPerNode * c.nodes;
    DeepSpeedNeed need;
    need.device = c.offloadOptimizer ? 2 * c.params
        : c.before5099               ? 4 * c.params + 16 * c.params / n
                                     : 2 * c.params + 18 * c.params / n;
    need.host = c.params * std::max(4 * c.gpusPerNode, c.offloadOptimizer ? 16.0 : 0.0) * c.buffers;
    return need;
}

DeepSpeedNeed deepspeedZero3(const DeepSpeedCase &c)
{
    const double n = c.gpusPerNode * c.nodes;
    const double share = 1 / c.nodes; // of all devices, those of this host
    DeepSpeedNeed need;
    need.device = 4 * c.largestLayer;
    if (!c.offloadOptimizer) {
        need.device += 18 * c.params / n;
        need.host = c.zeroInit ? c.largestLayer * 4 * c.gpusPerNode : c.params * 4 * c.gpusPerNode;
    } else {
        const double bytes = c.offloadParams ? 18 : 16;
        need.device += c.offloadParams ? 0 : 2 * c.params / n;
        need.host =
            c.zeroInit ? bytes * c.params * share : c.params * std::max(4 * c.gpusPerNode, bytes * share);
    }
    need.host *= c.buffers;
    return need;
}

namespace {

constexpr double GiB = 1024.0 * 1024 * 1024;
constexpr double MiB = 1024.0 * 1024;

bool has(const std::string &text, std::string_view part) { return text.find(part) != std::string::npos; }

double number(const Json &inputs, const char *key, double otherwise = 0)
{
    const auto found = inputs.find(key);
    return found != inputs.end() && found->is_number() ? found->get<double>() : otherwise;
}

/// In the row's unit; nothing for one that is not known.
std::optional<double> inUnit(double bytes, const std::string &unit)
{
    if (unit.starts_with("GiB"))
        return bytes / GiB;
    if (unit.starts_with("MiB"))
        return has(unit, ">>20") ? std::floor(bytes / MiB) : bytes / MiB;
    if (unit.starts_with("GB") || unit.starts_with("1e9"))
        return bytes / 1e9;
    for (const char *plain : {"bytes", "parameters", "x Psi", "percent", "fraction", "-", "ms"}) {
        if (unit.starts_with(plain))
            return bytes;
    }
    return std::nullopt;
}

Korthikanti korthikantiOf(const Json &in)
{
    Korthikanti k;
    k.layers = number(in, "layers");
    k.hidden = number(in, "hidden");
    k.heads = number(in, "heads");
    k.seq = number(in, "seq");
    k.micro = number(in, "micro_batch", 1);
    k.tp = number(in, "tp", 1);
    k.pp = number(in, "pp", 1);
    k.interleave = number(in, "vpp", 1);
    k.sequenceParallel = number(in, "sp") > 0;
    k.selective = in.value("recompute", "") == "selective";
    return k;
}

DeepSpeedCase deepspeedOf(const Json &in, const std::string &quantity)
{
    DeepSpeedCase c;
    c.params = number(in, "params");
    c.largestLayer = number(in, "largest_layer");
    c.nodes = number(in, "nodes", 1);
    c.gpusPerNode = number(in, "gpus_per_node", number(in, "total_gpus", 1) / c.nodes);
    c.buffers = number(in, "buffer_factor", 1.5);
    c.offloadParams = in.value("offload_param", "none") == "cpu" || has(quantity, "param+opt offload");
    c.offloadOptimizer = in.value("offload_optimizer", "none") == "cpu" || has(quantity, "optimizer offload")
        || has(quantity, "opt offload") || has(quantity, "ZeRO-2 per CPU");
    c.zeroInit = number(in, "zero_init", 1) > 0;
    c.before5099 = has(quantity, "OLD formula");
    return c;
}

Shape gptOf(const Json &in)
{
    const auto whole = [&](const char *key, double otherwise = 0) {
        return static_cast<std::int64_t>(number(in, key, otherwise));
    };
    Shape s;
    s.layers = whole("layers");
    s.hidden = whole("hidden");
    s.heads = whole("heads", 1);
    s.kvHeads = whole("kv_heads", static_cast<double>(s.heads));
    s.headDim = s.heads > 0 ? s.hidden / s.heads : 0;
    s.ffn = whole("ffn", 4 * static_cast<double>(s.hidden));
    s.seq = whole("seq");
    s.vocab = whole("vocab", 50257);
    s.gated = in.value("swiglu", false);
    s.tied = !in.value("untied", false) && in.value("tied", true);
    return s;
}

std::optional<double> deepspeedRow(const Json &in, const std::string &q)
{
    const DeepSpeedCase c = deepspeedOf(in, q);
    if (has(q, "largest layer memory"))
        return 4 * c.largestLayer;
    if (has(q, "ZeRO-2"))
        return has(q, "per CPU") ? deepspeedZero2(c).host : deepspeedZero2(c).device;
    if (has(q, "ZeRO-3"))
        return has(q, "per CPU") ? deepspeedZero3(c).host : deepspeedZero3(c).device;
    return std::nullopt;
}

std::optional<double> korthikantiRow(const Json &in, const std::string &q)
{
    const Korthikanti k = korthikantiOf(in);
    if (has(q, "parameters + optimizer state"))
        return korthikantiStates(k);
    if (has(q, "activations per GPU"))
        return korthikantiActivations(k);
    if (has(q, "5as/h"))
        return korthikantiCore(k);
    if (has(q, "activation saving of selective"))
        return 100 * korthikantiCore(k) / (34 + korthikantiCore(k));
    if (has(q, "extra FLOPs of selective"))
        return 100 * k.seq / (6 * k.hidden);
    if (has(q, "output-tensor deallocation"))
        return korthikantiOutputs(k);
    return std::nullopt;
}

std::optional<double> megatronRow(const Json &in, const std::string &q)
{
    if (has(q, "bytes per parameter")) {
        const std::string regime = in.value("regime", "");
        const StateRegime kind = regime.starts_with("fp16") ? StateRegime::Fp16
            : regime.starts_with("bf16")                    ? StateRegime::Bf16
                                                            : StateRegime::Fp32;
        return megatronStateBytes(kind, number(in, "d"));
    }
    if (has(q, "theoretical weight+optimizer") && in.contains("dp"))
        return megatronStateBytes(StateRegime::Bf16, number(in, "dp")) * number(in, "params_per_shard");
    if (has(q, "resident torch-allocated")) {
        const StateRegime kind = in.value("fp16", false) ? StateRegime::Fp16 : StateRegime::Bf16;
        const double shards = in.value("distopt", false) ? number(in, "dp", 1) : 0;
        return megatronStateBytes(kind, shards)
            * megatronLastStageParams(gptOf(in), static_cast<std::int64_t>(number(in, "tp", 1)),
                                      static_cast<std::int64_t>(number(in, "pp", 1)));
    }
    return std::nullopt;
}

std::optional<double> countRow(const Json &in, const std::string &q)
{
    if (has(q, "embedding parameters"))
        return number(in, "v") * number(in, "h");
    const double h = number(in, "h");
    if (has(q, "one layer 12h^2"))
        return 12 * h * h + 13 * h;
    if (has(q, "18 B/param"))
        return 18 * (number(in, "layers_per_gpu") * (12 * h * h + 13 * h) + number(in, "v") * h)
            / number(in, "tp", 1);
    if (has(q, "parameter count") || has(q, "parameters per shard")) {
        Shape shape = gptOf(in);
        if (in.contains("kv_heads")) { // Llama
            shape.gated = true;
            shape.biases = false;
            shape.positions = false;
        }
        return static_cast<double>(paramsOf(shape));
    }
    return std::nullopt;
}

/// By what the quantity says and the inputs hold, never by the id or the source.
std::optional<double> valueOf(const Json &in, const std::string &q)
{
    if (q.starts_with("measured") || q.starts_with("real memory"))
        return std::nullopt;
    if (has(q, "model-state memory"))
        return zeroPaperStates(number(in, "params"), number(in, "dp"), static_cast<int>(number(in, "zero")),
                               number(in, "bytes_param", 2), number(in, "bytes_grad", 2),
                               number(in, "K_optimizer", 12));
    if (has(q, "communication volume"))
        return zeroPaperTraffic(static_cast<int>(number(in, "zero")));
    for (const auto row : {deepspeedRow, korthikantiRow, megatronRow, countRow}) {
        if (const auto value = row(in, q))
            return value;
    }
    return std::nullopt;
}

} // namespace

Result<std::vector<MemoryRow>> readMemoryTable(const Csv &csv, const std::string &name)
{
    for (const char *column : {"quantity", "inputs", "value", "unit"}) {
        if (!csv.has(column))
            return Error::make(Code::BadData, "no table of memory values: a column is missing", name)
                .withExpected(column);
    }
    std::vector<MemoryRow> rows;
    for (std::size_t i = 0; i < csv.rows(); ++i) {
        MemoryRow row{csv.cell(i, "id"), csv.cell(i, "source"), csv.cell(i, "quantity"), csv.cell(i, "unit")};
        const auto inputs = parseJson(csv.cell(i, "inputs"), "inputs");
        const auto value = numberFrom(csv.cell(i, "value"));
        if (!value)
            row.skipped = faultOf("value", csv.cell(i, "value"));
        else if (!inputs || !inputs->is_object())
            row.skipped = "inputs is not a JSON object";
        else if (const auto found = valueOf(*inputs, row.quantity); !found || !std::isfinite(*found))
            row.skipped = "no formula for this quantity";
        else if (row.predicted = inUnit(*found, row.unit); !row.predicted)
            row.skipped = "the unit is not known";
        row.value = value.value_or(0);
        rows.push_back(std::move(row));
    }
    return rows;
}

} // namespace rankyard::predict
