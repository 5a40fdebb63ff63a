// SPDX-License-Identifier: GPL-3.0-or-later
// Which series a run's charts have.
#include "ui/monitor/monitor_charts.h"

#include <QCoreApplication>

#include <algorithm>

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

const RankColumns *MonitorCharts::shown() const
{
    if (!m_run || m_rank == allRanks)
        return m_run ? m_run->lead() : nullptr;
    const auto found = m_run->ranks().find(m_rank);
    return found == m_run->ranks().end() ? nullptr : &found->second;
}

bool MonitorCharts::shapeChanged() const
{
    if (!m_run)
        return false;
    const RankColumns *lead = m_run->lead();
    if (lead && !m_hasMfu && anyPositive(lead->mfu))
        return true;
    const RankColumns *shown = this->shown();
    if (!shown)
        return false;
    const RankColumns &columns = *shown;
    if (columns.comm.size() != m_groups.size())
        return true;
    if (m_rank == allRanks)
        return m_time->seriesCount() == 0;
    for (int kind = 0; kind < plan::memoryKindCount; ++kind) {
        if (std::find(m_memoryKinds.begin(), m_memoryKinds.end(), kind) == m_memoryKinds.end()
            && anyPositive(columns.memory[static_cast<std::size_t>(kind)]))
            return true;
    }
    for (const TimePart &part : timeParts) {
        if (std::find(m_timeParts.begin(), m_timeParts.end(), part.column) == m_timeParts.end()
            && anyPositive(columns.*part.column))
            return true;
    }
    return false;
}

/// Gives the charts the series that the run has; what is zero everywhere has no legend entry.
void MonitorCharts::shapeSeries()
{
    shapeLead();
    setSmoothing(m_smoothing);
    m_memory->clearSeries();
    m_time->clearSeries();
    m_comm->clearSeries();
    m_rankDone = 0;
    m_across.clear();
    m_memoryKinds.clear();
    m_timeParts.clear();
    m_groups.clear();
    m_memory->setNote(tr("now"), {}, true);
    m_comm->setNote(tr("hidden"), {});
    const RankColumns *shown = this->shown();
    if (!shown)
        return;
    if (m_rank == allRanks)
        shapeAcross();
    else
        shapeRank(*shown);
    for (const auto &[name, figures] : shown->comm) {
        m_comm->addSeries(
            {QString::fromStdString(name), inkOfGroup(name, m_groups.size()), Unit::Bytes,
             SeriesSpec::Draw::Area, false, false, false,
             tr("Bytes that the group “%1” moves in a step").arg(QString::fromStdString(name))});
        m_groups.push_back(name);
    }
}

/// Loss, norm, rate and scale: the same on all ranks.
void MonitorCharts::shapeLead()
{
    if (m_loss->seriesCount() == 0) {
        m_loss->addSeries({tr("train"), Ink::series(0), Unit::Number, SeriesSpec::Draw::Line, true, false,
                           false, tr("Loss of each step. Dashed and faint: steps that a restart ran again"),
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
}

/// Stacks of one rank.
void MonitorCharts::shapeRank(const RankColumns &columns)
{
    if (const auto predicted = m_run->predictedBytes(m_rank))
        m_memory->setReference(tr("predicted"), *predicted);
    for (int kind = 0; kind < plan::memoryKindCount; ++kind) {
        if (!anyPositive(columns.memory[static_cast<std::size_t>(kind)]))
            continue;
        m_memoryKinds.push_back(kind);
        m_memory->addSeries(
            {say(memoryNames[kind]), Ink::of(memoryInks[kind]), Unit::Bytes, SeriesSpec::Draw::Area});
    }
    for (const TimePart &part : timeParts) {
        if (!anyPositive(columns.*part.column))
            continue;
        m_timeParts.push_back(part.column);
        const int series = m_time->addSeries({say(part.name), Ink::of(part.ink), Unit::Milliseconds,
                                              SeriesSpec::Draw::Area, false, false, false, say(part.tip)});
        m_time->setLegendValue(series, {});
    }
}

/// Least, median and most of all ranks: with many of them the odd one is what matters.
void MonitorCharts::shapeAcross()
{
    const std::pair<QString, int> lines[] = {{tr("most"), 1}, {tr("median"), 0}, {tr("least"), 2}};
    for (const auto &[name, ink] : lines) {
        m_memory->addSeries({name, Ink::series(ink), Unit::Bytes, SeriesSpec::Draw::Line, false, false, false,
                             tr("Memory of the rank that has this much"), tr("memory, %1").arg(name)});
        m_time->addSeries({name, Ink::series(ink), Unit::Milliseconds, SeriesSpec::Draw::Line, false, false,
                           false, tr("Step time of the rank that takes this long"),
                           tr("step time, %1").arg(name)});
    }
    std::optional<double> most;
    for (const auto &[rank, columns] : m_run->ranks()) {
        if (const auto predicted = m_run->predictedBytes(rank))
            most = std::max(most.value_or(0), *predicted);
    }
    m_memory->setReference(tr("predicted"), most);
}

} // namespace rankyard::ui
