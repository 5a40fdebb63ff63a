// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/predict/validate.h"
#include "engine/predict/conventions.h"

#include "app/ctl/command.h"
#include "engine/base/file.h"

#include <iostream>

namespace rankyard::ctl {

namespace {

struct ValidateOptions {
    std::string file;
    std::string constants;
    bool serve = false;
    bool rows = false;
};

std::string percent(double share) { return formatPercent(share, 3); }

void addSummaries(std::vector<std::vector<std::string>> &table, const std::string &kind,
                  const std::map<std::string, predict::ErrorSummary> &map)
{
    for (const auto &[name, s] : map) {
        table.push_back({kind + (name.size() > 48 ? name.substr(0, 48) + "…" : name), std::to_string(s.n),
                         percent(s.median), percent(s.p90), percent(s.worst), percent(s.bias),
                         percent(s.covered), percent(s.baseline)});
    }
}

void showValidation(const predict::Validation &validation, bool everyRow, Output &output)
{
    if (everyRow) {
        std::vector<std::vector<std::string>> rows = {
            {"run", "device", "predicted s", "measured s", "error"}};
        for (const predict::Validated &row : validation.rows) {
            rows.push_back({row.row.id, row.row.gpu, formatNumber(row.predicted.seconds, 4),
                            formatNumber(row.row.measured, 4), percent(row.error)});
        }
        output.line(table(rows, 2) + "\n");
    }
    std::vector<std::vector<std::string>> rows = {
        {"", "runs", "median", "p90", "worst", "bias", "in 80 %", "one constant"}};
    addSummaries(rows, "", {{"dense 16-bit pre-training", validation.dense}});
    addSummaries(rows, "  ", validation.byDevice);
    addSummaries(rows, "  ", validation.bySource);
    addSummaries(rows, "apart: ", validation.apart);
    output.line(table(rows));
    output.line("Noise of the data itself: " + std::to_string(validation.repeats)
                + " runs are in the table more than once; they differ from their median by "
                + percent(validation.noiseMedian) + " (median), " + percent(validation.noiseP90) + " (p90)");
    for (const auto &[reason, count] : validation.skipped)
        output.line("not predicted: " + std::to_string(count) + " × " + reason);
}

/// For packaging/fit: a calibration document a line on stdin, the predicted seconds of all rows a line on stdout.
Result<Exit> serve(const std::vector<predict::Row> &rows)
{
    for (std::string line; std::getline(std::cin, line);) {
        RY_ASSIGN(const Json document, parseJson(line, "stdin"));
        RY_ASSIGN(const auto calibrations, predict::readCalibrations(document, "stdin"));
        Json seconds = Json::array();
        for (const predict::Row &row : rows)
            seconds.push_back(row.run ? Json(predict::predictRun(*row.run, calibrations).seconds) : Json());
        std::cout << seconds.dump() << std::endl;
    }
    return Exit::Done;
}

/// A table of memory values against the formulas that it names.
Result<Exit> validateMemory(const predict::Csv &csv, const ValidateOptions &options, Output &output)
{
    RY_ASSIGN(const auto found, predict::readMemoryTable(csv, options.file));
    std::vector<double> errors;
    std::map<std::string, int> skipped;
    OrderedJson rows = OrderedJson::array();
    std::vector<std::vector<std::string>> lines = {{"value", "unit", "formula", "published", "error"}};
    for (const predict::MemoryRow &row : found) {
        if (!row.predicted) {
            ++skipped[row.skipped];
            continue;
        }
        const double error = row.value != 0 ? *row.predicted / row.value - 1 : *row.predicted;
        errors.push_back(std::abs(error));
        rows.push_back({{"id", row.id},
                        {"source", row.source},
                        {"quantity", row.quantity},
                        {"unit", row.unit},
                        {"predicted", *row.predicted},
                        {"published", row.value},
                        {"error", error}});
        lines.push_back(
            {row.id, row.unit, formatNumber(*row.predicted, 6), formatNumber(row.value, 6), percent(error)});
    }
    const OrderedJson summary = {{"median", predict::quantile(errors, 0.5)},
                                 {"p90", predict::quantile(errors, 0.9)},
                                 {"worst", predict::quantile(errors, 1)},
                                 {"n", errors.size()},
                                 {"skipped", skipped}};
    if (output.json) {
        output.document({{"rows", std::move(rows)}, {"summary", summary}});
        return Exit::Done;
    }
    if (options.rows)
        output.line(table(lines, 2) + "\n");
    if (errors.empty())
        output.line("no value was predicted");
    else
        output.line(std::to_string(errors.size()) + " values: median "
                    + percent(predict::quantile(errors, 0.5)) + ", p90 "
                    + percent(predict::quantile(errors, 0.9)) + ", worst "
                    + percent(predict::quantile(errors, 1)));
    for (const auto &[reason, count] : skipped)
        output.line("not predicted: " + std::to_string(count) + " × " + reason);
    return Exit::Done;
}

Result<Exit> runValidate(const ValidateOptions &options, Output &output)
{
    RY_ASSIGN(const std::string text, readFile(options.file));
    RY_ASSIGN(const predict::Csv csv, predict::Csv::read(text, options.file));
    if (csv.has("quantity") && csv.has("inputs"))
        return validateMemory(csv, options, output);
    RY_ASSIGN(auto rows, predict::readRuns(text, options.file));
    if (options.serve)
        return serve(rows);
    predict::Calibrations calibrations = predict::fittedCalibrations();
    if (!options.constants.empty()) {
        RY_ASSIGN(const std::string file, readFile(options.constants));
        RY_ASSIGN(const Json document, parseJson(file, options.constants));
        RY_ASSIGN(calibrations, predict::readCalibrations(document, options.constants));
    }
    const predict::Validation validation = predict::validateRuns(std::move(rows), calibrations);
    if (output.json)
        output.document(predict::validationJson(validation));
    else
        showValidation(validation, options.rows, output);
    return Exit::Done;
}

} // namespace

void addValidate(Commands &commands)
{
    auto options = std::make_shared<ValidateOptions>();
    CLI::App *app = commands.add(commands.root(), "validate", "Predicted against published step times",
                                 [options](Output &output) { return runValidate(*options, output); });
    app->add_option("file", options->file, "A table of published runs, or of memory values")->required();
    app->add_option("--constants", options->constants,
                    "Other constants (rankyard/calibration/1) than those built in");
    app->add_flag("--rows", options->rows, "Every row, not the summary alone");
    app->add_flag("--serve", options->serve)->group("");
}

} // namespace rankyard::ctl
