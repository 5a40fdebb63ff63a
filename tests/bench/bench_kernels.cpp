// SPDX-License-Identifier: GPL-3.0-or-later
// A training step on one rank, op by op: milliseconds, share and GFLOP/s by kind of op, beside what ATen's kernels need for the
// same products and attention on the same threads. Best of many steps; with one thread by its CPU time, so that a busy machine
// disturbs less.
//
//     bench_kernels [--type fp32|bf16|fp64] [--threads N] [--seconds S] [--layers … --hidden … --heads … --seq … --vocab … --micro …]
#include "engine/kernels/cpu_device.h"
#include "tests/bench/aten_times.h"
#include "tests/engine/kernels/harness.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <random>

using namespace rankyard;

namespace {

using bench::threadCpuNs;

struct Options {
    spec::JobSpec job;
    int threads = 1;
    double seconds = 10;
};

Options parse(int count, char **arguments)
{
    Options options;
    options.job.model.vocab = 8192;
    options.job.batch.micro = 8;
    for (int i = 1; i + 1 < count; i += 2) {
        const std::string key = arguments[i], value = arguments[i + 1];
        const std::int64_t number = std::atoll(value.c_str());
        if (key == "--type" && !dtypeFromName(value, options.job.precision.compute))
            std::exit(2);
        if (key == "--threads")
            options.threads = static_cast<int>(number);
        if (key == "--seconds")
            options.seconds = static_cast<double>(number);
        spec::Model &model = options.job.model;
        for (auto [name, place] : {std::pair{"--layers", &model.layers},
                                   {"--hidden", &model.hidden},
                                   {"--heads", &model.heads},
                                   {"--seq", &model.seq},
                                   {"--vocab", &model.vocab},
                                   {"--micro", &options.job.batch.micro}}) {
            if (key == name)
                *place = number;
        }
    }
    options.job.batch.global = options.job.batch.micro;
    if (options.job.precision.compute == DType::F64)
        options.job.precision.grad = options.job.precision.master = options.job.precision.reduce = DType::F64;
    return options;
}

struct Row {
    double milliseconds = 0;
    double flops = 0;
};

std::string kindOf(const plan::Op &op)
{
    std::string name = plan::nameOf(op.kind);
    if (op.unit.kind != plan::UnitKind::None)
        name = std::string(plan::nameOf(op.unit.kind)) + "." + plan::nameOf(op.segment) + " " + name;
    return name;
}

} // namespace

int main(int count, char **arguments)
{
    const Options options = parse(count, arguments);
    const spec::JobSpec &job = options.job;
    const auto device = exec::makeCpuDevice(options.threads);
    kernels::test::Harness harness(job, *device);
    std::mt19937 engine(1);
    std::normal_distribution<double> normal(0, 0.02);
    for (const auto &[name, value] : harness.parameters()) {
        kernels::reference::Values values(value.second.size());
        for (double &v : values)
            v = normal(engine) + (name.ends_with("norm.weight") ? 1 : 0);
        harness.setParameter(name, values);
    }
    const std::int64_t tokens = job.batch.micro * job.model.seq;
    std::vector<std::int32_t> inputs(static_cast<std::size_t>(tokens)), labels(inputs.size());
    for (std::size_t i = 0; i < inputs.size(); ++i) {
        inputs[i] = static_cast<std::int32_t>(engine() % static_cast<unsigned>(job.model.vocab));
        labels[i] = static_cast<std::int32_t>(engine() % static_cast<unsigned>(job.model.vocab));
    }
    harness.state().lr = 1e-4;
    harness.clock = options.threads == 1 ? threadCpuNs : monotonicNs;

    std::vector<std::int64_t> best;
    std::int64_t bestStep = INT64_MAX, steps = 0;
    for (const std::int64_t end = monotonicNs() + static_cast<std::int64_t>(options.seconds * 1e9);
         monotonicNs() < end || steps < 3; ++steps) {
        const std::int64_t begin = harness.clock();
        harness.train(inputs, labels, true);
        bestStep = std::min(bestStep, harness.clock() - begin);
        if (best.empty())
            best = harness.times();
        for (std::size_t i = 0; i < best.size(); ++i)
            best[i] = std::min(best[i], harness.times()[i]);
    }
    const plan::StepProgram &program = harness.plan().program(plan::ProgramKind::Train, 0);
    std::map<std::string, Row> rows;
    double total = 0;
    for (const plan::Op &op : program.ops) {
        Row &row = rows[kindOf(op)];
        row.milliseconds += static_cast<double>(best[static_cast<std::size_t>(op.id)]) / 1e6;
        row.flops += static_cast<double>(op.flops);
        total += static_cast<double>(best[static_cast<std::size_t>(op.id)]) / 1e6;
    }
    std::printf("%s, %s; %lld steps, best %.1f ms, sum of the ops' best %.1f ms, %.0f tokens/s\n",
                device->name().c_str(), nameOf(job.precision.compute), static_cast<long long>(steps),
                static_cast<double>(bestStep) / 1e6, total,
                static_cast<double>(tokens) / (static_cast<double>(bestStep) / 1e9));
    std::vector<std::pair<std::string, Row>> sorted(rows.begin(), rows.end());
    std::sort(sorted.begin(), sorted.end(),
              [](const auto &a, const auto &b) { return a.second.milliseconds > b.second.milliseconds; });
    for (const auto &[name, row] : sorted)
        std::printf("  %-34s %9.2f ms %5.1f %% %8.1f GFLOP/s\n", name.c_str(), row.milliseconds,
                    100 * row.milliseconds / total, row.flops / row.milliseconds / 1e6);
    for (const auto &[name, bytes] : device->libraryWorkspace())
        std::printf("  %s %s\n", name.c_str(), formatBytes(static_cast<double>(bytes)).c_str());
    std::printf("ATen, %d thread(s), per layer or step:\n", options.threads);
    bench::printAtenTimes(job, options.threads);
    return 0;
}
