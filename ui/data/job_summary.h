// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <QString>

#include <cstdint>
#include <map>
#include <string>

namespace rankyard::ui {

/// What pages show of a stored job document. Reading never fails: what is missing keeps its default, what is unknown is left
/// alone, so that runs of other versions can still be looked at.
struct JobSummary {
    QString name;
    std::int64_t dp = 1;
    std::int64_t tp = 1;
    std::int64_t pp = 1;
    std::int64_t cp = 1;
    std::int64_t zero = 0;
    std::int64_t globalBatch = 0;
    std::int64_t microBatch = 0;
    std::int64_t seq = 0;
    std::int64_t steps = 0;
    QString compute = QStringLiteral("fp32");

    std::int64_t tokensPerStep() const { return globalBatch * seq; }
    bool scalesLoss() const { return compute == QLatin1String("fp16"); }
    /// "dp2·z1": axes that are 1 are left out; "dp1" when all are.
    QString layout() const;
};

JobSummary summariseJob(const std::string &document);
/// Every leaf as "layout.dp" → "2"; empty when it is no JSON.
std::map<std::string, std::string> flattenJob(const std::string &document);

} // namespace rankyard::ui
