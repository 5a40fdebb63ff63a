// SPDX-License-Identifier: GPL-3.0-or-later
#include "ui/monitor/banner.h"

#include "ui/common/icons.h"

#include <QHBoxLayout>
#include <QLabel>
#include <QPainter>
#include <QPushButton>

namespace rankyard::ui {

Banner::Banner(QWidget *parent)
    : QFrame(parent),
      m_picture(new QLabel(this)),
      m_text(new QLabel(this)),
      m_verb(new QPushButton(this))
{
    auto *row = new QHBoxLayout(this);
    row->setContentsMargins(16, 8, 12, 8);
    row->setSpacing(8);
    m_text->setWordWrap(true);
    m_text->setTextFormat(Qt::PlainText);
    m_text->setTextInteractionFlags(Qt::TextSelectableByMouse);
    row->addWidget(m_picture, 0, Qt::AlignTop);
    row->addWidget(m_text, 1);
    row->addWidget(m_verb);
    connect(m_verb, &QPushButton::clicked, this, &Banner::acted);
    connect(&Theme::instance(), &Theme::changed, this, &Banner::restyle);
    hide();
}

void Banner::show(const QString &iconName, Token tone, const QString &text, const QString &verb)
{
    const bool same =
        isVisibleTo(parentWidget()) && m_text->text() == text && m_tone == tone && m_verb->text() == verb;
    if (same)
        return;
    m_icon = iconName;
    m_tone = tone;
    m_text->setText(text);
    m_verb->setText(verb);
    m_verb->setVisible(!verb.isEmpty());
    setAccessibleName(text);
    restyle();
    QFrame::show();
}

void Banner::clear()
{
    m_text->clear();
    hide();
}

QString Banner::text() const { return m_text->text(); }

void Banner::restyle()
{
    const Theme &theme = Theme::instance();
    if (!m_icon.isEmpty())
        m_picture->setPixmap(iconPixmap(m_icon, theme.color(m_tone), theme.scaled(18), devicePixelRatioF()));
    update();
}

void Banner::paintEvent(QPaintEvent *)
{
    const Theme &theme = Theme::instance();
    QPainter painter(this);
    painter.fillRect(rect(), mixed(theme.color(Token::Surface), theme.color(m_tone), 0.08));
    painter.fillRect(QRect(0, 0, 3, height()), theme.color(m_tone));
    painter.fillRect(QRect(0, height() - 1, width(), 1), theme.color(Token::Border));
}

} // namespace rankyard::ui
