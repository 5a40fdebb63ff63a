// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/predict/conventions.h"

#include "engine/cluster/sources.h"
#include "engine/predict/step_time.h"
#include "tests/engine/predict/fixture.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace rankyard::predict {
namespace {

std::vector<MemoryRow> table()
{
    const std::string text = publishedTable("memory_tables.csv");
    const auto csv = Csv::read(text, "memory_tables.csv");
    EXPECT_TRUE(csv);
    auto rows = readMemoryTable(*csv, "memory_tables.csv");
    EXPECT_TRUE(rows);
    return *rows;
}

/// Half a unit of the last digit that the source prints.
double rounding(double value)
{
    for (double step = 1; step > 1e-12; step /= 10) {
        if (std::abs(value / step - std::round(value / step)) < 1e-6)
            return step / 2;
    }
    return 1e-12;
}

TEST(Conventions, ExactRows)
{
    std::map<std::string, int> checked;
    for (const MemoryRow &row : table()) {
        for (const char *family :
             {"zero-t1", "zero-f1", "zero-comm", "kort-an", "kort-ap", "kort-po", "kort-5as", "kort-dealloc",
              "ds-", "mpt-N", "sc21-N", "N-llama3", "mlm-do", "dgxc-8b-wo", "bs-emb", "bs-lay", "bs-gpu"}) {
            if (!row.id.starts_with(family))
                continue;
            ASSERT_TRUE(row.predicted) << row.id << ": " << row.skipped;
            // The ZeRO paper rounds to three digits and cuts some: 1 T over 64 ranks is 4187.5, printed 4187. Where the inputs are
            // rounded themselves (6.805e9, 8.0305e9 parameters, bytes that went through GB), by that much more.
            const bool cuts = row.id.starts_with("zero-");
            // Megatron-LM's tool counts an RMSNorm like a LayerNorm: (2 · 32 + 1) · 4096 more for Llama 3 8B.
            const double inputs = row.id.starts_with("ds-4527") ? 1e-4
                : row.id == "dgxc-8b-wo"                        ? 1e-5
                : row.id.starts_with("N-llama3")                ? 65 * 4096 / 8.03e9
                                                                : 0;
            const double tolerance = cuts
                ? std::max(0.0051 * std::min(row.value, 100.0), row.value > 1000 ? 1.0 : 0.06)
                : 1.001 * rounding(row.value) + inputs * row.value;
            EXPECT_NEAR(*row.predicted, row.value, tolerance) << row.id << " " << row.quantity;
            ++checked[family];
        }
    }
    EXPECT_EQ(checked["zero-t1"], 36);
    EXPECT_EQ(checked["kort-an"] + checked["kort-ap"] + checked["kort-po"], 12);
    EXPECT_EQ(checked["mpt-N"], 61);
    EXPECT_EQ(checked["sc21-N"], 10);
    EXPECT_EQ(checked["mlm-do"], 21);
    EXPECT_EQ(checked["ds-"], 28);
    EXPECT_EQ(checked["dgxc-8b-wo"], 1);
}

/// Table 5 of the zero-bubble paper is made with its authors' profiled times and sends, which it does not print: 1f1b lies a little above
/// (p − 1)/(m + p − 1), and schedules come in the same order as by the closed forms with equal parts.
TEST(Conventions, BubblesOfTheZeroBubblePaper)
{
    const auto csv = Csv::read(publishedTable("memory_tables.csv"), "memory_tables.csv");
    ASSERT_TRUE(csv);
    const std::map<std::string, Schedule> schedules = {{"1F1B", Schedule::OneFOneB},
                                                       {"1F1B-I", Schedule::Interleaved},
                                                       {"ZB-H1", Schedule::ZeroBubbleH1},
                                                       {"ZB-H2", Schedule::ZeroBubbleH2}};
    UnitTimes unit;
    unit.forward = unit.backwardInput = unit.backwardWeight = 1;
    const CostModel cost = *costModelOf(*cluster::makePreset("dgx-a100-80", 4));
    struct Rate {
        double ours = 0, theirs = 0;
    };
    std::map<std::string, std::map<std::string, Rate>> runs; // by model and m, then schedule
    int plain = 0;
    for (std::size_t i = 0; i < csv->rows(); ++i) {
        if (!csv->cell(i, "quantity").starts_with("pipeline bubble rate"))
            continue;
        const Json in = *parseJson(csv->cell(i, "inputs"), "inputs");
        const double theirs = *numberFrom(csv->cell(i, "value"));
        const auto schedule = schedules.find(in["schedule"].get<std::string>());
        if (schedule == schedules.end())
            continue; // ZB-2p: a search, not a form
        Layout layout;
        layout.pp = in["pp"];
        layout.microBatches = in["microbatches"];
        layout.schedule = schedule->second;
        layout.virtualStages = layout.schedule == Schedule::Interleaved ? 2 : 1;
        unit.layers = layout.pp;
        const StepTime step = combine(cost, unit, layout);
        const double ours = step.bubble / (step.compute + step.bubble);
        if (layout.schedule == Schedule::OneFOneB) {
            const double p = layout.pp, m = layout.microBatches;
            EXPECT_NEAR(ours, (p - 1) / (m + p - 1), 1e-4) << "a send takes its latency";
            EXPECT_GT(theirs, ours) << csv->cell(i, "id");
            EXPECT_LT(theirs, ours + 0.03) << csv->cell(i, "id");
            ++plain;
        }
        runs[in["model"].get<std::string>() + " " + in["microbatches"].dump()][schedule->first] = {ours,
                                                                                                   theirs};
    }
    EXPECT_EQ(plain, 9);
    for (const auto &[name, list] : runs) {
        EXPECT_EQ(list.size(), 4U) << name;
        for (const auto &[slower, quicker] :
             {std::pair{"1F1B", "1F1B-I"}, {"1F1B", "ZB-H1"}, {"ZB-H1", "ZB-H2"}}) {
            EXPECT_GT(list.at(slower).theirs, list.at(quicker).theirs) << name;
            EXPECT_GT(list.at(slower).ours, list.at(quicker).ours) << name;
        }
    }
}

TEST(Conventions, ResidentStatesOfMegatron)
{
    // 23 small runs of Megatron-LM's tests hold the states and about 0.11 GB more: workspaces of the libraries.
    std::vector<double> rest;
    for (const MemoryRow &row : table()) {
        if (!row.id.starts_with("mcore-res"))
            continue;
        ASSERT_TRUE(row.predicted) << row.id;
        const double more = row.value - *row.predicted;
        if (row.value < 2e9)
            rest.push_back(more);
        else // 7B: states within 7 %
            EXPECT_NEAR(*row.predicted / row.value, 1, 0.07) << row.id;
    }
    ASSERT_GE(rest.size(), 15u);
    std::sort(rest.begin(), rest.end());
    EXPECT_NEAR(rest[rest.size() / 2], 0.112e9, 0.02e9);
}

TEST(Conventions, RowsWithoutAFormulaSayWhy)
{
    for (const MemoryRow &row : table()) {
        EXPECT_NE(row.predicted.has_value(), !row.skipped.empty()) << row.id;
    }
    const auto csv = Csv::read("id,source,quantity,inputs,value,unit\na,b,model-state memory,not json,1,GB\n"
                               "a,b,model-state memory,{},x,GB\na,b,colour of the box,{},1,GB\n",
                               "t");
    const auto rows = readMemoryTable(*csv, "t");
    ASSERT_EQ(rows->size(), 3u);
    EXPECT_EQ((*rows)[0].skipped, "inputs is not a JSON object");
    EXPECT_EQ((*rows)[1].skipped, "value x: not a number");
    EXPECT_EQ((*rows)[2].skipped, "no formula for this quantity");
    const auto other = Csv::read("a,b\n1,2\n", "t");
    EXPECT_FALSE(readMemoryTable(*other, "t"));
}

} // namespace
} // namespace rankyard::predict
