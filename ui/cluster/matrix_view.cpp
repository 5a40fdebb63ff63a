// SPDX-License-Identifier: GPL-3.0-or-later
#include "ui/cluster/matrix_view.h"

#include "ui/cluster/device_text.h"
#include "ui/common/theme.h"

#include <QHBoxLayout>
#include <QHeaderView>
#include <QLabel>
#include <QPainter>
#include <QStyledItemDelegate>
#include <QTableView>
#include <QVBoxLayout>

namespace rankyard::ui {

namespace {

using cluster::DeviceKind;
using cluster::Path;

constexpr std::size_t mostCores = 16;

/// The closer, the stronger. Codes stand in every cell: nothing is told by colour alone.
QColor fillOf(Path path)
{
    const Theme &theme = Theme::instance();
    const QColor surface = theme.color(Token::Surface);
    switch (path) {
    case Path::Self:
        return surface;
    case Path::Memory:
    case Path::NvSwitch:
    case Path::NvLink:
        return mixed(surface, theme.color(Ink::of(Kind::DataParallel)), 0.42);
    case Path::OneSwitch:
        return mixed(surface, theme.color(Ink::series(0)), 0.36);
    case Path::Switches:
        return mixed(surface, theme.color(Ink::series(0)), 0.24);
    case Path::HostBridge:
        return mixed(surface, theme.color(Ink::series(0)), 0.13);
    case Path::NumaNode:
        return mixed(surface, theme.color(Ink::series(4)), 0.22);
    default:
        return mixed(surface, theme.color(Ink::series(1)), 0.24);
    }
}

class CellDelegate : public QStyledItemDelegate
{
public:
    using QStyledItemDelegate::QStyledItemDelegate;

    void paint(QPainter *painter, const QStyleOptionViewItem &option, const QModelIndex &index) const override
    {
        const Theme &theme = Theme::instance();
        const auto path = static_cast<Path>(index.data(MatrixModel::PathRole).toInt());
        const auto *view = static_cast<const QTableView *>(option.widget);
        const QModelIndex current = view->currentIndex();
        painter->save();
        painter->fillRect(option.rect, fillOf(path));
        // The row and the column of the cursor.
        if (current.isValid() && (current.row() == index.row() || current.column() == index.column())) {
            QColor veil = theme.color(Token::Accent);
            veil.setAlphaF(0.10f);
            painter->fillRect(option.rect, veil);
        }
        painter->setFont(theme.font(FontRole::MonoSmall));
        painter->setPen(theme.color(path == Path::Self ? Token::Muted : Token::Text));
        painter->drawText(option.rect, Qt::AlignCenter, index.data().toString());
        if (current == index) {
            painter->setPen(view->hasFocus() ? QPen(theme.color(Token::Accent), 2)
                                             : QPen(theme.color(Token::Muted), 1));
            painter->drawRect(option.rect.adjusted(1, 1, -1, -1));
        }
        painter->restore();
    }
};

} // namespace

void MatrixModel::setNode(const cluster::Node *node)
{
    beginResetModel();
    m_node = node;
    m_ends.clear();
    if (node) {
        m_ends = node->of(DeviceKind::Gpu);
        const std::vector<int> others = node->of(DeviceKind::Nic);
        // Many cores are alike: their NUMA nodes stand for them.
        if (m_ends.empty())
            m_ends = node->of(DeviceKind::Core);
        if (m_ends.size() > mostCores && node->of(DeviceKind::Gpu).empty())
            m_ends = node->of(DeviceKind::Numa);
        m_ends.insert(m_ends.end(), others.begin(), others.end());
    }
    endResetModel();
}

int MatrixModel::rowCount(const QModelIndex &parent) const
{
    return parent.isValid() ? 0 : static_cast<int>(m_ends.size());
}

QVariant MatrixModel::data(const QModelIndex &index, int role) const
{
    if (!index.isValid() || !m_node)
        return {};
    const auto link = cluster::linkIn(*m_node, m_ends[static_cast<std::size_t>(index.row())],
                                      m_ends[static_cast<std::size_t>(index.column())]);
    switch (role) {
    case Qt::DisplayRole:
        return codeOfLink(link);
    case PathRole:
        return static_cast<int>(link.path);
    case Qt::ToolTipRole:
    case Qt::AccessibleTextRole:
        return sentence(index);
    default:
        return {};
    }
}

QVariant MatrixModel::headerData(int section, Qt::Orientation, int role) const
{
    if (role != Qt::DisplayRole || !m_node || section >= rowCount())
        return {};
    return QString::fromStdString(
        m_node->devices[static_cast<std::size_t>(m_ends[static_cast<std::size_t>(section)])].name);
}

QString MatrixModel::sentence(const QModelIndex &index) const
{
    if (!index.isValid() || !m_node)
        return {};
    const auto name = [this](int at) { return headerData(at, Qt::Horizontal, Qt::DisplayRole).toString(); };
    if (index.row() == index.column())
        return name(index.row());
    const auto link = cluster::linkIn(*m_node, m_ends[static_cast<std::size_t>(index.row())],
                                      m_ends[static_cast<std::size_t>(index.column())]);
    return tr("%1 to %2: %3").arg(name(index.row()), name(index.column()), wordsOfLink(link));
}

MatrixView::MatrixView(QWidget *parent)
    : Panel({}, parent),
      m_model(new MatrixModel(this)),
      m_table(new QTableView(this)),
      m_sentence(new QLabel(this))
{
    headLayout()->addStretch(1);
    m_table->setModel(m_model);
    m_table->setItemDelegate(new CellDelegate(m_table));
    m_table->setProperty("cells", true);
    m_table->setShowGrid(false);
    m_table->setSelectionMode(QAbstractItemView::NoSelection);
    m_table->setTabKeyNavigation(false);
    m_table->setMouseTracking(true);
    m_table->setCornerButtonEnabled(false);
    m_table->setFrameShape(QFrame::NoFrame);
    m_table->setAccessibleName(tr("Links between devices of a node"));
    for (QHeaderView *header : {m_table->horizontalHeader(), m_table->verticalHeader()}) {
        header->setSectionResizeMode(QHeaderView::Fixed);
        header->setHighlightSections(true);
        header->setSectionsClickable(false);
        header->setDefaultAlignment(Qt::AlignCenter);
    }
    body()->setContentsMargins(12, 0, 12, 12);
    body()->setSpacing(10);
    body()->addWidget(m_sentence);
    body()->addWidget(m_table, 1);
    auto *legend = new QLabel(
        tr("NV NVLink, with the number of lanes · PIX one PCIe switch · PXB several PCIe switches · PHB the host bridge of a "
           "processor · NODE host bridges of one NUMA node · SYS the link between processors · MEM memory of one NUMA node"),
        this);
    legend->setWordWrap(true);
    QSizePolicy gives = legend->sizePolicy(); // a long text asks for much width, but wraps in any
    gives.setHorizontalPolicy(QSizePolicy::Ignored);
    legend->setSizePolicy(gives);
    legend->setProperty("tone", "muted");
    setRole(legend, FontRole::Small);
    body()->addWidget(legend);
    m_sentence->setWordWrap(true);
    const auto say = [this](const QModelIndex &index) {
        m_sentence->setText(index.isValid() ? m_model->sentence(index)
                                            : tr("Point at a cell, or go there with the arrow keys."));
        m_table->viewport()->update();
    };
    connect(m_table, &QTableView::entered, this,
            [this](const QModelIndex &index) { m_table->setCurrentIndex(index); });
    connect(m_table->selectionModel(), &QItemSelectionModel::currentChanged, this, say);
    connect(m_model, &QAbstractItemModel::modelReset, this, [say] { say({}); });
    say({});
    MatrixView::restyle();
}

void MatrixView::setNode(const cluster::Node *node, const QString &title)
{
    m_model->setNode(node);
    setTitle(title);
    restyle();
}

void MatrixView::restyle()
{
    Panel::restyle();
    if (!m_table)
        return;
    const Theme &theme = Theme::instance();
    const QFontMetrics metrics(theme.font(FontRole::Small));
    int widest = theme.scaled(36);
    for (int i = 0; i < m_model->rowCount(); ++i)
        widest = std::max(
            widest,
            metrics.horizontalAdvance(m_model->headerData(i, Qt::Horizontal, Qt::DisplayRole).toString())
                + 12);
    m_table->horizontalHeader()->setMinimumSectionSize(10);
    m_table->verticalHeader()->setMinimumSectionSize(10);
    m_table->horizontalHeader()->setDefaultSectionSize(widest);
    m_table->verticalHeader()->setDefaultSectionSize(theme.scaled(32));
    m_table->verticalHeader()->setFixedWidth(widest + 8);
}

} // namespace rankyard::ui
