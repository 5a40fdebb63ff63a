// SPDX-License-Identifier: GPL-3.0-or-later
#include "ui/shell/notice_list.h"

#include "ui/common/format.h"
#include "ui/common/icons.h"

#include <QKeyEvent>
#include <QLabel>
#include <QListView>
#include <QPainter>
#include <QPushButton>
#include <QStyledItemDelegate>
#include <QVBoxLayout>

#include <algorithm>

namespace rankyard::ui {

namespace {

class NoticeDelegate : public QStyledItemDelegate
{
public:
    using QStyledItemDelegate::QStyledItemDelegate;
    void paint(QPainter *painter, const QStyleOptionViewItem &option, const QModelIndex &index) const override
    {
        const Theme &theme = Theme::instance();
        painter->save();
        if (option.state & QStyle::State_Selected)
            painter->fillRect(option.rect, theme.color(Token::Selection));
        static const std::pair<const char *, Token> looks[] = {{"info", Token::Accent},
                                                               {"state_finished", Token::Good},
                                                               {"warning", Token::Warn},
                                                               {"error", Token::Bad}};
        const auto &[name, tone] = looks[index.data(Notices::SeverityRole).toInt()];
        QRect place = option.rect.adjusted(12, 0, -12, 0);
        const int size = theme.scaled(16);
        paintIcon(*painter, QLatin1String(name),
                  QRectF(place.left(), place.center().y() - size / 2.0, size, size), theme.color(tone));
        place.setLeft(place.left() + size + 10);
        const QString when =
            formatWhen(index.data(Notices::TimeRole).toLongLong() * 1'000'000).section(QLatin1Char(' '), 1);
        painter->setFont(theme.font(FontRole::Mono));
        painter->setPen(theme.color(Token::Muted));
        painter->drawText(place, Qt::AlignVCenter | Qt::AlignRight, when);
        place.setRight(place.right() - QFontMetrics(painter->font()).horizontalAdvance(when) - 12);
        painter->setFont(theme.font(FontRole::Body));
        painter->setPen(theme.color(Token::Text));
        painter->drawText(
            place, Qt::AlignVCenter | Qt::AlignLeft,
            QFontMetrics(painter->font()).elidedText(index.data().toString(), Qt::ElideRight, place.width()));
        painter->restore();
    }
    QSize sizeHint(const QStyleOptionViewItem &, const QModelIndex &) const override
    {
        return {200, Theme::instance().scaled(32)};
    }
};

} // namespace

NoticeList::NoticeList(Notices *notices, QWidget *window)
    : QFrame(window),
      m_notices(notices),
      m_view(new QListView(this)),
      m_title(new QLabel(tr("Notices"), this)),
      m_nothing(new QLabel(this))
{
    setObjectName(QStringLiteral("popup"));
    auto *layout = new QVBoxLayout(this);
    layout->setContentsMargins(0, 8, 0, 8);
    auto *head = new QHBoxLayout;
    head->setContentsMargins(12, 0, 8, 0);
    head->addWidget(m_title);
    head->addStretch(1);
    auto *clear = new QPushButton(tr("Clear"), this);
    clear->setProperty("tone", "quiet");
    connect(clear, &QPushButton::clicked, this, [this] { m_notices->clear(); });
    head->addWidget(clear);
    layout->addLayout(head);
    layout->addWidget(m_view, 1);
    layout->addWidget(m_nothing);
    setRole(m_title, FontRole::Strong);
    m_nothing->setText(tr("Nothing to report since the start."));
    m_nothing->setProperty("tone", "muted");
    m_nothing->setContentsMargins(12, 8, 12, 8);
    m_view->setModel(notices);
    m_view->setItemDelegate(new NoticeDelegate(m_view));
    m_view->setUniformItemSizes(true);
    m_view->setStyleSheet(QStringLiteral("QListView { background: transparent; }"));
    m_view->setAccessibleName(tr("Notices"));
    connect(m_view, &QListView::activated, this, [this](const QModelIndex &index) {
        const auto &all = m_notices->all();
        if (index.row() < static_cast<int>(all.size()))
            m_notices->act(all[static_cast<std::size_t>(index.row())].id);
    });
    hide();
}

void NoticeList::toggle(int bottom)
{
    if (isVisible()) {
        hide();
        return;
    }
    const Theme &theme = Theme::instance();
    const QWidget *window = parentWidget();
    const int count = m_notices->rowCount();
    m_view->setVisible(count > 0);
    m_nothing->setVisible(count == 0);
    const int width = std::min(theme.scaled(520), window->width() - 32);
    const int height =
        std::min(theme.scaled(32) * std::clamp(count, 1, 10) + theme.scaled(64), window->height() - 96);
    setGeometry(window->width() - width - 12, window->height() - bottom - height - 8, width, height);
    show();
    raise();
    m_view->setFocus(Qt::PopupFocusReason);
}

void NoticeList::keyPressEvent(QKeyEvent *event)
{
    if (event->key() == Qt::Key_Escape)
        hide();
    else
        QFrame::keyPressEvent(event);
}

} // namespace rankyard::ui
