// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/predict/published.h"

#include "engine/cluster/catalogue.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>

namespace rankyard::predict {

namespace {

std::string lower(std::string text)
{
    std::transform(text.begin(), text.end(), text.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return text;
}

bool contains(const std::string &text, std::string_view part) { return text.find(part) != std::string::npos; }

/// The number after `key` ("grad_accum=" of "…; grad_accum=16; …"); 0 when it is not there.
double numberAfter(const std::string &text, std::string_view key)
{
    const std::size_t at = text.find(key);
    if (at == std::string::npos)
        return 0;
    const std::size_t begin = at + key.size();
    const std::size_t end = std::min(text.find_first_not_of("0123456789.", begin), text.size());
    return numberFrom(std::string_view(text).substr(begin, end - begin)).value_or(0);
}

/// A row on its way to a Run: steps add what they know, or say why it ends here.
class Reader
{
public:
    Reader(const Csv &csv, std::size_t row)
        : m_csv(csv),
          m_row(row),
          m_notes(lower(cell("notes"))),
          m_zero(lower(cell("zero_or_distopt"))),
          m_links(lower(cell("interconnect")))
    {}

    Row read()
    {
        Row row;
        row.id = cell("id");
        row.source = cell("source");
        row.gpu = cell("gpu");
        device();
        shape();
        layout();
        batch();
        software();
        row.tflops = number("tflops_per_gpu");
        row.measured = measured(row.tflops);
        row.skipped = m_reason;
        if (m_reason.empty())
            row.run = m_run;
        return row;
    }

private:
    std::string cell(std::string_view column) const { return m_csv.cell(m_row, column); }
    void skip(const std::string &reason)
    {
        if (m_reason.empty())
            m_reason = reason;
    }
    /// 0 for an empty cell; a cell that is no positive number up to `most` ends the row.
    double number(std::string_view column, double most = 1e15)
    {
        const std::string text = cell(column);
        const auto value = numberFrom(text);
        if (text.empty())
            return 0;
        if (!value)
            skip(faultOf(column, text));
        else if (*value <= 0)
            refuse(column, "must be positive");
        else if (*value > most)
            refuse(column, "out of range");
        else
            return *value;
        return 0;
    }
    std::int64_t whole(std::string_view column, std::int64_t otherwise)
    {
        const double value = number(column, 2e6);
        if (value == 0)
            return otherwise;
        if (value != std::floor(value)) {
            refuse(column, "not a whole number");
            return otherwise;
        }
        return static_cast<std::int64_t>(value);
    }
    /// 0 and 1; an empty cell is `otherwise`.
    bool flag(std::string_view column, bool otherwise)
    {
        const std::string text = cell(column);
        if (text.empty())
            return otherwise;
        if (text != "0" && text != "1")
            refuse(column, "must be 0 or 1");
        return text == "1";
    }
    void refuse(std::string_view column, const char *why)
    {
        skip(std::string(column) + " " + cell(column) + ": " + why);
    }

    void device();
    double nodeGbps(int perNode) const;
    void likeGpt(double params);
    void shape();
    void precision();
    void layout();
    void batch();
    void software();
    double measured(double tflops);

    bool fsdp() const { return contains(m_zero, "fsdp") || contains(m_zero, "hsdp"); }
    bool hopper() const { return m_run.machine.family == "H100" || m_run.machine.family == "B200"; }

    const Csv &m_csv;
    std::size_t m_row;
    std::string m_notes;
    std::string m_zero;
    std::string m_links;
    std::string m_reason;
    Run m_run;
};

void Reader::device()
{
    std::string name = cell("gpu");
    if (contains(name, "A100-class"))
        name = "A100 SXM 80 GB";
    const cluster::GpuModel *gpu = cluster::findGpu(name);
    if (!gpu) {
        skip(name.empty() ? "gpu is missing" : "gpu is not in the catalogue");
        return;
    }
    Machine &m = m_run.machine;
    m.device = gpu->name;
    m.family = familyOf(gpu->name);
    m.peak = {gpu->tf32 > 0 ? gpu->tf32 : gpu->fp32, gpu->bf16, gpu->bf16, gpu->fp8, 2 * gpu->fp8};
    m.memoryBandwidth = gpu->memoryBandwidth;
    m.memoryBytes = gpu->memoryBytes;
    const bool rack =
        contains(m_links, "nvl72") || contains(gpu->name, "GB200") || contains(gpu->name, "GB300");
    const auto perNode = static_cast<int>(whole("gpus_per_node", rack ? 4 : 8));
    m.island = rack ? 72 : perNode;
    m.islandBandwidth = gpu->linkBandwidth > 0 ? gpu->linkBandwidth : gpu->pcieBandwidth / 2;
    m.networkBandwidth = nodeGbps(perNode) / 8 * 1e9 / perNode;
}

/// Gb/s of a node's cards: "8x400G", "4x200 Gbps", "1600 Gbps", "Omni-Path"; else what such boxes have (makers' data sheets).
double Reader::nodeGbps(int perNode) const
{
    for (std::size_t at = m_links.find('g'); at != std::string::npos; at = m_links.find('g', at + 1)) {
        std::size_t end = at;
        while (end > 0 && m_links[end - 1] == ' ')
            --end;
        std::size_t begin = end;
        while (begin > 0 && std::isdigit(static_cast<unsigned char>(m_links[begin - 1])))
            --begin;
        const auto rate = numberFrom(std::string_view(m_links).substr(begin, end - begin));
        if (!rate || *rate < 10)
            continue;
        double cards = 1;
        if (begin > 1 && m_links[begin - 1] == 'x'
            && std::isdigit(static_cast<unsigned char>(m_links[begin - 2])))
            cards = m_links[begin - 2] - '0';
        return cards * *rate;
    }
    if (contains(m_links, "omni-path"))
        return 4 * 100;
    const std::string &family = m_run.machine.family;
    if (family == "V100")
        return 100;
    if (family == "A100")
        return 8 * 200;
    return (contains(m_run.machine.device, "B300") ? 800.0 : 400.0) * perNode;
}

/// A GPT of so many parameters: hidden about 128 times the layers, whole layers a stage, 12Lh² parameters.
void Reader::likeGpt(double params)
{
    const auto stages = static_cast<double>(whole("pp", 1));
    const double layers = stages * std::max(1.0, std::round(std::cbrt(params / (12 * 128 * 128)) / stages));
    m_run.shape.layers = std::llround(layers);
    m_run.shape.hidden = 128 * std::max(1LL, std::llround(std::sqrt(params / (12 * layers)) / 128));
}

void Reader::shape()
{
    const std::string name = cell("model_name");
    const std::string type = lower(cell("ffn_type"));
    Shape &s = m_run.shape;
    const Shape *known = findModel(name);
    if (known)
        s = *known;
    s.name = name;
    s.layers = whole("layers", s.layers);
    const std::int64_t hidden = whole("hidden", s.hidden);
    const bool another = known && hidden != s.hidden; // a namesake: only its family is meant
    if (another) {
        s.heads = 0;
        s.ffn = 0;
    }
    s.hidden = hidden;
    if (const double params = 1e9 * number("params_b");
        s.layers == 0 && s.hidden == 0 && params > 0 && contains(lower(name), "gpt"))
        likeGpt(params);
    if (s.layers == 0 || s.hidden == 0) {
        skip(contains(lower(name), "nemotron")
                 ? "hybrid model: not a transformer of one kind of layer"
                 : "no layers and hidden, and the model is not in the catalogue");
        return;
    }
    if (type == "swiglu" || (type.empty() && known))
        s.gated = type == "swiglu" || s.gated;
    if (!known && s.gated) {
        s.biases = false;
        s.positions = false;
        s.tied = false;
    }
    const std::int64_t heads = whole("heads", s.heads);
    if (heads != s.heads || s.heads == 0) {
        const std::int64_t usual = s.hidden >= 12288 && s.hidden % 96 == 0 ? 96 : s.hidden / 128; // GPT-3's
        s.heads = heads > 0 ? heads : std::max<std::int64_t>(1, usual);
        s.headDim = s.hidden / s.heads;
        s.kvHeads = s.heads;
    }
    s.kvHeads = whole("kv_heads", s.kvHeads);
    s.ffn = whole("ffn_hidden", s.ffn);
    if (s.ffn == 0)
        s.ffn = s.gated ? (8 * s.hidden / 3 + 255) / 256 * 256 : 4 * s.hidden;
    s.vocab = whole("vocab", s.vocab > 0 ? s.vocab : 51200);
    s.seq = whole("seq", s.seq);
    if (s.seq == 0)
        skip("seq is missing");
    if (s.headDim < 1 || s.kvHeads < 1)
        skip("heads do not divide hidden");
    if (s.layers > 10000 || s.hidden > 1'000'000 || s.kvHeads > s.heads)
        skip("sizes out of range");
}

void Reader::precision()
{
    const std::string text = lower(cell("precision"));
    const bool old = m_run.machine.family == "V100";
    Precision &p = m_run.micro.precision;
    if (contains(text, "fp8"))
        p = Precision::Fp8;
    else if (contains(text, "fp4"))
        p = Precision::Fp4;
    else if (text == "fp32" || text == "tf32")
        p = Precision::Fp32;
    else if (contains(text, "fp16") || (text.empty() && old))
        p = Precision::Fp16;
    else if (contains(text, "16") || text.empty())
        p = Precision::Bf16;
    else
        skip("precision is not known");
    if (m_run.machine.peak[static_cast<std::size_t>(p)] <= 0 && m_reason.empty())
        skip("the device has no such precision");
    const bool low = p == Precision::Fp8 || p == Precision::Fp4;
    const bool tuned = contains(m_notes, "sft") || contains(m_notes, "lora")
        || contains(m_notes, "fine-tuning") || contains(lower(m_run.shape.name), "sft");
    m_run.what = tuned         ? RunClass::FineTuning
        : m_run.shape.sparse() ? RunClass::Experts
        : low                  ? RunClass::LowPrecision
                               : RunClass::Dense;
}

void Reader::layout()
{
    precision();
    Layout &l = m_run.layout;
    const bool sharded = fsdp() || contains(m_zero, "zero3") || contains(m_zero, "zero2");
    const std::int64_t tp = whole("tp", 0);
    const std::int64_t pp = whole("pp", 0);
    const std::int64_t dp = whole("dp", 0);
    std::int64_t n = whole("n_gpus", 0);
    if (tp == 0 && pp == 0 && !sharded && n != 1)
        skip("tp and pp are missing");
    m_run.micro.tp = std::max<std::int64_t>(1, tp);
    m_run.micro.cp = whole("cp", 1);
    const std::int64_t ep = whole("ep", 1);
    m_run.micro.ep = m_run.shape.sparse() ? ep : 1;
    const std::int64_t stages = std::max<std::int64_t>(1, pp);
    const std::int64_t model = m_run.micro.tp * m_run.micro.cp * stages;
    if (n == 0)
        n = dp * model;
    if (n == 0)
        skip("n_gpus is missing");
    else if (n % model != 0)
        skip("n_gpus is no multiple of tp · cp · pp");
    if (stages > m_run.shape.layers)
        skip("more stages than layers");
    l.dp = static_cast<int>(std::max<std::int64_t>(1, n / model));
    l.cp = static_cast<int>(m_run.micro.cp);
    l.pp = static_cast<int>(stages);
    l.virtualStages = static_cast<int>(whole("vpp", 1));
    m_run.devices = static_cast<double>(n);

    const bool interleaved = contains(m_notes, "schedule=1f1b-i") || l.virtualStages > 1;
    l.schedule = contains(m_notes, "schedule=zb-1p") ? Schedule::ZeroBubbleH1
        : contains(m_notes, "schedule=zb-2p")        ? Schedule::ZeroBubbleH2
        : contains(m_notes, "schedule=zb-v")         ? Schedule::ZeroBubbleV
        : contains(m_notes, "schedule=gpipe")        ? Schedule::GPipe
        : interleaved                                ? Schedule::Interleaved
                                                     : Schedule::OneFOneB;
    const auto perStage = static_cast<int>((m_run.shape.layers + stages - 1) / stages);
    if (l.schedule == Schedule::Interleaved && l.virtualStages == 1)
        l.virtualStages = perStage;
    l.evenEnds = (m_run.shape.layers + 2) % stages == 0 && m_run.shape.layers % stages != 0;
    if (contains(m_notes, "first and last stage hold one layer fewer"))
        l.evenEnds = true;
}

void Reader::batch()
{
    Layout &l = m_run.layout;
    const double global = number("global_batch", 1e9);
    std::int64_t micro = whole("micro_batch", 0);
    double steps = numberAfter(m_notes, "grad_accum=");
    if (steps == 0)
        steps = numberAfter(m_notes, "ga=");
    if (micro == 0 && steps > 0 && global > 0)
        micro = std::max<std::int64_t>(1, std::llround(global / l.dp / steps));
    if (micro == 0 && l.pp == 1 && m_run.shape.seq < 32768) // one pass, up to 16k tokens
        micro = std::clamp<std::int64_t>(
            static_cast<std::int64_t>(global / l.dp), 1,
            std::max<std::int64_t>(1, 16384 / std::max<std::int64_t>(1, m_run.shape.seq)));
    micro = std::max<std::int64_t>(1, micro);
    m_run.micro.sequences = micro;
    if (global == 0 && l.pp > 1)
        skip("global_batch is missing");
    else if (global == 0 && cell("micro_batch").empty())
        skip("micro_batch and global_batch are missing");
    m_run.globalBatch = global > 0 ? global : static_cast<double>(micro * l.dp);
    const double each = m_run.globalBatch / l.dp / static_cast<double>(micro);
    l.microBatches = static_cast<int>(std::max(1.0, std::round(each)));
    if (cell("vpp").empty() && l.schedule == Schedule::OneFOneB && l.pp > 1 && hopper()) {
        l.schedule = Schedule::Interleaved;
        l.virtualStages = static_cast<int>((m_run.shape.layers + l.pp - 1) / l.pp);
    }
    if (each < 0.99)
        m_run.micro.sequences = std::max<std::int64_t>(1, std::llround(m_run.globalBatch / l.dp));
}

void Reader::software()
{
    Layout &l = m_run.layout;
    Micro &micro = m_run.micro;
    const std::string &family = m_run.machine.family;
    const std::string recompute = lower(cell("recompute"));
    // Of these systems "selective" drops the attention's core (Korthikanti et al. 2022).
    m_run.recompute = contains(recompute, "full") ? Recompute::Full
        : contains(recompute, "selective")        ? Recompute::Attention
                                                  : Recompute::None;
    if (m_run.recompute == Recompute::None && !recompute.empty() && !contains(recompute, "no")
        && recompute != "0" && recompute != "false")
        refuse("recompute", "not full, selective or none");
    const bool full = m_run.recompute != Recompute::None;
    micro.fusedAttention = family != "V100" && (hopper() || fsdp() || !full);
    micro.sequenceParallel = flag("sp", hopper()) && micro.tp > 1;

    l.zero = fsdp() || contains(m_zero, "zero3")                   ? 3
        : contains(m_zero, "zero2")                                ? 2
        : contains(m_zero, "zero1") || contains(m_zero, "distopt") ? 1
                                                                   : 0;
    if (contains(m_zero, "shard_grad_op")) { // gathers once, keeps the parameters until the last backward
        l.zero = 3;
        l.keepGathered = true;
    }
    if (contains(m_zero, "kept"))
        l.keepGathered = true;
    if (const double shard = numberAfter(m_zero, "fsdp"); shard > 0 && shard < m_run.devices)
        l.shard = static_cast<int>(shard);
    if (contains(m_zero, "hsdp"))
        l.shard = m_run.machine.island;
    // MT-NLG and BLOOM: their papers say so (arXiv 2201.11990, 2211.05100).
    const std::string model = lower(m_run.shape.name);
    const bool deepspeed = (contains(m_zero, "zero") && !fsdp()) || contains(m_notes, "deepspeed")
        || contains(model, "mt-nlg") || contains(model, "bloom");
    const auto trait = [&](const char *name, bool has) {
        if (has)
            m_run.traits.emplace_back(name);
    };
    trait("fsdp", fsdp());
    trait("deepspeed", deepspeed && l.zero < 3);
    trait("deepspeed zero 3", deepspeed && l.zero == 3);
    const bool plain = contains(m_notes, "hf + deepspeed") || contains(m_notes, "deepspeed hf")
        || contains(model, "deepspeed hf");
    trait("plain layers", plain);
    // The parts are gathered again inside the node; with sequence parallelism they are divided anyway.
    l.scatterSends = !deepspeed && !micro.sequenceParallel;
    trait("deterministic", contains(m_notes, "deterministic kernels"));
    trait("tensor overlap", contains(m_notes, "tp overlap"));
    trait("compiled", contains(m_notes, "torch.compile"));
    trait("new attention kernels", hopper() && !fsdp());
    trait("experts", m_run.shape.sparse());
    trait("low precision", m_run.what == RunClass::LowPrecision);
    trait("latent attention", m_run.shape.latent.has_value());
    trait("container of 2025", contains(m_notes, "25.0") || contains(m_notes, "25.1"));
    trait("fine-tuning", m_run.what == RunClass::FineTuning);
    trait("early bf16", micro.precision == Precision::Bf16 && !micro.fusedAttention);
    trait("parallel block", contains(m_notes, "parallel transformer block"));
    trait("pure", contains(m_notes, "mode pure"));
    micro.frozen = contains(m_notes, "lora");
    m_run.shape.parallelBlock = contains(m_notes, "parallel transformer block");
    const bool overlap = contains(m_zero, "overlap") || contains(m_notes, "dp overlap");
    l.overlapGrads = l.zero == 3 || overlap || (hopper() && contains(m_zero, "distopt"));
    if (contains(m_notes, "not overlapped"))
        l.overlapGrads = false;
    l.overlapParams = l.overlapGrads;
    const bool fp16 = micro.precision == Precision::Fp16;
    l.gradBytes = fp16 || (fsdp() && !contains(m_notes, "mode default")) ? 2 : 4;
    l.paramBytes = 2;
}

double Reader::measured(double tflops)
{
    const double seconds = number("iter_time_s");
    const double rate = number("tokens_per_s_per_gpu");
    const double mfu = number("mfu_pct");
    const std::size_t at = m_notes.find("conv=");
    if (at != std::string::npos) {
        const std::string tag = cell("notes").substr(at + 5);
        m_run.convention = conventionFrom(tag.substr(0, tag.find_first_of(" ;,(")));
        if (contains(m_notes, "6n + 12lhs"))
            m_run.convention = Convention::SixNAttention;
    }
    if (seconds > 0)
        return seconds;
    const double tokens = m_run.globalBatch * static_cast<double>(m_run.shape.seq);
    if (rate > 0 && m_run.devices > 0)
        return tokens / rate / m_run.devices;
    const double all = m_run.devices * 1e12;
    if (tflops > 0 && all > 0) {
        if (!m_run.convention && contains(m_notes, "model tflops"))
            m_run.convention = Convention::Model3;
        if (m_run.convention)
            return stepFlops(m_run.shape, m_run.globalBatch, *m_run.convention) / (tflops * all);
    }
    const double peak = m_run.machine.peak[static_cast<std::size_t>(m_run.micro.precision)];
    if (mfu > 0 && all > 0 && peak > 0) {
        const Convention convention = m_run.convention.value_or(Convention::Model3);
        return stepFlops(m_run.shape, m_run.globalBatch, convention) / (mfu / 100 * peak * m_run.devices);
    }
    skip(tflops > 0 ? "TFLOP/s without a convention" : "nothing measured");
    return 0;
}

} // namespace

const char *nameOf(RunClass what)
{
    constexpr std::array<const char *, runClassCount> names{"dense", "experts", "fp8", "fine_tuning"};
    return names[static_cast<std::size_t>(what)];
}

Result<std::vector<Row>> readRuns(std::string_view text, const std::string &name)
{
    RY_ASSIGN(const Csv csv, Csv::read(text, name));
    for (const char *column : {"model_name", "gpu", "n_gpus"}) {
        if (!csv.has(column)) {
            return Error::make(Code::BadData, "no table of published runs: a column is missing", name)
                .withExpected(column);
        }
    }
    std::vector<Row> rows;
    for (std::size_t i = 0; i < csv.rows(); ++i)
        rows.push_back(Reader(csv, i).read());
    return rows;
}

StepTime predictRun(const Run &run, const Calibrations &calibrations)
{
    const auto found = calibrations.of(run.machine.family, run.traits);
    const CostModel cost(run.machine, found ? *found : Calibration{});
    return combine(cost, unitTimes(cost, run.shape, run.micro, run.recompute), run.layout);
}

} // namespace rankyard::predict
