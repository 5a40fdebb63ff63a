// SPDX-License-Identifier: GPL-3.0-or-later
#include "ui/designer/compare_view.h"

#include "ui/common/format.h"
#include "ui/common/theme.h"
#include "ui/data/job_summary.h"
#include "ui/designer/verdict_panel.h"

#include <QHBoxLayout>
#include <QHeaderView>
#include <QLabel>
#include <QPushButton>
#include <QTableView>
#include <QVBoxLayout>

#include <cmath>

namespace rankyard::ui {

namespace {

QString answerOf(const predict::Verdict &verdict)
{
    using Answer = predict::Verdict::Answer;
    switch (verdict.answer) {
    case Answer::Fits:
        return CompareModel::tr("fits");
    case Answer::DoesNotFit:
        return CompareModel::tr("does not fit");
    case Answer::NotKnown:
        return CompareModel::tr("runs");
    case Answer::Illegal:
        break;
    }
    return CompareModel::tr("cannot run");
}

/// 1: larger is better, −1: smaller is better, 0: neither.
int goodWay(const std::string &key)
{
    if (key == "step" || key == "target" || key == "peak" || key == "bubble" || key == "work")
        return -1;
    return key == "rate" || key == "mfu" || key == "day" || key == "headroom" ? 1 : 0;
}

} // namespace

void CompareModel::addFigures(const KeptDesign &kept, const KeptDesign &now)
{
    if (!kept.verdict || !now.verdict)
        return;
    const QString answers[] = {answerOf(*kept.verdict), answerOf(*now.verdict)};
    if (answers[0] != answers[1])
        m_rows.push_back({tr("Answer"), answers[0], answers[1]});
    for (const predict::Figure &figure : now.verdict->figures) {
        const predict::Figure *old = kept.verdict->figure(figure.key);
        if (!old || old->value == figure.value)
            continue;
        Row row{QString::fromStdString(figure.name), textOfFigure(*old), textOfFigure(figure)};
        const int way = goodWay(figure.key);
        row.better = way == 0 ? 0 : (figure.value > old->value) == (way > 0) ? 1 : -1;
        if (old->value > 0)
            row.now += QStringLiteral("  (%1%2 %)")
                           .arg(figure.value > old->value ? QStringLiteral("+") : QStringLiteral("−"))
                           .arg(std::fabs(figure.value / old->value - 1) * 100, 0, 'f', 1);
        m_rows.push_back(std::move(row));
    }
    for (const predict::Flow &flow : now.verdict->flows) {
        for (const predict::Flow &old : kept.verdict->flows) {
            if (old.group == flow.group && old.wire != flow.wire)
                m_rows.push_back({tr("Sent by %1 groups").arg(QString::fromStdString(flow.group)),
                                  formatValue(static_cast<double>(old.wire), Unit::Bytes),
                                  formatValue(static_cast<double>(flow.wire), Unit::Bytes),
                                  flow.wire < old.wire ? 1 : -1});
        }
    }
}

void CompareModel::addKeys(const KeptDesign &kept, const KeptDesign &now)
{
    const auto before = flattenJob(dumpJson(kept.document));
    const auto after = flattenJob(dumpJson(now.document));
    for (const auto &[key, value] : after) {
        const auto found = before.find(key);
        const std::string old = found == before.end() ? std::string() : found->second;
        if (old != value)
            m_rows.push_back(
                {QString::fromStdString(key), QString::fromStdString(old), QString::fromStdString(value)});
    }
}

void CompareModel::setDesigns(const std::optional<KeptDesign> &kept, const KeptDesign &now)
{
    beginResetModel();
    m_rows.clear();
    if (kept) {
        addFigures(*kept, now);
        addKeys(*kept, now);
    }
    endResetModel();
}

int CompareModel::rowCount(const QModelIndex &parent) const
{
    return parent.isValid() ? 0 : static_cast<int>(m_rows.size());
}

QVariant CompareModel::data(const QModelIndex &index, int role) const
{
    if (!index.isValid())
        return {};
    const Row &row = m_rows[static_cast<std::size_t>(index.row())];
    const int column = index.column();
    if (role == Qt::DisplayRole || role == Qt::ToolTipRole)
        return column == 0 ? row.name : column == 1 ? row.kept : row.now;
    if (role == Qt::FontRole && column > 0)
        return Theme::instance().font(FontRole::Mono);
    if (role == Qt::ForegroundRole && column == 0)
        return Theme::instance().color(Token::Muted);
    if (role == Qt::ForegroundRole && row.better != 0 && (column == 2) == (row.better > 0))
        return Theme::instance().color(Token::Good);
    return {};
}

QVariant CompareModel::headerData(int section, Qt::Orientation orientation, int role) const
{
    if (orientation != Qt::Horizontal)
        return {};
    if (role == Qt::TextAlignmentRole)
        return QVariant::fromValue(Qt::Alignment(Qt::AlignLeft | Qt::AlignVCenter));
    if (role != Qt::DisplayRole)
        return {};
    return section == 0 ? tr("What differs") : section == 1 ? tr("Kept") : tr("Now");
}

CompareView::CompareView(QWidget *parent)
    : QWidget(parent),
      m_model(new CompareModel(this)),
      m_table(new QTableView(this)),
      m_hint(new QLabel(this)),
      m_load(new QPushButton(tr("Go back to it"), this))
{
    auto *column = new QVBoxLayout(this);
    column->setContentsMargins(12, 4, 12, 8);
    column->setSpacing(8);
    auto *row = new QHBoxLayout;
    row->setSpacing(8);
    m_hint->setWordWrap(true);
    m_hint->setProperty("tone", "muted");
    row->addWidget(m_hint, 1);
    m_keep = new QPushButton(tr("Keep this design"), this);
    m_keep->setToolTip(tr("Remembers the design as it is: later changes are compared with it"));
    m_load->setToolTip(tr("The kept design becomes the present one; undo brings this one back"));
    row->addWidget(m_load);
    row->addWidget(m_keep);
    column->addLayout(row);
    m_table->setModel(m_model);
    m_table->setAccessibleName(tr("Differences between two designs"));
    m_table->setSelectionBehavior(QAbstractItemView::SelectRows);
    m_table->setProperty("plain", true);
    m_table->setSizePolicy(QSizePolicy::Expanding, QSizePolicy::Ignored); // it lives with what is left
    m_table->setMinimumHeight(80);
    m_table->setShowGrid(false);
    m_table->setWordWrap(false);
    m_table->verticalHeader()->hide();
    m_table->horizontalHeader()->setSectionResizeMode(QHeaderView::ResizeToContents);
    m_table->horizontalHeader()->setStretchLastSection(true);
    m_table->setTabKeyNavigation(false);
    column->addWidget(m_table, 1);
    connect(m_keep, &QPushButton::clicked, this, &CompareView::keep);
    connect(m_load, &QPushButton::clicked, this, [this] {
        if (m_kept)
            emit loadRequested(m_kept->document);
    });
    refresh();
}

void CompareView::keep()
{
    m_kept = m_now;
    refresh();
}

QWidget *CompareView::entry() const
{
    return m_model->rowCount() > 0 ? static_cast<QWidget *>(m_table) : m_keep;
}

void CompareView::setNow(const KeptDesign &now)
{
    m_now = now;
    // Kept before its verdict was there.
    if (m_kept && !m_kept->verdict && m_kept->document == now.document)
        m_kept->verdict = now.verdict;
    refresh();
}

void CompareView::refresh()
{
    m_model->setDesigns(m_kept, m_now);
    m_load->setVisible(m_kept.has_value());
    const bool rows = m_model->rowCount() > 0;
    m_table->setVisible(rows);
    m_hint->setText(!m_kept    ? tr("Keep a design, change it, and see side by side what differs.")
                        : rows ? tr("Only what differs; the better of two numbers is green.")
                               : tr("Nothing differs from the kept design yet."));
}

} // namespace rankyard::ui
