// SPDX-License-Identifier: GPL-3.0-or-later
// bench_design: how fast the planner and its pages answer. The 96-layer job of hidden 12288 (tp 8, pp 4, dp 32) on 1,024 A100s:
// time to each part of its verdict, alone and on the Design page; layouts weighed a second by the search; times of frames of the
// Cluster page with 10,000 GPUs and of a step's time line with 10^5 spans, panned and zoomed. No display is needed.
#include "engine/cluster/sources.h"
#include "engine/predict/verdict.h"
#include "engine/search/search.h"
#include "ui/cluster/cluster_canvas.h"
#include "ui/cluster/cluster_page.h"
#include "ui/common/actions.h"
#include "ui/common/notices.h"
#include "ui/common/settings.h"
#include "ui/designer/design_document.h"
#include "ui/designer/design_page.h"
#include "ui/designer/step_timeline.h"

#include <QApplication>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>

using namespace rankyard;
using predict::Depth;

namespace {

using Clock = std::chrono::steady_clock;

double msSince(Clock::time_point begin)
{
    return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

double quantile(std::vector<double> values, double share)
{
    std::sort(values.begin(), values.end());
    return values[static_cast<std::size_t>(share * static_cast<double>(values.size() - 1) + 0.5)];
}

void print(const char *what, const std::vector<double> &values, const char *unit, const char *limit = "")
{
    std::printf("%-52s median %8.2f %s, 10 to 90 %%: %.2f to %.2f, p99 %.2f, n %zu%s\n", what,
                quantile(values, 0.5), unit, quantile(values, 0.1), quantile(values, 0.9),
                quantile(values, 0.99), values.size(), limit);
}

/// The job of issue and documentation, 96 layers of hidden 12288 in fp16 with full recomputation, on `dp` replicas.
spec::JobSpec largeJob(std::int64_t dp)
{
    spec::JobSpec job;
    job.name = "96 layers";
    job.data.train = "corpus";
    job.model.layers = 96;
    job.model.hidden = 12288;
    job.model.heads = 96;
    job.model.seq = 2048;
    job.model.vocab = 51200;
    job.layout.tp = 8;
    job.layout.pp = 4;
    job.layout.dp = dp;
    job.batch.global = 1024;
    job.batch.micro = 4;
    job.precision.compute = DType::F16;
    job.recompute.mode = "full";
    job.zero.stage = 1;
    job.cluster = "dgx-a100-80 x 128";
    return job;
}

class NoActions : public ui::RunActions
{
public:
    void startJob(const QString &) override {}
    void perform(Verb, const QString &) override {}
    QString sampleJob() const override { return {}; }
};

void benchVerdict(int rounds)
{
    const spec::JobSpec job = largeJob(32);
    const cluster::Cluster cluster = cluster::openCluster(job.cluster).value();
    const Json document = spec::writeJob(job);
    std::map<Depth, std::vector<double>> times;
    for (int round = 0; round < rounds; ++round) {
        const auto begin = Clock::now();
        predict::Options options;
        options.early = [&](const predict::Verdict &verdict) {
            times[verdict.depth].push_back(msSince(begin));
        };
        (void)predict::judge(job, cluster, document, options);
        times[Depth::Whole].push_back(msSince(begin));
    }
    print("verdict, 1,024 GPUs: closed forms", times[Depth::Closed], "ms", " (at most 50)");
    print("verdict, 1,024 GPUs: time line", times[Depth::Timed], "ms", " (at most 500)");
    print("verdict, 1,024 GPUs: arenas", times[Depth::Whole], "ms");
}

/// From a change of the document to its answers on the page; with a change of before still being worked on.
void benchPage(int rounds)
{
    ui::ActionRegistry registry;
    ui::Settings settings{QString()};
    ui::Notices notices;
    NoActions actions;
    ui::DesignPage page({&registry, &settings, &notices, &actions});
    page.resize(1280, 760);
    page.show();
    std::map<Depth, std::vector<double>> times;
    std::vector<double> after;
    Clock::time_point begin;
    bool whole = false;
    bool closed = false;
    bool count = false;
    QObject::connect(&page, &ui::DesignPage::answered, &page, [&](Depth depth) {
        closed = true;
        whole = depth == Depth::Whole;
        if (count)
            times[depth].push_back(msSince(begin));
    });
    const auto until = [](const bool &done) {
        while (!done)
            QCoreApplication::processEvents(QEventLoop::AllEvents | QEventLoop::WaitForMoreEvents);
    };
    const auto change = [&](std::int64_t steps) {
        whole = closed = false;
        begin = Clock::now();
        page.document()->set("run.steps", steps);
    };
    page.document()->begin(spec::writeJob(largeJob(32)));
    until(whole);
    std::int64_t steps = 1000;
    for (int round = 0; round < rounds; ++round) {
        count = true;
        change(++steps);
        until(whole);
        count = false;
        change(++steps);
        until(closed); // its program is being planned now
        change(++steps);
        until(closed);
        after.push_back(msSince(begin));
        until(whole);
    }
    print("Design page, a change: closed forms drawn", times[Depth::Closed], "ms", " (at most 50)");
    print("Design page, a change: time line drawn", times[Depth::Timed], "ms", " (at most 500)");
    print("Design page, a change: arenas drawn", times[Depth::Whole], "ms");
    print("Design page, while an older change is planned", after, "ms");
}

void benchSearch(int rounds)
{
    const spec::JobSpec job = largeJob(32);
    const auto cost = predict::costModelOf(cluster::openCluster(job.cluster).value());
    search::Options options;
    options.devices = 1024;
    options.price = false;
    std::vector<double> rates;
    std::int64_t evaluated = 0;
    for (int round = 0; round < rounds; ++round) {
        const auto outcome = search::search(job, *cost, options);
        evaluated = outcome->evaluated;
        rates.push_back(1e-6 * static_cast<double>(evaluated) / outcome->seconds);
    }
    print("search, 10^6 layouts a second", rates, "  ", " (at least 1)");
    std::printf("  %lld layouts each time\n", static_cast<long long>(evaluated));
}

/// Zooms in and out and pans all over; the time that each frame takes to draw.
template<typename Step>
std::vector<double> frames(QWidget &widget, int count, Step step)
{
    std::vector<double> times;
    for (int frame = 0; frame < count; ++frame) {
        step(frame);
        const auto begin = Clock::now();
        widget.repaint();
        times.push_back(msSince(begin));
    }
    return times;
}

void benchCluster(int count)
{
    ui::ActionRegistry registry;
    ui::Settings settings{QString()};
    ui::ClusterPage page(&registry, &settings);
    page.resize(1280, 800);
    page.show();
    (void)page.open(QStringLiteral("dgx-h100 x 1250"));
    QCoreApplication::processEvents();
    ui::ClusterCanvas &canvas = *page.canvas();
    canvas.toggleFold();
    QCoreApplication::processEvents();
    const auto times = frames(canvas, count, [&](int frame) {
        const int half = count / 2;
        canvas.zoomAt(QPointF(canvas.rect().center()), frame < half ? 1.02 : 1 / 1.02);
        canvas.panBy({frame % 40 < 20 ? 9.0 : -9.0, frame % 60 < 30 ? 5.0 : -5.0});
    });
    print("frame, Cluster page, 10,000 GPUs", times, "ms", " (p99 at most 16)");
}

void benchTimeline(int count)
{
    const spec::JobSpec job = largeJob(8); // four times the micro-batches
    const auto verdict = std::make_shared<const predict::Verdict>(
        predict::judge(job, cluster::openCluster(job.cluster).value(), spec::writeJob(job)));
    ui::StepTimeline timeline;
    timeline.resize(1280, 400);
    timeline.show();
    timeline.setVerdict(verdict);
    QCoreApplication::processEvents();
    std::size_t spans = 0;
    for (const auto &lane : timeline.lanes())
        spans += lane.spans.size();
    const auto times = frames(timeline, count, [&](int frame) {
        timeline.zoomAt(QPointF(300 + frame % 700, 100), frame < count / 2 ? 1.02 : 1 / 1.02);
        timeline.panBy({frame % 40 < 20 ? -9.0 : 9.0, 0});
    });
    print("frame, time line of a step", times, "ms", " (p99 at most 16)");
    std::printf("  %zu spans\n", spans);
}

} // namespace

int main(int argc, char **argv)
{
    qputenv("QT_QPA_PLATFORM", "offscreen");
    const QApplication application(argc, argv);
    benchVerdict(21);
    benchPage(11);
    benchSearch(7);
    benchCluster(600);
    benchTimeline(600);
    return 0;
}
