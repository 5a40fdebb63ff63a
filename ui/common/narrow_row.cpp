// SPDX-License-Identifier: GPL-3.0-or-later
#include "ui/common/narrow_row.h"

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
