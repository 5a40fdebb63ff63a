// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/predict/validate.h"
#include "tests/engine/predict/fixture.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace rankyard::predict {
namespace {

constexpr const char *header =
    "id,source,model_name,layers,hidden,heads,kv_heads,ffn_hidden,ffn_type,seq,vocab,params_b,gpu,n_gpus,gpus_per_node,"
    "interconnect,tp,pp,vpp,cp,ep,dp,zero_or_distopt,sp,recompute,micro_batch,global_batch,precision,tflops_per_gpu,mfu_pct,"
    "tokens_per_s_per_gpu,iter_time_s,mem_gb_per_gpu,notes\n";

Row one(const std::string &line)
{
    const auto rows = readRuns(header + line, "table");
    EXPECT_TRUE(rows) << (rows ? "" : rows.error().text());
    EXPECT_EQ(rows->size(), 1u);
    return rows->front();
}

TEST(Csv, QuotesLineBreaksAndBlanks)
{
    const auto csv = Csv::read("\xEF\xBB\xBF id , b,c\r\n1,\"x, \"\"y\"\"\r\nz\", 3 \r\n\r\n2\n", "t");
    ASSERT_TRUE(csv);
    ASSERT_EQ(csv->rows(), 2u);
    EXPECT_EQ(csv->cell(0, "id"), "1");
    EXPECT_EQ(csv->cell(0, "b"), "x, \"y\"\r\nz");
    EXPECT_EQ(csv->cell(0, "c"), "3");
    EXPECT_EQ(csv->cell(1, "id"), "2");
    EXPECT_EQ(csv->cell(1, "c"), "");
    EXPECT_EQ(csv->cell(1, "none"), "");
    const auto old = Csv::read("a,b\r1,\"x\ry\"\r2,3\r", "t"); // CR alone
    ASSERT_TRUE(old);
    ASSERT_EQ(old->rows(), 2u);
    EXPECT_EQ(old->cell(0, "b"), "x\ry");
    EXPECT_EQ(old->cell(1, "b"), "3");
    const auto open = Csv::read("a,b\n1,\"x\n", "t");
    ASSERT_FALSE(open);
    EXPECT_EQ(open.error().where, "t:2");
    const auto forgotten =
        Csv::read("a,b\n1,2\n3,\"x\n4,\"y, z\"\n", "t"); // it swallows a line, then meets the next
    ASSERT_FALSE(forgotten);
    EXPECT_EQ(forgotten.error().where, "t:3") << forgotten.error().text();
    EXPECT_FALSE(Csv::read("", "t"));
    EXPECT_EQ(numberFrom("1.5e3"), 1500);
    for (const char *text : {"", "x", "1,5", "1 2", "nan", "inf", "0x", "--1", "1e999"})
        EXPECT_FALSE(numberFrom(text)) << text;
}

TEST(Published, FullRow)
{
    const Row row = one(
        "a,s,GPT 145B,80,12288,96,96,49152,gelu,2048,51200,145.6,A100-80GB-SXM,1536,8,NVSwitch + 8x200G HDR IB,8,8,2,1,"
        "1,24,none,0,full,2,2304,fp16,148,,,,,conv=HW4 (formula)\n");
    ASSERT_TRUE(row.run) << row.skipped;
    const predict::Run &run = *row.run;
    EXPECT_EQ(run.shape.layers, 80);
    EXPECT_EQ(run.machine.device, "A100 SXM 80 GB");
    EXPECT_DOUBLE_EQ(run.machine.networkBandwidth, 25e9);
    EXPECT_EQ(run.layout.dp, 24);
    EXPECT_EQ(run.layout.microBatches, 48);
    EXPECT_EQ(run.layout.schedule, Schedule::Interleaved);
    EXPECT_EQ(run.recompute, Recompute::Full);
    EXPECT_FALSE(run.micro.fusedAttention);
    EXPECT_EQ(run.what, RunClass::Dense);
    // 96BLsh²(1 + s/6h + V/16Lh) ÷ (GPUs · TFLOP/s).
    const double flops =
        96.0 * 2304 * 80 * 2048 * 12288 * 12288 * (1 + 2048 / (6.0 * 12288) + 51200 / (16.0 * 80 * 12288));
    EXPECT_NEAR(row.measured, flops / (1536 * 148e12), 1e-9 * row.measured);
}

TEST(Published, RulesForWhatIsMissing)
{
    const Row row = one("a,s,LLAMA3-8B,,,,,,,8192,,,H100,8,,,1,,,2,,,FSDP,,,,16,,,,1000,,,\n");
    ASSERT_TRUE(row.run) << row.skipped;
    EXPECT_EQ(row.run->shape.kvHeads, 8);
    EXPECT_EQ(row.run->shape.ffn, 14336);
    EXPECT_EQ(row.run->layout.dp, 4);
    EXPECT_EQ(row.run->micro.sequences, 2);
    EXPECT_EQ(row.run->layout.microBatches, 2);
    EXPECT_EQ(row.run->micro.precision, Precision::Bf16);
    EXPECT_DOUBLE_EQ(row.measured, 16 * 8192 / 1000.0 / 8);
}

TEST(Published, GptOfSoManyParameters)
{
    const Row row = one(
        "a,s,GPT-2 50B,,,,,,gelu,1024,50257,50,V100-16GB,128,4,,4,32,,,,1,none,0,full,1,4,fp16,6,,,2.1,,\n");
    ASSERT_TRUE(row.run) << row.skipped;
    EXPECT_EQ(row.run->shape.layers % 32, 0);
    const auto &s = row.run->shape;
    EXPECT_NEAR(12.0 * static_cast<double>(s.layers * s.hidden * s.hidden) / 50e9, 1, 0.03);
    EXPECT_NEAR(static_cast<double>(s.hidden) / static_cast<double>(s.layers), 128, 40);
}

/// What no number of a run can be is the reason why its row is skipped, with the column and what stands there.
TEST(Published, EveryNumberThatCannotBeIsTheReason)
{
    const std::map<std::string, std::string> good = {{"id", "a"},
                                                     {"source", "s"},
                                                     {"model_name", "x"},
                                                     {"layers", "12"},
                                                     {"hidden", "768"},
                                                     {"heads", "12"},
                                                     {"kv_heads", "12"},
                                                     {"ffn_hidden", "3072"},
                                                     {"seq", "2048"},
                                                     {"vocab", "51200"},
                                                     {"params_b", "0.1"},
                                                     {"gpu", "H100"},
                                                     {"n_gpus", "8"},
                                                     {"gpus_per_node", "8"},
                                                     {"tp", "1"},
                                                     {"pp", "1"},
                                                     {"vpp", "1"},
                                                     {"cp", "1"},
                                                     {"ep", "1"},
                                                     {"dp", "8"},
                                                     {"sp", "0"},
                                                     {"micro_batch", "1"},
                                                     {"global_batch", "8"},
                                                     {"precision", "bf16"},
                                                     {"tflops_per_gpu", "300"},
                                                     {"mfu_pct", "30"},
                                                     {"tokens_per_s_per_gpu", "1000"},
                                                     {"iter_time_s", "1"}};
    const auto row = [&](const std::string &column, const std::string &value) {
        std::string head, line;
        for (const auto &[name, standing] : good) {
            head += (head.empty() ? "" : ",") + name;
            line += (line.empty() ? "" : ",") + (name == column ? value : standing);
        }
        const auto rows = readRuns(head + "\n" + line + "\n", "table");
        EXPECT_TRUE(rows && rows->size() == 1);
        return rows->front();
    };
    ASSERT_TRUE(row("", "").run) << row("", "").skipped;
    for (const auto &[column, value] : good) {
        if (!numberFrom(value))
            continue;
        const bool flag = column == "sp";
        for (const auto &[bad, why] : std::map<std::string, std::string>{{"0", "must be positive"},
                                                                         {"-3", "must be positive"},
                                                                         {"1e300", "out of range"},
                                                                         {"nan", "must be finite"},
                                                                         {"-inf", "must be finite"},
                                                                         {"1e999", "must be finite"},
                                                                         {"many", "not a number"}}) {
            const Row one = row(column, bad);
            EXPECT_EQ(one.run.has_value(), flag && bad == "0") << column << " " << bad;
            const std::string reason = column + " " + bad + ": " + (flag ? "must be 0 or 1" : why);
            EXPECT_EQ(one.skipped, one.run ? std::string() : reason);
        }
    }
}

TEST(Published, EveryRowHasARunOrAReason)
{
    const std::map<std::string, std::string> bad = {
        {"a,s,x,,,,,,,2048,,,H100,8,8,,1,1,,,,,,,,1,8,bf16,,,,1,,\n",
         "no layers and hidden, and the model is not in the catalogue"},
        {"a,s,x,12,768,12,,,,2048,,,Abacus,8,8,,1,1,,,,,,,,1,8,bf16,,,,1,,\n", "gpu is not in the catalogue"},
        {"a,s,x,12,768,12,,,,2048,,,,8,8,,1,1,,,,,,,,1,8,bf16,,,,1,,\n", "gpu is missing"},
        {"a,s,x,12,768,12,,,,2048,,,H100,8,8,,3,1,,,,,,,,1,8,bf16,,,,1,,\n",
         "n_gpus is no multiple of tp · cp · pp"},
        {"a,s,x,12,768,12,,,,2048,,,H100,8,8,,,,,,,,,,,1,8,bf16,,,,1,,\n", "tp and pp are missing"},
        {"a,s,x,12,768,12,,,,2048,,,H100,8,8,,1,1,,,,,,,,1,8,bf16,,,,,,\n", "nothing measured"},
        {"a,s,x,12,768,12,,,,2048,,,H100,8,8,,1,1,,,,,,,,1,8,bf16,300,,,,,\n",
         "TFLOP/s without a convention"},
        {"a,s,x,12,768,12,,,,2048,,,H100,8,8,,1,2,,,,,,,,1,,bf16,,,,1,,\n", "global_batch is missing"},
        {"a,s,x,twelve,768,12,,,,2048,,,H100,8,8,,1,1,,,,,,,,1,8,bf16,,,,1,,\n",
         "layers twelve: not a number"},
        {"a,s,x,12,768,12,,,,2048,,,H100,8,8,,1,1,,,,,,,,1,-8,bf16,,,,1,,\n",
         "global_batch -8: must be positive"},
        {"a,s,x,12.5,768,12,,,,2048,,,H100,8,8,,1,1,,,,,,,,1,8,bf16,,,,1,,\n",
         "layers 12.5: not a whole number"},
        {"a,s,x,12,768,12,,,,,,,H100,8,8,,1,1,,,,,,,,1,8,bf16,,,,1,,\n", "seq is missing"},
        {"a,s,x,12,768,12,,,,2048,,,V100,8,8,,1,1,,,,,,,,1,8,fp8,,,,1,,\n",
         "the device has no such precision"},
        {"a,s,x,12,768,12,,,,2048,,,H100,64,8,,1,64,,,,,,,,1,8,bf16,,,,1,,\n", "more stages than layers"},
        {"a,s,x,900000,768000,12,,,,2048,,,H100,8,8,,1,1,,,,,,,,1,8,bf16,,,,1,,\n", "sizes out of range"},
        {"a,s,x,12,768,12,99,,,2048,,,H100,8,8,,1,1,,,,,,,,1,8,bf16,,,,1,,\n", "sizes out of range"},
        {"a,s,x,12,768,12,,,,2048,,,H100,8,8,,900000000,1,,,,,,,,1,8,bf16,,,,1,,\n",
         "tp 900000000: out of range"},
    };
    for (const auto &[line, reason] : bad) {
        const Row row = one(line);
        EXPECT_FALSE(row.run) << line;
        EXPECT_EQ(row.skipped, reason) << line;
    }
    EXPECT_FALSE(readRuns("a,b\n1,2\n", "t"));
}

TEST(Published, PairsOfOneRowAgreeByTheirConvention)
{
    // TFLOP/s against the time or the tokens of the same row: the rows that state both, the tolerances of their sources' rounding.
    const auto rows = readRuns(publishedTable("published_runs.csv"), "table");
    ASSERT_TRUE(rows);
    std::map<std::string, std::vector<double>> ratios;
    for (const Row &row : *rows) {
        if (!row.run || row.tflops <= 0 || !row.run->convention || row.run->what != RunClass::Dense)
            continue;
        const double flops = stepFlops(row.run->shape, row.run->globalBatch, *row.run->convention);
        ratios[row.source.substr(0, row.source.find_first_of(": "))].push_back(
            row.tflops * 1e12 * row.run->devices * row.measured / flops);
    }
    const auto near = [&](const char *source, std::size_t least, double tolerance) {
        auto &found = ratios[source];
        std::sort(found.begin(), found.end());
        ASSERT_GE(found.size(), least) << source;
        EXPECT_NEAR(found[found.size() / 2], 1, tolerance) << source;
        EXPECT_NEAR(found[found.size() / 10], 1, 3 * tolerance) << source;
        EXPECT_NEAR(found[found.size() * 9 / 10], 1, 3 * tolerance) << source;
    };
    near("mosaicml/llm-foundry", 150, 0.01);
    near("arXiv", 3, 0.01);
    near("bigscience-workshop/bigscience", 80, 0.02);
}

TEST(Published, IdsAndSourcesAreNeverLookedAt)
{
    const std::string text = publishedTable("published_runs.csv");
    const auto plain = readRuns(text, "table");
    ASSERT_TRUE(plain);
    std::vector<Row> rows = *plain;
    Validation before = validateRuns(rows, fittedCalibrations());
    // The table again with every id and source replaced.
    const auto csv = Csv::read(text, "table");
    std::string other = text.substr(0, text.find('\n') + 1);
    for (std::size_t i = 0; i < csv->rows(); ++i) {
        std::string line = "\"r" + std::to_string(i * 7919 % 1000) + "\",\"somebody\"";
        std::string columns(header);
        columns.pop_back();
        for (std::size_t begin = columns.find(",source,") + 8; begin < columns.size();) {
            const std::size_t end = std::min(columns.find(',', begin), columns.size());
            std::string cell = csv->cell(i, columns.substr(begin, end - begin));
            for (std::size_t at = cell.find('"'); at != std::string::npos; at = cell.find('"', at + 2))
                cell.insert(at, "\"");
            line += ",\"" + cell + '"';
            begin = end + 1;
        }
        other += line + "\r\n";
    }
    const auto shuffled = readRuns(other, "table");
    ASSERT_TRUE(shuffled) << shuffled.error().text();
    Validation after = validateRuns(*shuffled, fittedCalibrations());
    ASSERT_EQ(after.rows.size(), before.rows.size());
    for (std::size_t i = 0; i < after.rows.size(); ++i)
        EXPECT_EQ(after.rows[i].predicted.seconds, before.rows[i].predicted.seconds) << i;
    EXPECT_EQ(after.skipped, before.skipped);
}

TEST(Published, ValidationCountsEveryRowAndBeatsOneConstant)
{
    const auto rows = readRuns(publishedTable("published_runs.csv"), "table");
    ASSERT_TRUE(rows);
    const Validation validation = validateRuns(*rows, fittedCalibrations());
    std::size_t counted = validation.rows.size();
    for (const auto &[reason, count] : validation.skipped) {
        EXPECT_FALSE(reason.empty());
        counted += static_cast<std::size_t>(count);
    }
    EXPECT_EQ(counted, rows->size());
    EXPECT_GT(validation.dense.n, 450);
    // Rows that the constants were fitted on: a guard against a change that breaks the model, not the figure of merit.
    EXPECT_LT(validation.dense.median, 0.05);
    EXPECT_LT(validation.dense.p90, 0.20);
    EXPECT_LT(validation.dense.median, validation.dense.baseline / 2);
    EXPECT_GT(validation.dense.covered, 0.70);
    for (const Validated &row : validation.rows) {
        EXPECT_TRUE(std::isfinite(row.predicted.seconds) && row.predicted.seconds > 0) << row.row.id;
        EXPECT_LT(row.predicted.low, row.predicted.high);
    }
    const OrderedJson json = validationJson(validation);
    EXPECT_EQ(json["summary"]["n"], validation.dense.n);
    EXPECT_TRUE(json["rows"][0].contains("predicted_iter_s"));
}

} // namespace
} // namespace rankyard::predict
