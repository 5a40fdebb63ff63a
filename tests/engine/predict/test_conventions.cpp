// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/predict/conventions.h"
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
    EXPECT_GE(checked["ds-"], 24);
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
    EXPECT_EQ((*rows)[1].skipped, "value is not a number");
    EXPECT_EQ((*rows)[2].skipped, "no formula for this quantity");
    const auto other = Csv::read("a,b\n1,2\n", "t");
    EXPECT_FALSE(readMemoryTable(*other, "t"));
}

} // namespace
} // namespace rankyard::predict
