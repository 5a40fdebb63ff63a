// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/probe/probe.h"

#include "engine/predict/durations.h"
#include "engine/probe/crew.h"
#include "engine/probe/fit.h"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <unistd.h>

namespace rankyard::probe {

namespace {

constexpr int steps = 3;

Error stopped() { return Error::make(Code::Stopped, "the probe was stopped", "probe"); }

std::string hostName()
{
    char name[256] = "localhost";
    ::gethostname(name, sizeof name - 1);
    return name;
}

std::string today()
{
    const std::time_t now = std::time(nullptr);
    std::tm utc{};
    ::gmtime_r(&now, &utc);
    char text[32];
    std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
    return text;
}

/// Weighted by what they take in a step: how much faster the same job is with all threads in one rank, for each further thread.
double teamOf(const Trial &one, const Trial &all, int threads)
{
    double alone = 0, together = 0;
    for (std::size_t i = 0; i < std::min(one.samples.size(), all.samples.size()); ++i) {
        alone += one.samples[i].seconds;
        together += all.samples[i].seconds;
    }
    return std::clamp((alone / together - 1) / (threads - 1), 0.05, 1.0);
}

/// Sides of the product that a sample is; false for what is no single product.
bool sidesOf(const Trial &trial, const Sample &sample, Product &product)
{
    const plan::Op &op = sample.program->op(sample.op);
    const spec::Model &model = trial.job.model;
    const std::int64_t tokens = trial.job.batch.micro * model.seq;
    const std::int64_t queries = model.heads * model.headSize();
    std::int64_t out = 0, in = 0;
    switch (op.segment) {
    case plan::Segment::Qkv:
        out = queries + 2 * model.keyHeads() * model.headSize();
        in = model.hidden;
        break;
    case plan::Segment::Out:
        out = model.hidden;
        in = queries;
        break;
    case plan::Segment::Up:
        out = (model.family == "llama" ? 2 : 1) * model.ffnSize();
        in = model.hidden;
        break;
    case plan::Segment::Down:
        out = model.hidden;
        in = model.ffnSize();
        break;
    default:
        return false;
    }
    const bool input = op.kind == plan::OpKind::BackwardInput,
               weight = op.kind == plan::OpKind::BackwardWeight;
    product.m = weight ? out : tokens;
    product.n = input || weight ? in : out;
    product.k = input ? out : weight ? tokens : in;
    return true;
}

std::vector<Product> productsOf(const std::vector<Trial> &trials, const predict::CostModel &cost)
{
    std::vector<Product> products;
    for (const Trial &trial : trials) {
        const plan::Duration duration = predict::durationsOf(cost, trial.job);
        for (const Sample &sample : trial.samples) {
            Product product;
            if (!sidesOf(trial, sample, product))
                continue;
            const double flops = 2.0 * static_cast<double>(product.m) * static_cast<double>(product.n)
                * static_cast<double>(product.k);
            product.type = trial.job.precision.compute;
            product.flopsPerSecond = flops / sample.seconds;
            product.predicted =
                1e9 * flops / static_cast<double>(duration(*sample.program, sample.program->op(sample.op)));
            products.push_back(product);
        }
    }
    return products;
}

} // namespace

Result<Report> run(const Options &options)
{
    const auto begin = std::chrono::steady_clock::now();
    std::vector<Trial> trials;
    const std::size_t perType = trialJobs(1, DType::F32).size();
    const double whole = static_cast<double>(options.types.size() * perType + 2);
    const auto say = [&](std::size_t done, const std::string &what) {
        if (options.progress)
            options.progress(static_cast<double>(done) / whole, what);
    };
    for (const DType type : options.types) {
        for (const spec::JobSpec &job : trialJobs(options.ranks, type)) {
            if (options.stop())
                return stopped();
            say(trials.size(),
                std::string(nameOf(type)) + ", " + job.model.family + " of "
                    + std::to_string(job.model.hidden) + ", micro-batches of "
                    + std::to_string(job.batch.micro * job.model.seq) + " tokens");
            RY_ASSIGN(Trial trial, runTrial(job, options.makeDevice, steps));
            trials.push_back(std::move(trial));
        }
    }
    say(trials.size(), "collectives between ranks");
    Report report;
    RY_ASSIGN(report.links, measureLinks(linkGroups(options.ranks, coresByMemory()), options.stop));
    if (options.stop())
        return stopped();
    say(trials.size() + 1, "threads of one rank");
    double team = 0;
    if (options.makeWideDevice && options.ranks > 1) {
        RY_ASSIGN(const Trial wide,
                  runTrial(trialJobs(1, options.types.front())[1], options.makeWideDevice, steps));
        team = teamOf(trials[1], wide, options.ranks);
    }
    RY_ASSIGN(report.measured, fit(trials, report.links));
    if (team > 0)
        report.measured.values["team"] = team;
    report.measured.host = hostName();
    report.measured.date = today();
    report.measured.device = options.makeDevice()->name();
    report.measured.ranks = options.ranks;
    report.products = productsOf(trials, modelOf(report.measured));
    report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    return report;
}

} // namespace rankyard::probe
