// SPDX-License-Identifier: GPL-3.0-or-later
#include "ui/monitor/monitor_charts.h"

#include "ui/common/choice_box.h"
#include "ui/monitor/values_panel.h"

#include <QComboBox>
#include <QCoreApplication>
#include <QHBoxLayout>

#include <algorithm>
#include <cmath>
#include <limits>

namespace rankyard::ui {

namespace {

double memoryOf(const RankColumns &columns, std::size_t at)
{
    double sum = 0;
    for (const auto &kind : columns.memory)
        sum += kind[at];
    return sum;
}

double stepMsOf(const RankColumns &columns, std::size_t at) { return columns.stepMs[at]; }

} // namespace

MonitorCharts::MonitorCharts(QWidget *parent)
    : QObject(parent),
      m_group(new ChartGroup(this)),
      m_across({memoryOf, stepMsOf})
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
    m_ranks = new HeatMap(tr("Ranks"), Unit::Milliseconds, m_group, parent);
    m_values = new ValuesPanel(m_group, parent);
    m_lane = new EventLane(m_group, parent);
    m_loss->setLeftAxis({Unit::Number, Scale::Linear, false, false});
    m_throughput->setLeftAxis({Unit::TokensPerSecond, Scale::Linear, true, false});
    m_memory->setLeftAxis({Unit::Bytes, Scale::Linear, true, false});
    m_scale->setLeftAxis({Unit::Power2, Scale::Log2, false, false});
    m_time->setLeftAxis({Unit::Milliseconds, Scale::Linear, true, true});
    m_norm->setLeftAxis({Unit::Number, Scale::Log10, false, false});
    m_comm->setLeftAxis({Unit::Bytes, Scale::Linear, true, false});
    const std::pair<const char *, QWidget *> named[] = {{"loss", m_loss},     {"throughput", m_throughput},
                                                        {"memory", m_memory}, {"scale", m_scale},
                                                        {"time", m_time},     {"norm", m_norm},
                                                        {"comm", m_comm},     {"ranks", m_ranks},
                                                        {"values", m_values}};
    for (const auto &[name, panel] : named) {
        panel->setProperty("card", QLatin1String(name));
        m_panels.push_back(panel);
    }
    m_values->setCharts({m_loss, m_throughput, m_scale, m_norm, m_memory, m_time, m_comm});

    m_rankBox = new ChoiceBox(m_memory);
    m_rankBox->setAccessibleName(tr("Rank of memory and step time"));
    m_rankBox->setToolTip(tr("Whose memory and step time are shown"));
    m_rankBox->setProperty("compact", true);
    m_rankBox->hide();
    m_memory->headLayout()->insertWidget(1, m_rankBox);
    connect(m_rankBox, &QComboBox::activated, this,
            [this](int index) { setRank(m_rankBox->itemData(index).toInt()); });
    shapeSeries();
}

QString MonitorCharts::nameOf(const QWidget *panel) { return panel->property("card").toString(); }

Chart *MonitorCharts::chart(const QString &name) const
{
    for (QWidget *panel : m_panels) {
        if (nameOf(panel) == name)
            return qobject_cast<Chart *>(panel);
    }
    return nullptr;
}

std::vector<Chart *> MonitorCharts::charts() const
{
    return {m_loss, m_throughput, m_memory, m_scale, m_time, m_norm, m_comm};
}

bool MonitorCharts::isUsed(const QWidget *panel) const
{
    if (panel == m_scale || panel == m_comm)
        return static_cast<const Chart *>(panel)->message().isEmpty();
    return panel != m_ranks || !m_run || !m_run->lead() || m_run->info().world > 1;
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
    m_rankChosen = true;
    if (m_run) {
        shapeSeries();
        update();
    }
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
    m_rank = 0;
    m_rankChosen = false;
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
    if (run)
        addTails();
    m_lane->setEvents({});
    m_scale->setMarks({});
    m_loss->setMarks({});
    if (run)
        update();
}

void MonitorCharts::put(Chart *chart, int series, double x, double y)
{
    SeriesModel &model = chart->model(series);
    // Clocks may stand still or step back: the order of steps is what counts.
    if (!model.empty() && x <= model.x().back())
        x = std::nextafter(model.x().back() + 1e-6, std::numeric_limits<double>::infinity());
    model.append(x, y);
}

void MonitorCharts::addTails()
{
    for (const RankColumns &tail : m_run->tails()) {
        SeriesModel &loss = m_loss->addTail(0);
        SeriesModel &norm = m_norm->addTail(0);
        for (std::size_t at = 0; at < tail.size(); ++at) {
            // By the clock the tail came before the restart, where it stands beside nothing: steps are what it is compared by.
            if (m_mode == XMode::Time)
                continue;
            const double x = xOf(tail.step[at], tail.wallNs[at]);
            loss.append(x, tail.loss[at]);
            norm.append(x, tail.gradNorm[at]);
        }
    }
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
            put(m_time, static_cast<int>(i), x, (columns.*m_timeParts[i])[at]);
        for (std::size_t i = 0; i < m_groups.size(); ++i)
            put(m_comm, static_cast<int>(i), x, columns.comm.at(m_groups[i]).payload[at]);
    }
    m_rankDone = columns.size();
    if (columns.size() == 0 || m_rank == allRanks)
        return;
    double now = 0;
    for (int kind : m_memoryKinds)
        now += columns.memory[static_cast<std::size_t>(kind)].back();
    m_memory->setNote(tr("now"), formatShort(now, Unit::Bytes));
}

void MonitorCharts::appendAcross()
{
    m_across.update(m_run->ranks(), [this](std::int64_t step, std::int64_t wallNs, const auto &figures) {
        const double x = xOf(step, wallNs);
        for (int i = 0; i < 2; ++i) {
            Chart *chart = i == 0 ? m_memory : m_time;
            const AcrossRanks::Spread &spread = figures[static_cast<std::size_t>(i)];
            put(chart, 0, x, spread.most);
            put(chart, 1, x, spread.median);
            put(chart, 2, x, spread.least);
        }
    });
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
    const RankColumns *shown = this->shown();
    if (!shown)
        return std::numeric_limits<double>::quiet_NaN();
    const RankColumns &columns = *shown;
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
    m_values->setFacts(
        m_scale->message().isEmpty()
            ? std::vector<ValuesPanel::Fact>()
            : std::vector<ValuesPanel::Fact>{{tr("loss scale"), tr("not used"), m_scale->message()}});
    const bool alone = m_run->info().world == 1 && m_groups.empty();
    m_comm->setMessage(alone && m_run->lead() ? tr("One rank has nobody to talk to.") : QString());
    std::vector<bool> used;
    for (const QWidget *panel : m_panels)
        used.push_back(isUsed(panel));
    if (used != m_used) {
        m_used = std::move(used);
        emit panelsChanged();
    }
    const double hidden = hiddenFraction();
    if (std::isfinite(hidden))
        m_comm->setNote(tr("hidden"), formatShort(hidden * 100, Unit::Percent));
}

void MonitorCharts::updateRankChoice()
{
    const int count = static_cast<int>(m_run->ranks().size());
    if (m_rankBox->count() != count + (count > mostSingleRanks ? 1 : 0)) {
        m_rankBox->clear();
        if (count > mostSingleRanks)
            m_rankBox->addItem(tr("all ranks"), allRanks);
        for (const auto &[rank, columns] : m_run->ranks())
            m_rankBox->addItem(tr("rank %1").arg(rank), rank);
        m_rankBox->setVisible(count > 1);
    }
    m_rankBox->setCurrentIndex(m_rankBox->findData(m_rank));
    m_time->setTitle(count < 2                ? tr("Step time")
                         : m_rank == allRanks ? tr("Step time, all ranks")
                                              : tr("Step time, rank %1").arg(m_rank));
}

void MonitorCharts::update()
{
    if (!m_run)
        return;
    const RankColumns *lead = m_run->lead();
    if (!m_rankChosen && m_run->info().world > mostSingleRanks)
        m_rank = allRanks;
    if (lead && m_rank != allRanks && !m_run->ranks().contains(m_rank))
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
    if (const RankColumns *shown = this->shown())
        appendRank(*shown);
    if (m_rank == allRanks && lead)
        appendAcross();
    appendRanks();
    updateEvals();
    updateEvents();
    updateMessages();
    updateRankChoice();
    if (!m_loss->model(0).empty()) {
        const auto &xs = m_loss->model(0).x();
        m_group->setData(xs.front(), xs.back(), added, !telemetry::isTerminal(m_run->info().state));
    }
    for (Chart *chart : charts())
        chart->dataChanged();
    m_ranks->dataChanged();
    m_values->refresh();
}

void MonitorCharts::drawNow()
{
    for (Chart *chart : charts())
        chart->drawNow();
}

} // namespace rankyard::ui
