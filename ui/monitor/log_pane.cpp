// SPDX-License-Identifier: GPL-3.0-or-later
#include "ui/monitor/log_pane.h"

#include "ui/common/chip.h"
#include "ui/common/format.h"
#include "ui/common/segmented.h"
#include "ui/monitor/log_model.h"

#include <QAction>
#include <QClipboard>
#include <QGuiApplication>
#include <QHBoxLayout>
#include <QLabel>
#include <QLineEdit>
#include <QListView>
#include <QPainter>
#include <QScrollBar>
#include <QStyledItemDelegate>
#include <QVBoxLayout>

namespace rankyard::ui {

namespace {

/// "1,398 r0 loss 1.921": step and rank muted, the line in the colour of its level.
class LineDelegate : public QStyledItemDelegate
{
public:
    using QStyledItemDelegate::QStyledItemDelegate;

    void paint(QPainter *painter, const QStyleOptionViewItem &option, const QModelIndex &index) const override
    {
        const Theme &theme = Theme::instance();
        painter->save();
        if (option.state & QStyle::State_Selected)
            painter->fillRect(option.rect, theme.color(Token::Selection));
        const QFont font = theme.font(FontRole::MonoSmall);
        const QFontMetrics metrics(font);
        painter->setFont(font);
        const auto level = static_cast<telemetry::Level>(index.data(LogModel::LevelRole).toInt());
        const int rank = index.data(LogModel::RankRole).toInt();
        const QString step = formatStep(index.data(LogModel::StepRole).toLongLong());
        const QString from = rank < 0 ? QStringLiteral("ag") : QStringLiteral("r%1").arg(rank);
        const int digit = metrics.horizontalAdvance(QLatin1Char('0'));
        QRect place = option.rect.adjusted(12, 0, -8, 0);
        painter->setPen(theme.color(Token::Muted));
        painter->drawText(QRect(place.left(), place.top(), digit * 6, place.height()),
                          Qt::AlignVCenter | Qt::AlignRight, step);
        place.setLeft(place.left() + digit * 7);
        painter->drawText(place, Qt::AlignVCenter | Qt::AlignLeft, from);
        place.setLeft(place.left() + digit * 3);
        Token tone = Token::Text;
        if (level == telemetry::Level::Warning)
            tone = Token::Warn;
        else if (level == telemetry::Level::Error)
            tone = Token::Bad;
        else if (level == telemetry::Level::Debug)
            tone = Token::Muted;
        painter->setPen(theme.color(tone));
        painter->drawText(
            place, Qt::AlignVCenter | Qt::AlignLeft,
            metrics.elidedText(index.data(LogModel::TextRole).toString(), Qt::ElideRight, place.width()));
        if (option.state & QStyle::State_HasFocus) {
            painter->setPen(theme.color(Token::Accent));
            painter->drawRect(option.rect.adjusted(1, 0, -2, -1));
        }
        painter->restore();
    }

    QSize sizeHint(const QStyleOptionViewItem &, const QModelIndex &) const override
    {
        return {100, Theme::instance().scaled(19)};
    }
};

} // namespace

LogPane::LogPane(QWidget *parent)
    : QFrame(parent),
      m_model(new LogModel(this)),
      m_proxy(new LogProxy(this)),
      m_title(new QLabel(tr("Log"), this)),
      m_view(new QListView(this)),
      m_level(new Segmented(tr("Level"), {tr("All"), tr("Warnings"), tr("Errors")}, this)),
      m_filter(new QLineEdit(this)),
      m_follow(new Chip(this))
{
    setObjectName(QStringLiteral("side"));
    m_proxy->setSourceModel(m_model);
    m_view->setModel(m_proxy);
    m_view->setUniformItemSizes(true);
    m_view->setItemDelegate(new LineDelegate(m_view));
    m_view->setSelectionMode(QAbstractItemView::ExtendedSelection);
    m_view->setHorizontalScrollBarPolicy(Qt::ScrollBarAlwaysOff);
    m_view->setAccessibleName(tr("Log of all ranks"));
    m_filter->setPlaceholderText(tr("Filter, for example r1 or loss"));
    m_filter->setAccessibleName(tr("Filter the log"));
    m_filter->setClearButtonEnabled(true);
    m_follow->setClickable(true);

    auto *layout = new QVBoxLayout(this);
    layout->setContentsMargins(1, 0, 0, 0);
    layout->setSpacing(0);
    auto *head = new QHBoxLayout;
    head->setContentsMargins(12, 12, 12, 8);
    head->setSpacing(8);
    head->addWidget(m_title);
    head->addWidget(m_level);
    head->addStretch(1);
    auto *second = new QHBoxLayout;
    second->setContentsMargins(12, 0, 12, 8);
    second->setSpacing(8);
    second->addWidget(m_filter, 1);
    second->addWidget(m_follow);
    layout->addLayout(head);
    layout->addLayout(second);
    layout->addWidget(m_view, 1);

    connect(m_level, &Segmented::changed, this, [this](int index) {
        m_proxy->setLeast(index == 0       ? telemetry::Level::Debug
                              : index == 1 ? telemetry::Level::Warning
                                           : telemetry::Level::Error);
        if (m_following)
            m_view->scrollToBottom();
    });
    connect(m_filter, &QLineEdit::textChanged, this, [this](const QString &text) {
        m_proxy->setWords(text);
        if (m_following)
            m_view->scrollToBottom();
    });
    connect(m_follow, &Chip::clicked, this, [this] { setFollowing(!m_following); });
    // A scroll of the user's, not of ours and not of the layout's.
    connect(m_view->verticalScrollBar(), &QScrollBar::actionTriggered, this, [this] {
        const QScrollBar *bar = m_view->verticalScrollBar();
        setFollowing(bar->sliderPosition() >= bar->maximum());
    });
    connect(m_view, &QListView::activated, this, [this](const QModelIndex &index) {
        emit stepChosen(index.data(LogModel::StepRole).toLongLong());
    });
    auto *copy = new QAction(tr("Copy lines"), this);
    copy->setShortcut(QKeySequence::Copy);
    copy->setShortcutContext(Qt::WidgetWithChildrenShortcut);
    connect(copy, &QAction::triggered, this, &LogPane::copySelection);
    m_view->addAction(copy);
    auto *all = new QAction(tr("Show all lines"), this);
    all->setShortcut(QKeySequence::Cancel);
    all->setShortcutContext(Qt::WidgetShortcut);
    connect(all, &QAction::triggered, this, [this] {
        m_filter->clear();
        m_view->setFocus(Qt::ShortcutFocusReason);
    });
    m_filter->addAction(all);
    m_view->setContextMenuPolicy(Qt::ActionsContextMenu);
    setRole(m_title, FontRole::Strong);
    updateChip();
}

void LogPane::clear()
{
    m_model->clear();
    m_new = 0;
    updateChip();
}

void LogPane::append(std::vector<store::LogRow> rows)
{
    if (rows.empty())
        return;
    const int before = m_proxy->rowCount();
    m_model->append(std::move(rows));
    if (m_following) {
        m_view->scrollToBottom();
    } else {
        m_new += std::max(0, m_proxy->rowCount() - before);
        updateChip();
    }
}

void LogPane::setFollowing(bool following)
{
    m_new = following == m_following ? m_new : 0;
    m_following = following;
    if (following) {
        m_new = 0;
        m_view->scrollToBottom();
    }
    updateChip();
}

void LogPane::updateChip()
{
    if (m_following)
        m_follow->setLook(tr("following"), Token::Muted);
    else
        m_follow->setLook(m_new > 0 ? tr("paused, %1 new").arg(formatStep(m_new)) : tr("paused"),
                          Token::Accent);
    m_follow->setToolTip(m_following ? tr("New lines are shown as they come") : tr("Show the newest lines"));
}

void LogPane::copySelection()
{
    QStringList lines;
    for (const QModelIndex &index : m_view->selectionModel()->selectedIndexes())
        lines << index.data().toString();
    QGuiApplication::clipboard()->setText(lines.join(QLatin1Char('\n')));
}

} // namespace rankyard::ui
