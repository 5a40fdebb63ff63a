// SPDX-License-Identifier: GPL-3.0-or-later
#include "ui/common/notice_stack.h"

#include "ui/common/icons.h"

#include <QEvent>
#include <QFrame>
#include <QHBoxLayout>
#include <QLabel>
#include <QPushButton>
#include <QTimer>
#include <QToolButton>
#include <QVBoxLayout>

#include <algorithm>

namespace rankyard::ui {

namespace {

constexpr std::size_t mostShown = 2;
constexpr std::size_t mostKept = 50;

/// One card. `refresh` writes the text with its count.
class Card : public QFrame
{
public:
    Card(Notices *notices, int id, QWidget *parent) : QFrame(parent), m_notices(notices), m_id(id)
    {
        setObjectName(QStringLiteral("notice"));
        setProperty("notice", id);
        auto *row = new QHBoxLayout(this);
        row->setContentsMargins(12, 8, 8, 8);
        row->setSpacing(8);
        m_icon = new QLabel(this);
        m_text = new QLabel(this);
        m_text->setTextFormat(Qt::PlainText);
        m_text->setWordWrap(true);
        m_text->setMinimumWidth(220);
        row->addWidget(m_icon, 0, Qt::AlignTop);
        row->addWidget(m_text, 1);
        const Notices::Notice *notice = notices->find(id);
        if (notice && !notice->verb.isEmpty()) {
            auto *verb = new QPushButton(notice->verb, this);
            connect(verb, &QPushButton::clicked, this, [this] {
                m_notices->act(m_id);
                deleteLater();
            });
            row->addWidget(verb);
        }
        auto *close = new QToolButton(this);
        close->setIcon(icon(QStringLiteral("close")));
        close->setIconSize({14, 14});
        close->setToolTip(Notices::tr("Dismiss"));
        close->setAccessibleName(Notices::tr("Dismiss notice"));
        connect(close, &QToolButton::clicked, this, &QObject::deleteLater);
        row->addWidget(close, 0, Qt::AlignTop);
        m_timer.setSingleShot(true);
        connect(&m_timer, &QTimer::timeout, this, &QObject::deleteLater);
        refresh();
    }

    void refresh()
    {
        const Notices::Notice *notice = m_notices->find(m_id);
        if (!notice)
            return;
        static const std::pair<const char *, Token> looks[] = {{"info", Token::Accent},
                                                               {"state_finished", Token::Good},
                                                               {"warning", Token::Warn},
                                                               {"error", Token::Bad}};
        const auto &[name, tone] = looks[static_cast<int>(notice->severity)];
        m_icon->setPixmap(iconPixmap(QLatin1String(name), Theme::instance().color(tone),
                                     Theme::instance().scaled(18), devicePixelRatioF()));
        m_text->setText(notice->count > 1
                            ? notice->text + QStringLiteral("  ×") + QString::number(notice->count)
                            : notice->text);
        setToolTip(notice->detail);
        setAccessibleName(notice->text);
        if (notice->severity != Severity::Error)
            m_timer.start(notice->severity == Severity::Warning ? 12000 : 6000);
    }

private:
    Notices *m_notices;
    int m_id;
    QLabel *m_icon;
    QLabel *m_text;
    QTimer m_timer;
};

} // namespace

NoticeStack::NoticeStack(Notices *notices, QWidget *parent)
    : QWidget(parent),
      m_notices(notices),
      m_more(new QPushButton(this)),
      m_layout(new QVBoxLayout(this))
{
    m_layout->setContentsMargins(0, 0, 0, 0);
    m_layout->setSpacing(8);
    m_more->setProperty("compact", true);
    m_more->setToolTip(tr("Opens the list of all notices"));
    m_layout->addWidget(m_more, 0, Qt::AlignRight);
    connect(m_more, &QPushButton::clicked, this, &NoticeStack::moreClicked);
    parent->installEventFilter(this);
    connect(notices, &Notices::posted, this, &NoticeStack::present);
    connect(notices, &Notices::modelReset, this, [this] {
        for (QWidget *each : cards())
            each->deleteLater();
    });
    hide();
}

std::vector<QWidget *> NoticeStack::cards() const
{
    std::vector<QWidget *> list;
    for (int i = 1; i < m_layout->count(); ++i)
        list.push_back(m_layout->itemAt(i)->widget());
    return list;
}

int NoticeStack::shown() const { return static_cast<int>(std::min(cards().size(), mostShown)); }

QString NoticeStack::moreText() const { return cards().size() > mostShown ? m_more->text() : QString(); }

void NoticeStack::setBottom(int pixels)
{
    m_bottom = pixels;
    place();
}

QWidget *NoticeStack::card(int id) const
{
    for (QWidget *widget : cards()) {
        if (widget->property("notice").toInt() == id)
            return widget;
    }
    return nullptr;
}

void NoticeStack::present(int id)
{
    if (QWidget *widget = card(id)) {
        static_cast<Card *>(widget)->refresh();
        m_layout->removeWidget(widget); // it is the newest again
        m_layout->addWidget(widget);
    } else {
        const std::vector<QWidget *> all = cards();
        if (all.size() >= mostKept)
            delete all.front();
        auto *fresh = new Card(m_notices, id, this);
        connect(fresh, &QObject::destroyed, this,
                [this] { QTimer::singleShot(0, this, &NoticeStack::place); });
        m_layout->addWidget(fresh);
    }
    place();
}

void NoticeStack::place()
{
    const std::vector<QWidget *> all = cards();
    setVisible(!all.empty());
    if (all.empty())
        return;
    const QWidget *area = parentWidget();
    const int width = std::min(Theme::instance().scaled(420), area->width() - 32);
    const std::size_t hidden = all.size() - std::min(all.size(), mostShown);
    m_more->setVisible(hidden > 0);
    m_more->setText(tr("and %n more", nullptr, static_cast<int>(hidden)));
    int height = hidden > 0 ? m_more->sizeHint().height() + m_layout->spacing() : 0;
    for (std::size_t i = 0; i < all.size(); ++i) {
        QWidget *widget = all[i];
        widget->setVisible(i >= hidden);
        if (i < hidden)
            continue;
        const int own = widget->layout()->hasHeightForWidth() ? widget->layout()->totalHeightForWidth(width)
                                                              : widget->sizeHint().height();
        height += own + (i > hidden ? m_layout->spacing() : 0);
    }
    setGeometry(area->width() - width - 16, area->height() - m_bottom - height - 16, width, height);
    raise();
}

bool NoticeStack::eventFilter(QObject *object, QEvent *event)
{
    if (object == parentWidget() && event->type() == QEvent::Resize)
        place();
    return QWidget::eventFilter(object, event);
}

} // namespace rankyard::ui
