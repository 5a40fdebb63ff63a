// SPDX-License-Identifier: GPL-3.0-or-later
#include "ui/designer/search_view.h"

#include "ui/common/elided_label.h"
#include "ui/common/format.h"
#include "ui/common/theme.h"
#include "ui/designer/layout_scatter.h"
#include "ui/designer/search_task.h"

#include <QHBoxLayout>
#include <QHeaderView>
#include <QLabel>
#include <QProgressBar>
#include <QPushButton>
#include <QTableView>
#include <QVBoxLayout>

#include <algorithm>
#include <cmath>

namespace rankyard::ui {

namespace {

/// What was found, then what it costs; the layout gives way where there is no room for both, and its tooltip has all of it.
enum class Column { Step, Layout, Peak, Left, Mfu, Why };

bool isNumber(Column column) { return column != Column::Layout && column != Column::Why; }

} // namespace

void SearchModel::setOutcome(std::shared_ptr<const search::Outcome> outcome)
{
    beginResetModel();
    m_outcome = std::move(outcome);
    m_rows.clear();
    if (m_outcome) {
        for (const auto &candidate : m_outcome->best)
            m_rows.push_back({&candidate, true});
        for (const auto &candidate : m_outcome->near)
            m_rows.push_back({&candidate, false});
    }
    endResetModel();
}

int SearchModel::rowCount(const QModelIndex &parent) const
{
    return parent.isValid() ? 0 : static_cast<int>(m_rows.size());
}

QVariant SearchModel::data(const QModelIndex &index, int role) const
{
    if (!index.isValid())
        return {};
    const Row &row = m_rows[static_cast<std::size_t>(index.row())];
    const search::Candidate &what = *row.candidate;
    const auto column = static_cast<Column>(index.column());
    if (role == Qt::ForegroundRole && !row.fits)
        return Theme::instance().color(Token::Warn);
    if (role == Qt::FontRole)
        return Theme::instance().font(column == Column::Why ? FontRole::Small : FontRole::MonoSmall);
    if (role == Qt::TextAlignmentRole && isNumber(column))
        return QVariant::fromValue(Qt::Alignment(Qt::AlignRight | Qt::AlignVCenter));
    if (role == Qt::ToolTipRole && !isNumber(column))
        return column == Column::Layout ? QString::fromStdString(search::textOf(what.choice))
                                        : QString::fromStdString(what.why);
    if (role != Qt::DisplayRole)
        return {};
    switch (column) {
    case Column::Layout:
        return QString::fromStdString(search::textOf(what.choice));
    case Column::Step:
        return formatSeconds(what.time.seconds);
    case Column::Mfu:
        return formatShort(100 * what.mfu, Unit::Percent);
    case Column::Peak:
        return formatValue(what.bytes, Unit::Bytes);
    case Column::Left:
        return what.margin >= 0 ? formatValue(what.margin, Unit::Bytes)
                                : QStringLiteral("−") + formatValue(-what.margin, Unit::Bytes);
    case Column::Why:
        break;
    }
    return QString::fromStdString(what.why);
}

QVariant SearchModel::headerData(int section, Qt::Orientation orientation, int role) const
{
    if (orientation != Qt::Horizontal)
        return {};
    if (role == Qt::TextAlignmentRole)
        return QVariant::fromValue(Qt::Alignment(
            (isNumber(static_cast<Column>(section)) ? Qt::AlignRight : Qt::AlignLeft) | Qt::AlignVCenter));
    if (role != Qt::DisplayRole)
        return {};
    const QString names[] = {tr("Step"), tr("Layout"), tr("Peak"), tr("Left"), tr("MFU"), tr("Bound by")};
    return names[section];
}

namespace {

/// What a search depends on: the job without its layout and without what neither memory nor time know of.
spec::JobSpec questionOf(const spec::JobSpec &job)
{
    spec::JobSpec question = search::jobOf(job, {});
    question.name.clear();
    question.cluster.clear();
    question.init = {};
    question.data = {};
    question.lrSchedule = {};
    question.run = {};
    question.run.threads = job.run.threads;
    question.optimizer = {};
    question.optimizer.kind = job.optimizer.kind;
    return question;
}

} // namespace

SearchView::SearchView(QWidget *parent)
    : QWidget(parent),
      m_task(new SearchTask(this)),
      m_model(new SearchModel(this)),
      m_table(new QTableView(this)),
      m_scatter(new LayoutScatter(this)),
      m_start(new QPushButton(this)),
      m_use(new QPushButton(tr("Use this layout"), this)),
      m_bar(new QProgressBar(this)),
      m_summary(new QLabel(this)),
      m_rejected(new ElidedLabel(this))
{
    auto *column = new QVBoxLayout(this);
    column->setContentsMargins(12, 4, 12, 8);
    column->setSpacing(8);
    auto *row = m_row = new QHBoxLayout;
    row->setSpacing(8);
    m_summary->setWordWrap(true);
    m_summary->setProperty("data", true);
    m_summary->setProperty("tone", "muted");
    setRole(m_summary, FontRole::Small);
    row->addWidget(m_summary, 1);
    row->addWidget(m_use);
    row->addWidget(m_start);
    column->addLayout(row);
    m_rejected->setProperty("data", true);
    m_rejected->setProperty("tone", "muted");
    setRole(m_rejected, FontRole::Small);
    column->addWidget(m_rejected);
    m_bar->setRange(0, 1000);
    m_bar->setTextVisible(false);
    m_bar->setFixedHeight(6);
    m_bar->setAccessibleName(tr("Progress of the search"));
    column->addWidget(m_bar);
    auto *across = new QHBoxLayout;
    across->setSpacing(12);
    across->addWidget(m_scatter, 2);
    across->addWidget(m_table, 5);
    column->addLayout(across, 1);
    m_table->setModel(m_model);
    m_table->setAccessibleName(tr("Layouts that were found"));
    m_table->setSelectionBehavior(QAbstractItemView::SelectRows);
    m_table->setSelectionMode(QAbstractItemView::SingleSelection);
    m_table->setProperty("plain", true);
    for (QWidget *drawn : {static_cast<QWidget *>(m_table), static_cast<QWidget *>(m_scatter)}) {
        drawn->setSizePolicy(QSizePolicy::Expanding, QSizePolicy::Ignored); // they live with what is left
        drawn->setMinimumHeight(80);
    }
    m_table->setShowGrid(false);
    m_table->setWordWrap(false);
    m_table->setTabKeyNavigation(false);
    m_table->verticalHeader()->hide();
    m_table->horizontalHeader()->setStretchLastSection(true);
    m_table->horizontalHeader()->setHighlightSections(false);
    connect(m_start, &QPushButton::clicked, this, [this] { m_task->isRunning() ? cancel() : start(); });
    connect(m_use, &QPushButton::clicked, this, [this] {
        if (m_table->currentIndex().isValid())
            emit chosen(m_model->candidate(m_table->currentIndex().row()).choice);
    });
    connect(m_table, &QTableView::activated, this,
            [this](const QModelIndex &index) { emit chosen(m_model->candidate(index.row()).choice); });
    connect(m_table->selectionModel(), &QItemSelectionModel::currentChanged, this, &SearchView::refresh);
    connect(m_scatter, &LayoutScatter::chosen, this,
            [this](const search::Candidate &candidate) { emit chosen(candidate.choice); });
    connect(m_task, &LongWork::changed, this, &SearchView::refresh);
    connect(m_task, &SearchTask::finished, this, &SearchView::take);
    connect(m_task, &SearchTask::failed, this, [this](const Error &error) {
        refresh();
        m_summary->setText(QString::fromStdString(error.text()));
    });
    refresh();
}

void SearchView::setDesign(const std::optional<spec::JobSpec> &job,
                           std::shared_ptr<const cluster::Cluster> cluster)
{
    m_job = job;
    m_cluster = std::move(cluster);
    refresh();
}

void SearchView::start()
{
    if (!m_job || !m_cluster || m_task->isRunning())
        return;
    m_asked = questionOf(*m_job);
    m_askedOf = m_cluster;
    m_task->start(*m_job, m_cluster);
}

void SearchView::startUnlessFound()
{
    if (!m_outcome || m_outcome->cancelled || isStale())
        start();
}

bool SearchView::isStale() const
{
    // One that cannot be read has no question; its layout may be what is wrong, and what was found the way out.
    return m_outcome && m_job
        && (!m_cluster || !(*m_cluster == *m_askedOf)
            || spec::writeJob(questionOf(*m_job)) != spec::writeJob(*m_asked));
}

void SearchView::cancel() { m_task->cancel(); }

/// Step, layout, peak and what is left are seen without scrolling, as long as there is something to see of the layout.
void SearchView::shareColumns()
{
    int room = m_table->viewport()->width();
    for (const Column column : {Column::Step, Column::Peak, Column::Left})
        room -= m_table->columnWidth(static_cast<int>(column));
    const int least = 16 * QFontMetrics(Theme::instance().font(FontRole::MonoSmall)).averageCharWidth();
    m_table->setColumnWidth(static_cast<int>(Column::Layout), std::min(m_layoutWidth, std::max(room, least)));
}

bool SearchView::isNarrow() const { return width() < 50 * fontMetrics().averageCharWidth(); }

/// Where the text is large or the drawer narrow the buttons go below the summary, and the table has all of the width.
void SearchView::resizeEvent(QResizeEvent *event)
{
    QWidget::resizeEvent(event);
    m_row->setDirection(isNarrow() ? QBoxLayout::TopToBottom : QBoxLayout::LeftToRight);
    m_scatter->setMinimumWidth(std::min(Theme::instance().scaled(220), width() / 2));
    m_scatter->setVisible(!isNarrow() && m_model->rowCount() > 0);
    shareColumns();
}

void SearchView::take(const std::shared_ptr<const search::Outcome> &outcome)
{
    m_outcome = outcome;
    m_model->setOutcome(outcome);
    m_scatter->setOutcome(outcome);
    m_table->resizeColumnsToContents();
    m_layoutWidth = m_table->columnWidth(static_cast<int>(Column::Layout));
    shareColumns();
    if (m_model->rowCount() > 0)
        m_table->setCurrentIndex(m_model->index(0, 0));
    const bool waited = m_start->hasFocus();
    refresh();
    if (waited && m_model->rowCount() > 0)
        m_table->setFocus(Qt::TabFocusReason);
}

QWidget *SearchView::entry() const
{
    return m_model->rowCount() > 0 && !m_task->isRunning() ? static_cast<QWidget *>(m_table) : m_start;
}

QString SearchView::summary() const { return m_summary->text(); }

void SearchView::refresh()
{
    const bool running = m_task->isRunning();
    m_start->setText(running ? tr("Cancel") : tr("Search layouts"));
    m_start->setEnabled(running || (m_job && m_cluster));
    m_bar->setVisible(running);
    m_bar->setValue(static_cast<int>(m_bar->maximum() * m_task->share()));
    const bool found = m_model->rowCount() > 0;
    const bool stale = isStale();
    m_use->setEnabled(found && m_table->currentIndex().isValid() && !running && !stale);
    m_table->setEnabled(!stale);
    m_scatter->setEnabled(!stale);
    m_use->setVisible(found);
    m_table->setVisible(found);
    m_scatter->setVisible(found && !isNarrow());
    m_rejected->setVisible(false);
    if (running) {
        const QString doing = m_task->doing().isEmpty() ? tr("weighing every legal layout") : m_task->doing();
        m_summary->setText(tr("%1: %2").arg(m_task->progress(), doing));
        return;
    }
    if (!m_outcome) {
        m_summary->setText(
            m_job ? tr(
                "Weighs every legal layout of this model on the cluster, and prices the best by their programs.")
                  : tr("The layouts of a job that can run are searched here."));
        return;
    }
    if (stale) {
        m_summary->setText(tr("Found for another model, batch or cluster: search again"));
        return;
    }
    QStringList parts{tr("%1 layouts in %2, the best priced in %3")
                          .arg(formatValue(static_cast<double>(m_outcome->evaluated), Unit::Count),
                               formatSeconds(m_outcome->seconds), formatSeconds(m_outcome->pricingSeconds))};
    if (m_outcome->cancelled)
        parts << tr("cancelled");
    if (!found)
        parts << tr("none of them fits");
    const search::Candidate &now = m_outcome->current;
    if (!m_outcome->best.empty() && now.time.seconds > 0 && now.margin >= 0 && m_job
        && search::choiceOf(*m_job) == m_outcome->own)
        parts << tr("the best takes %1 of the present step's time")
                     .arg(formatShort(100 * m_outcome->best.front().time.seconds / now.time.seconds,
                                      Unit::Percent));
    std::vector<std::pair<std::int64_t, std::string>> rules;
    for (const auto &[rule, count] : m_outcome->rejected)
        rules.emplace_back(count, rule);
    std::sort(rules.rbegin(), rules.rend());
    QStringList reasons;
    for (std::size_t i = 0; i < rules.size(); ++i)
        reasons << QStringLiteral("%1 (%2)").arg(
            QString::fromStdString(rules[i].second),
            formatValue(static_cast<double>(rules[i].first), Unit::Count));
    m_rejected->setVisible(!reasons.isEmpty());
    m_rejected->setFullText(tr("Rejected: %1").arg(reasons.join(QStringLiteral(", "))));
    m_summary->setText(parts.join(QStringLiteral(" · ")));
}

} // namespace rankyard::ui
