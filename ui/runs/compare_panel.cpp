// SPDX-License-Identifier: GPL-3.0-or-later
#include "ui/runs/compare_panel.h"

#include "ui/plot/chart.h"
#include "ui/runs/difference_model.h"

#include <QHBoxLayout>
#include <QHeaderView>
#include <QLabel>
#include <QSet>
#include <QTableView>
#include <QVBoxLayout>

#include <algorithm>

namespace rankyard::ui {

namespace {
constexpr int mostRuns = 12;
}

ComparePanel::ComparePanel(DataHub *hub, QWidget *parent)
    : QWidget(parent),
      m_hub(hub),
      m_group(new ChartGroup(this)),
      m_chart(new Chart(tr("Loss"), m_group, this)),
      m_differences(new DifferenceModel(this)),
      m_table(new QTableView(this)),
      m_same(new QLabel(this))
{
    auto *row = new QHBoxLayout(this);
    row->setContentsMargins(12, 12, 12, 12);
    row->setSpacing(12);
    row->addWidget(m_chart, 3);
    auto *panel = new Panel(tr("Differences"), this);
    panel->headLayout()->addStretch(1);
    m_table->setModel(m_differences);
    m_table->setShowGrid(false);
    m_table->verticalHeader()->hide();
    m_table->horizontalHeader()->setStretchLastSection(true);
    m_table->horizontalHeader()->setHighlightSections(false);
    m_table->setSelectionBehavior(QAbstractItemView::SelectRows);
    m_table->setEditTriggers(QAbstractItemView::NoEditTriggers);
    m_table->setAccessibleName(tr("Keys in which the selected jobs differ"));
    m_same->setAlignment(Qt::AlignCenter);
    m_same->setWordWrap(true);
    m_same->setProperty("tone", "muted");
    panel->body()->addWidget(m_table, 1);
    panel->body()->addWidget(m_same, 1);
    row->addWidget(panel, 2);
    m_chart->setLeftAxis({Unit::Number, AxisSpec::Scale::Linear, false, false});
}

bool ComparePanel::isLoaded() const
{
    return std::all_of(m_runs.begin(), m_runs.end(),
                       [](const auto &run) { return run->isLoaded() || run->error(); });
}

void ComparePanel::setSmoothing(double weight) { m_chart->setSmoothing(weight); }

void ComparePanel::setRuns(const QStringList &runs)
{
    std::vector<std::shared_ptr<RunData>> fresh;
    for (const QString &id : runs.mid(0, mostRuns))
        fresh.push_back(m_hub->open(id));
    if (fresh == m_runs)
        return;
    for (const auto &run : m_runs)
        disconnect(run.get(), nullptr, this, nullptr);
    m_runs = std::move(fresh);
    m_chart->clearSeries();
    m_group->reset();
    for (std::size_t i = 0; i < m_runs.size(); ++i) {
        SeriesSpec spec;
        spec.name = m_runs[i]->id();
        spec.ink = Ink::series(static_cast<int>(i));
        spec.smooth = true;
        spec.dashed = i >= seriesCount;
        if (const store::RunInfo *info = m_hub->find(m_runs[i]->id()))
            spec.name = QString::fromStdString(info->name);
        // Two runs of one name are told apart by the end of their ids.
        const auto sameName = [&](const std::shared_ptr<RunData> &other) {
            const store::RunInfo *info = m_hub->find(other->id());
            return other != m_runs[i] && info && QString::fromStdString(info->name) == spec.name;
        };
        if (std::any_of(m_runs.begin(), m_runs.end(), sameName))
            spec.name += QLatin1Char(' ') + m_runs[i]->id().right(6);
        m_chart->addSeries(spec);
        connect(m_runs[i].get(), &RunData::changed, this, &ComparePanel::refill);
        connect(m_runs[i].get(), &RunData::cleared, this,
                [this, i] { m_chart->model(static_cast<int>(i)).clear(); });
    }
    refillDifferences();
    refill();
}

void ComparePanel::refill()
{
    double last = 0;
    int added = 0;
    bool open = false;
    for (std::size_t i = 0; i < m_runs.size(); ++i) {
        const RankColumns *lead = m_runs[i]->lead();
        SeriesModel &model = m_chart->model(static_cast<int>(i));
        open = open || telemetry::isLive(m_runs[i]->info().state);
        if (!lead)
            continue;
        for (std::size_t at = model.size(); at < lead->size(); ++at)
            added += model.append(static_cast<double>(lead->step[at]), lead->loss[at]);
        last = std::max(last, static_cast<double>(lead->step.back()));
    }
    if (last > 0)
        m_group->setData(1, last, added, open);
    m_chart->dataChanged();
    if (isLoaded())
        emit loaded();
}

void ComparePanel::refillDifferences()
{
    std::vector<std::pair<QString, std::string>> jobs;
    for (std::size_t i = 0; i < m_runs.size(); ++i) {
        if (const store::RunInfo *info = m_hub->find(m_runs[i]->id()))
            jobs.emplace_back(m_chart->spec(static_cast<int>(i)).name, info->job);
    }
    m_differences->setJobs(jobs);
    const bool any = m_differences->rowCount() > 0;
    m_table->setVisible(any);
    m_same->setVisible(!any);
    m_same->setText(jobs.size() < 2 ? tr("Select two or more runs to see in which keys their jobs differ.")
                                    : tr("The jobs are the same in every key."));
    m_table->resizeColumnsToContents();
}

} // namespace rankyard::ui
