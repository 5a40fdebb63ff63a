// SPDX-License-Identifier: GPL-3.0-or-later
#include "ui/monitor/values_panel.h"

#include "ui/common/format.h"
#include "ui/plot/chart.h"

#include <QHBoxLayout>
#include <QHeaderView>
#include <QLabel>
#include <QPainter>
#include <QStyledItemDelegate>
#include <QTableView>
#include <QVBoxLayout>

#include <algorithm>
#include <cmath>

namespace rankyard::ui {

namespace {

constexpr std::size_t mostRows = 14;

/// A dot in the series' colour, then the text.
class ValueDelegate : public QStyledItemDelegate
{
public:
    using QStyledItemDelegate::QStyledItemDelegate;
    void paint(QPainter *painter, const QStyleOptionViewItem &option, const QModelIndex &index) const override
    {
        const Theme &theme = Theme::instance();
        painter->save();
        painter->setRenderHint(QPainter::Antialiasing);
        QRect place = option.rect.adjusted(index.column() == 0 ? 12 : 4, 0, -8, 0);
        if (index.column() == 0) {
            const double size = theme.scaled(7);
            painter->setPen(Qt::NoPen);
            painter->setBrush(index.data(Qt::DecorationRole).value<QBrush>());
            painter->drawEllipse(QRectF(place.left(), place.center().y() - size / 2 + 0.5, size, size));
            place.setLeft(place.left() + theme.scaled(7) + 6);
        }
        const QFont font = theme.font(index.column() == 0 ? FontRole::Small : FontRole::Mono);
        painter->setFont(font);
        const bool faint = index.column() == 2;
        painter->setPen(theme.color(faint ? Token::Muted : Token::Text));
        const Qt::Alignment align = (index.column() == 0 ? Qt::AlignLeft : Qt::AlignRight) | Qt::AlignVCenter;
        painter->drawText(
            place, align,
            QFontMetrics(font).elidedText(index.data().toString(), Qt::ElideRight, place.width()));
        painter->setPen(QPen(mixed(theme.color(Token::Surface), theme.color(Token::Border), 0.6), 1));
        painter->drawLine(option.rect.bottomLeft(), option.rect.bottomRight());
        painter->restore();
    }
};

} // namespace

void ValuesModel::setRows(std::vector<Row> rows)
{
    if (rows == m_rows)
        return;
    if (rows.size() == m_rows.size()) {
        m_rows = std::move(rows);
        emit dataChanged(index(0, 0), index(rowCount() - 1, 2));
        return;
    }
    beginResetModel();
    m_rows = std::move(rows);
    endResetModel();
}

int ValuesModel::rowCount(const QModelIndex &parent) const
{
    return parent.isValid() ? 0 : static_cast<int>(m_rows.size());
}

QVariant ValuesModel::data(const QModelIndex &index, int role) const
{
    if (!index.isValid())
        return {};
    const Row &row = m_rows[static_cast<std::size_t>(index.row())];
    if (role == Qt::DisplayRole)
        return index.column() == 0 ? row.series
            : index.column() == 1  ? row.raw
            : row.smooth.isEmpty() ? QStringLiteral("–")
                                   : row.smooth;
    if (role == Qt::DecorationRole && index.column() == 0)
        return Theme::instance().brush(row.ink);
    if (role == Qt::ToolTipRole)
        return row.why.isEmpty() ? row.series + QLatin1Char(' ') + row.raw : row.why;
    return {};
}

QVariant ValuesModel::headerData(int section, Qt::Orientation orientation, int role) const
{
    if (orientation != Qt::Horizontal)
        return {};
    if (role == Qt::DisplayRole)
        return section == 0 ? tr("Series") : section == 1 ? tr("Raw") : tr("Smoothed");
    if (role == Qt::TextAlignmentRole)
        return QVariant::fromValue(
            Qt::Alignment((section == 0 ? Qt::AlignLeft : Qt::AlignRight) | Qt::AlignVCenter));
    return {};
}

ValuesPanel::ValuesPanel(ChartGroup *group, QWidget *parent)
    : Panel(tr("Newest values"), parent),
      m_group(group),
      m_model(new ValuesModel(this)),
      m_table(new QTableView(this)),
      m_hint(new QLabel(this))
{
    headLayout()->addWidget(m_hint);
    setRole(m_hint, FontRole::Small);
    m_hint->setProperty("tone", "muted");
    headLayout()->addStretch(1);
    m_table->setModel(m_model);
    m_table->setItemDelegate(new ValueDelegate(m_table));
    m_table->setShowGrid(false);
    m_table->setSelectionMode(QAbstractItemView::NoSelection);
    m_table->setFocusPolicy(Qt::NoFocus);
    m_table->setHorizontalScrollBarPolicy(Qt::ScrollBarAlwaysOff);
    m_table->verticalHeader()->hide();
    m_table->horizontalHeader()->setSectionResizeMode(0, QHeaderView::Stretch);
    m_table->horizontalHeader()->setSectionResizeMode(1, QHeaderView::Fixed);
    m_table->horizontalHeader()->setSectionResizeMode(2, QHeaderView::Fixed);
    m_table->setAccessibleName(tr("Values at the cursor"));
    m_table->horizontalHeader()->setStyleSheet(
        QStringLiteral("QHeaderView::section { padding: 3px 0 3px 12px; }"));
    body()->addWidget(m_table, 1);
    body()->addSpacing(4);
    connect(group, &ChartGroup::cursorMoved, this, &ValuesPanel::refresh);
    ValuesPanel::restyle();
}

void ValuesPanel::refresh()
{
    const double x = m_group->cursor().value_or(m_group->last());
    std::vector<ValuesModel::Row> rows;
    const auto take = [&](Chart *chart) {
        const bool pointed = chart->isPointed();
        double total = 0;
        bool areas = false;
        Unit unit = chart->leftAxis().unit;
        for (const Chart::Reading &reading : chart->readings(x)) {
            // A stack is one row, its parts only while the pointer is in it.
            if (reading.area) {
                areas = true;
                total += reading.value;
                if (!pointed)
                    continue;
            }
            rows.push_back({reading.series, reading.raw, reading.smooth, reading.ink, {}});
        }
        if (areas)
            rows.push_back({pointed ? tr("together") : chart->title().toLower(),
                            formatValue(total, unit),
                            {},
                            Ink::of(Token::Muted),
                            {}});
    };
    for (Chart *chart : m_charts) {
        if (chart->isPointed())
            take(chart);
    }
    for (Chart *chart : m_charts) {
        if (!chart->isPointed())
            take(chart);
    }
    if (rows.size() > mostRows)
        rows.resize(mostRows);
    for (const Fact &fact : m_facts)
        rows.push_back({fact.name, fact.value, QStringLiteral(" "), Ink::of(Token::Border), fact.why});
    m_model->setRows(std::move(rows));
    const QString at = formatValue(x, m_group->xUnit());
    if (!m_group->hasData())
        setTitle(tr("Values"));
    else
        setTitle(m_group->xUnit() == Unit::Step ? tr("Values at step %1").arg(formatStep(std::llround(x)))
                                                : tr("Values at %1").arg(at));
    m_hint->setText(m_group->cursor() ? tr("cursor") : tr("newest"));
}

void ValuesPanel::restyle()
{
    Panel::restyle();
    if (!m_table)
        return;
    const Theme &theme = Theme::instance();
    m_table->verticalHeader()->setMinimumSectionSize(10);
    m_table->verticalHeader()->setDefaultSectionSize(theme.scaled(22));
    const QFontMetrics metrics(theme.font(FontRole::Small));
    for (int column : {1, 2}) {
        const QString head = m_model->headerData(column, Qt::Horizontal, Qt::DisplayRole).toString();
        m_table->setColumnWidth(column, std::max(theme.scaled(76), metrics.horizontalAdvance(head) + 26));
    }
}

} // namespace rankyard::ui
