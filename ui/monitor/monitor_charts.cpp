// SPDX-License-Identifier: GPL-3.0-or-later
#include "ui/monitor/monitor_charts.h"

#include "ui/monitor/values_panel.h"

#include <QComboBox>
#include <QCoreApplication>
#include <QHBoxLayout>

#include <algorithm>
#include <cmath>
#include <limits>

namespace rankyard::ui {

namespace {

constexpr Kind memoryInks[] = {Kind::Parameters, Kind::Gradients, Kind::OptimizerState, Kind::Activations,
                               Kind::Gathered,   Kind::Buckets,   Kind::Workspace,      Kind::Host};
const char *const memoryNames[] = {
    QT_TRANSLATE_NOOP("Monitor", "parameters"), QT_TRANSLATE_NOOP("Monitor", "gradients"),
    QT_TRANSLATE_NOOP("Monitor", "optimizer"),  QT_TRANSLATE_NOOP("Monitor", "activations"),
    QT_TRANSLATE_NOOP("Monitor", "gathered"),   QT_TRANSLATE_NOOP("Monitor", "buckets"),
    QT_TRANSLATE_NOOP("Monitor", "workspace"),  QT_TRANSLATE_NOOP("Monitor", "host")};

struct TimePart {
    const char *name;
    Kind ink;
    std::vector<double> RankColumns::*column;
    const char *tip;
};
const TimePart timeParts[] = {
    {QT_TRANSLATE_NOOP("Monitor", "compute"), Kind::Forward, &RankColumns::computeMs,
     QT_TRANSLATE_NOOP("Monitor", "Forward and backward")},
    {QT_TRANSLATE_NOOP("Monitor", "exposed"), Kind::DataParallel, &RankColumns::exposedMs,
     QT_TRANSLATE_NOOP("Monitor", "Communication that compute had to wait for")},
    {QT_TRANSLATE_NOOP("Monitor", "bubble"), Kind::Bubble, &RankColumns::bubbleMs,
     QT_TRANSLATE_NOOP("Monitor", "Time in which this rank had nothing to do")},
    {QT_TRANSLATE_NOOP("Monitor", "optimizer"), Kind::OptimizerStep, &RankColumns::optimizerMs,
     QT_TRANSLATE_NOOP("Monitor", "From the gradient norm to the updated weights")},
    {QT_TRANSLATE_NOOP("Monitor", "data"), Kind::Copy, &RankColumns::dataMs,
     QT_TRANSLATE_NOOP("Monitor", "Reading the next batch")},
};

QString say(const char *text) { return QCoreApplication::translate("Monitor", text); }

Ink inkOfGroup(const std::string &group, std::size_t index)
{
    if (group.find("tp") != std::string::npos)
        return Ink::of(Kind::TensorParallel);
    if (group.find("pp") != std::string::npos)
        return Ink::of(Kind::Pipeline);
    if (group.find("dp") != std::string::npos)
        return Ink::of(Kind::DataParallel);
    if (group == "world")
        return Ink::of(Kind::Copy);
    return Ink::series(static_cast<int>(index) + 3);
}

bool anyPositive(const std::vector<double> &values)
{
    return std::any_of(values.begin(), values.end(), [](double value) { return value > 0; });
}

} // namespace

MonitorCharts::MonitorCharts(QWidget *parent) : QObject(parent), m_group(new ChartGroup(this))
{
    build(parent);
}

void MonitorCharts::build(QWidget *parent)
{
    using Scale = AxisSpec::Scale;
    m_loss = new Chart(tr("Loss"), m_group, parent);
    m_throughput = new Chart(tr("Throughput"), m_group, parent);
    m_memory = new Chart(tr("Memory"), m_group, parent);
    m_scale = new Chart(tr("Loss scale"), m_group, parent);
    m_time = new Chart(tr("Step time"), m_group, parent);
    m_norm = new Chart(tr("Gradient norm, rate"), m_group, parent);
    m_comm = new Chart(tr("Communication"), m_group, parent);
    m_ranks = new HeatMap(tr("Ranks · step time"), Unit::Milliseconds, m_group, parent);
    m_values = new ValuesPanel(m_group, parent);
    m_lane = new EventLane(m_group, parent);
    m_loss->setLeftAxis({Unit::Number, Scale::Linear, false, false});
    m_throughput->setLeftAxis({Unit::TokensPerSecond, Scale::Linear, true, false});
    m_memory->setLeftAxis({Unit::Bytes, Scale::Linear, true, false});
    m_scale->setLeftAxis({Unit::Power2, Scale::Log2, false, false});
    m_time->setLeftAxis({Unit::Milliseconds, Scale::Linear, true, true});
    m_norm->setLeftAxis({Unit::Number, Scale::Log10, false, false});
    m_comm->setLeftAxis({Unit::Bytes, Scale::Linear, true, false});
    m_panels = {m_loss, m_throughput, m_memory, m_scale, m_time, m_norm, m_comm, m_ranks, m_values};
    m_values->setCharts({m_loss, m_throughput, m_scale, m_norm, m_memory, m_time, m_comm});

    m_rankBox = new QComboBox(m_memory);
    m_rankBox->setAccessibleName(tr("Rank of memory and step time"));
    m_rankBox->setToolTip(tr("Whose memory and step time are shown"));
    m_rankBox->setProperty("compact", true);
    m_rankBox->hide();
    m_memory->headLayout()->insertWidget(1, m_rankBox);
    connect(m_rankBox, &QComboBox::activated, this,
            [this](int index) { setRank(m_rankBox->itemData(index).toInt()); });
    shapeSeries();
}

Chart *MonitorCharts::chart(const QString &name) const
{
    const std::pair<const char *, Chart *> all[] = {{"loss", m_loss},     {"throughput", m_throughput},
                                                    {"memory", m_memory}, {"scale", m_scale},
                                                    {"time", m_time},     {"norm", m_norm},
                                                    {"comm", m_comm}};
    for (const auto &[key, chart] : all) {
        if (name == QLatin1String(key))
            return chart;
    }
    return nullptr;
}

void MonitorCharts::setMode(XMode mode)
{
    if (mode == m_mode)
        return;
    m_mode = mode;
    reset(m_run);
}

void MonitorCharts::setSmoothing(double weight)
{
    m_smoothing = weight;
    for (Chart *chart : {m_loss, m_throughput, m_norm})
        chart->setSmoothing(weight);
    m_values->refresh();
}

void MonitorCharts::setRank(int rank)
{
    if (rank == m_rank)
        return;
    m_rank = rank;
    m_rankDone = 0;
    m_memoryKinds.clear();
    m_timeParts.clear();
    if (m_run)
        update();
}

double MonitorCharts::xOf(std::int64_t step, std::int64_t wallNs) const
{
    switch (m_mode) {
    case XMode::Tokens:
        return static_cast<double>(step)
            * static_cast<double>(std::max<std::int64_t>(1, m_run->job().tokensPerStep()));
    case XMode::Time:
        return static_cast<double>(wallNs - m_originNs) / 1e9;
    case XMode::Step:
        break;
    }
    return static_cast<double>(step);
}

void MonitorCharts::reset(RunData *run)
{
    m_run = run;
    m_leadDone = 0;
    m_rankDone = 0;
    m_heatDone.clear();
    m_evalsDone = 0;
    m_eventsDone = 0;
    m_originNs = 0;
    m_overflows.clear();
    m_memoryKinds.clear();
    m_timeParts.clear();
    m_groups.clear();
    m_hasMfu = false;
    m_ranks->clear();
    m_group->setX(m_mode == XMode::Step         ? Unit::Step
                      : m_mode == XMode::Tokens ? Unit::Count
                                                : Unit::Seconds,
                  m_mode == XMode::Step         ? tr("step")
                      : m_mode == XMode::Tokens ? tr("tokens")
                                                : tr("seconds"));
    m_group->reset();
    for (Chart *chart : {m_loss, m_throughput, m_scale, m_norm})
        chart->clearSeries();
    shapeSeries();
    m_lane->setEvents({});
    m_scale->setMarks({});
    m_loss->setMarks({});
    if (run)
        update();
}

bool MonitorCharts::shapeChanged() const
{
    if (!m_run)
        return false;
    const RankColumns *lead = m_run->lead();
    if (lead && !m_hasMfu && anyPositive(lead->mfu))
        return true;
    const auto found = m_run->ranks().find(m_rank);
    if (found == m_run->ranks().end())
        return false;
    const RankColumns &columns = found->second;
    if (columns.comm.size() != m_groups.size())
        return true;
    for (int kind = 0; kind < plan::memoryKindCount; ++kind) {
        if (std::find(m_memoryKinds.begin(), m_memoryKinds.end(), kind) == m_memoryKinds.end()
            && anyPositive(columns.memory[static_cast<std::size_t>(kind)]))
            return true;
    }
    for (int part = 0; part < static_cast<int>(std::size(timeParts)); ++part) {
        if (std::find(m_timeParts.begin(), m_timeParts.end(), part) == m_timeParts.end()
            && anyPositive(columns.*timeParts[part].column))
            return true;
    }
    return false;
}

/// Gives the charts the series that the run has; what is zero everywhere has no legend entry.
void MonitorCharts::shapeSeries()
{
    if (m_loss->seriesCount() == 0) {
        m_loss->addSeries({tr("train"),
                           Ink::series(0),
                           Unit::Number,
                           SeriesSpec::Draw::Line,
                           true,
                           false,
                           false,
                           {},
                           tr("train loss")});
        m_loss->addSeries({tr("valid"), Ink::series(1), Unit::Number, SeriesSpec::Draw::Points, false, false,
                           false, tr("Loss on the fixed validation set"), tr("valid loss")});
        m_scale->addSeries({tr("scale"),
                            Ink::series(4),
                            Unit::Power2,
                            SeriesSpec::Draw::Step,
                            false,
                            false,
                            false,
                            {},
                            tr("loss scale")});
        m_norm->addSeries({tr("norm"), Ink::series(3), Unit::Number, SeriesSpec::Draw::Line, true, false,
                           false, tr("Before clipping"), tr("gradient norm")});
        m_norm->addSeries({tr("lr"), Ink::series(6), Unit::Scientific, SeriesSpec::Draw::Line, false, true,
                           false, tr("Learning rate"), tr("learning rate")});
        m_norm->setRightAxis(AxisSpec{Unit::Scientific, AxisSpec::Scale::Linear, true, false});
    }
    const RankColumns *lead = m_run ? m_run->lead() : nullptr;
    m_hasMfu = lead && anyPositive(lead->mfu);
    if (m_throughput->seriesCount() != (m_hasMfu ? 2 : 1)) {
        m_throughput->clearSeries();
        m_throughput->addSeries(
            {tr("tokens/s"), Ink::series(2), Unit::TokensPerSecond, SeriesSpec::Draw::Line, true});
        if (m_hasMfu)
            m_throughput->addSeries({tr("MFU"), Ink::series(5), Unit::Percent, SeriesSpec::Draw::Line, true,
                                     true, false,
                                     tr("Model FLOPs per second as a part of what the device can do")});
        m_throughput->setRightAxis(
            m_hasMfu ? std::optional<AxisSpec>({Unit::Percent, AxisSpec::Scale::Linear, true, false})
                     : std::nullopt);
        m_leadDone = 0;
        for (Chart *chart : {m_loss, m_scale, m_norm}) {
            for (int i = 0; i < chart->seriesCount(); ++i) {
                if (!(chart == m_loss && i == 1))
                    chart->model(i).clear();
            }
        }
        m_overflows.clear();
    }
    setSmoothing(m_smoothing);

    m_memory->clearSeries();
    m_time->clearSeries();
    m_comm->clearSeries();
    m_rankDone = 0;
    m_memoryKinds.clear();
    m_timeParts.clear();
    m_groups.clear();
    const auto found = m_run ? m_run->ranks().find(m_rank) : std::map<int, RankColumns>::const_iterator();
    if (!m_run || found == m_run->ranks().end())
        return;
    const RankColumns &columns = found->second;
    m_memory->setNote(tr("now"), {});
    if (const auto predicted = m_run->predictedBytes(m_rank))
        m_memory->setReference(tr("predicted"), *predicted);
    for (int kind = 0; kind < plan::memoryKindCount; ++kind) {
        if (!anyPositive(columns.memory[static_cast<std::size_t>(kind)]))
            continue;
        m_memoryKinds.push_back(kind);
        m_memory->addSeries(
            {say(memoryNames[kind]), Ink::of(memoryInks[kind]), Unit::Bytes, SeriesSpec::Draw::Area});
    }
    for (int part = 0; part < static_cast<int>(std::size(timeParts)); ++part) {
        if (!anyPositive(columns.*timeParts[part].column))
            continue;
        m_timeParts.push_back(part);
        const int series =
            m_time->addSeries({say(timeParts[part].name), Ink::of(timeParts[part].ink), Unit::Milliseconds,
                               SeriesSpec::Draw::Area, false, false, false, say(timeParts[part].tip)});
        m_time->setLegendValue(series, {});
    }
    m_comm->setNote(tr("hidden"), {});
    for (const auto &[name, figures] : columns.comm) {
        m_comm->addSeries(
            {QString::fromStdString(name), inkOfGroup(name, m_groups.size()), Unit::Bytes,
             SeriesSpec::Draw::Area, false, false, false,
             tr("Bytes that the group “%1” moves in a step").arg(QString::fromStdString(name))});
        m_groups.push_back(name);
    }
}

void MonitorCharts::put(Chart *chart, int series, double x, double y)
{
    SeriesModel &model = chart->model(series);
    // Clocks may stand still or step back: the order of steps is what counts.
    if (!model.empty() && x <= model.x().back())
        x = std::nextafter(model.x().back() + 1e-6, std::numeric_limits<double>::infinity());
    model.append(x, y);
}

void MonitorCharts::appendLead(const RankColumns &lead)
{
    for (std::size_t at = m_leadDone; at < lead.size(); ++at) {
        const double x = xOf(lead.step[at], lead.wallNs[at]);
        put(m_loss, 0, x, lead.loss[at]);
        put(m_scale, 0, x, lead.lossScale[at]);
        put(m_norm, 0, x, lead.gradNorm[at]);
        put(m_norm, 1, x, lead.lr[at]);
        put(m_throughput, 0, x, lead.tokensPerS[at]);
        if (m_hasMfu)
            put(m_throughput, 1, x, lead.mfu[at] * 100);
        if (lead.overflow[at])
            m_overflows.push_back({x, Ink::of(Token::Bad), tr("overflow")});
    }
    m_leadDone = lead.size();
}

void MonitorCharts::appendRank(const RankColumns &columns)
{
    for (std::size_t at = m_rankDone; at < columns.size(); ++at) {
        const double x = xOf(columns.step[at], columns.wallNs[at]);
        for (std::size_t i = 0; i < m_memoryKinds.size(); ++i)
            put(m_memory, static_cast<int>(i), x,
                columns.memory[static_cast<std::size_t>(m_memoryKinds[i])][at]);
        for (std::size_t i = 0; i < m_timeParts.size(); ++i)
            put(m_time, static_cast<int>(i), x, (columns.*timeParts[m_timeParts[i]].column)[at]);
        for (std::size_t i = 0; i < m_groups.size(); ++i)
            put(m_comm, static_cast<int>(i), x, columns.comm.at(m_groups[i]).payload[at]);
    }
    m_rankDone = columns.size();
    if (columns.size() == 0)
        return;
    double now = 0;
    for (int kind : m_memoryKinds)
        now += columns.memory[static_cast<std::size_t>(kind)].back();
    m_memory->setNote(tr("now"), formatShort(now, Unit::Bytes));
}

void MonitorCharts::appendRanks()
{
    for (const auto &[rank, columns] : m_run->ranks()) {
        std::size_t &done = m_heatDone[rank];
        SeriesModel &row = m_ranks->model(rank);
        for (; done < columns.size(); ++done)
            row.append(xOf(columns.step[done], columns.wallNs[done]), columns.stepMs[done]);
    }
}

double MonitorCharts::hiddenFraction() const
{
    const auto found = m_run ? m_run->ranks().find(m_rank) : std::map<int, RankColumns>::const_iterator();
    if (!m_run || found == m_run->ranks().end())
        return std::numeric_limits<double>::quiet_NaN();
    const RankColumns &columns = found->second;
    const std::size_t from = columns.size() > 50 ? columns.size() - 50 : 0;
    double all = 0;
    double exposed = 0;
    for (const auto &[name, figures] : columns.comm) {
        for (std::size_t at = from; at < columns.size(); ++at) {
            all += figures.ms[at];
            exposed += figures.exposedMs[at];
        }
    }
    return all > 0 ? std::clamp(1 - exposed / all, 0.0, 1.0) : std::numeric_limits<double>::quiet_NaN();
}

void MonitorCharts::updateMessages()
{
    const JobSummary &job = m_run->job();
    bool scaled = job.scalesLoss();
    if (m_scale->seriesCount() > 0) {
        const auto &values = m_scale->model(0).y();
        scaled = scaled || std::any_of(values.begin(), values.end(), [](double v) { return v != 1; });
    }
    m_scale->setMessage(scaled || m_run->lead() == nullptr
                            ? QString()
                            : tr("Not used: %1 keeps small gradients without a loss scale. It is for fp16.")
                                  .arg(job.compute));
    const bool alone = m_run->info().world == 1 && m_groups.empty();
    m_comm->setMessage(alone && m_run->lead() ? tr("One rank has nobody to talk to.") : QString());
    const double hidden = hiddenFraction();
    if (std::isfinite(hidden))
        m_comm->setNote(tr("hidden"), formatShort(hidden * 100, Unit::Percent));
}

void MonitorCharts::updateRankChoice()
{
    const int count = static_cast<int>(m_run->ranks().size());
    if (m_rankBox->count() != count) {
        m_rankBox->clear();
        for (const auto &[rank, columns] : m_run->ranks())
            m_rankBox->addItem(tr("rank %1").arg(rank), rank);
        m_rankBox->setVisible(count > 1);
    }
    m_rankBox->setCurrentIndex(m_rankBox->findData(m_rank));
    m_time->setTitle(count > 1 ? tr("Step time, rank %1").arg(m_rank) : tr("Step time"));
}

void MonitorCharts::update()
{
    if (!m_run)
        return;
    const RankColumns *lead = m_run->lead();
    if (lead && !m_run->ranks().contains(m_rank))
        m_rank = m_run->ranks().begin()->first;
    if (lead && m_originNs == 0)
        m_originNs = m_run->info().startedNs > 0 ? std::min(m_run->info().startedNs, lead->wallNs.front())
                                                 : lead->wallNs.front();
    if (shapeChanged())
        shapeSeries();
    int added = 0;
    if (lead) {
        added = static_cast<int>(lead->size() - m_leadDone);
        appendLead(*lead);
    }
    if (const auto found = m_run->ranks().find(m_rank); found != m_run->ranks().end())
        appendRank(found->second);
    appendRanks();
    updateEvals();
    updateEvents();
    updateMessages();
    updateRankChoice();
    if (!m_loss->model(0).empty()) {
        const auto &xs = m_loss->model(0).x();
        m_group->setData(xs.front(), xs.back(), added, !telemetry::isTerminal(m_run->info().state));
    }
    for (Chart *chart : {m_loss, m_throughput, m_memory, m_scale, m_time, m_norm, m_comm})
        chart->dataChanged();
    m_ranks->dataChanged();
    m_values->refresh();
}

void MonitorCharts::drawNow()
{
    for (Chart *chart : {m_loss, m_throughput, m_memory, m_scale, m_time, m_norm, m_comm})
        chart->drawNow();
}

} // namespace rankyard::ui
