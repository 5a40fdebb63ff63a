// SPDX-License-Identifier: GPL-3.0-or-later
#include "ui/common/narrow_row.h"

#include <QCoreApplication>
#include <QEvent>
#include <QHBoxLayout>

namespace rankyard::ui {

NarrowRow::NarrowRow(QWidget *parent) : QWidget(parent), m_row(new QHBoxLayout(this))
{
    m_row->setContentsMargins(0, 0, 0, 0);
    m_row->setSpacing(8);
}

QSize NarrowRow::minimumSizeHint() const { return {0, QWidget::minimumSizeHint().height()}; }

void NarrowRow::resizeEvent(QResizeEvent *event)
{
    QWidget::resizeEvent(event);
    fit();
}

void NarrowRow::changeEvent(QEvent *event)
{
    QWidget::changeEvent(event);
    if (event->type() == QEvent::FontChange || event->type() == QEvent::StyleChange)
        fit();
}

bool NarrowRow::event(QEvent *event)
{
    const bool done = QWidget::event(event);
    if (event->type() == QEvent::LayoutRequest) {
        // A text has grown. Showing and hiding asks for a layout too: that one is made here, or this would never end.
        fit();
        m_row->activate();
        QCoreApplication::removePostedEvents(this, QEvent::LayoutRequest);
    }
    return done;
}

void NarrowRow::fit()
{
    for (QWidget *widget : m_giving)
        widget->show();
    for (QWidget *widget : m_giving) {
        if (m_row->minimumSize().width() > width())
            widget->hide();
    }
}

} // namespace rankyard::ui
