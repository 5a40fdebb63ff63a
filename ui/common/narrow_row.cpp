// SPDX-License-Identifier: GPL-3.0-or-later
#include "ui/common/narrow_row.h"

#include "ui/common/segmented.h"

#include <QEvent>
#include <QHBoxLayout>

#include <algorithm>

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
    if (event->type() == QEvent::LayoutRequest)
        fit(); // a text has grown
    return done;
}

/// What is as it should be is left alone: showing and hiding ask for another layout, which would ask again.
void NarrowRow::fit()
{
    const auto widthOf = [this](const QWidget *widget) {
        const bool shrinks = widget->sizePolicy().horizontalPolicy() & QSizePolicy::ShrinkFlag;
        const int hint = shrinks ? widget->minimumSizeHint().width() : widget->sizeHint().width();
        return std::max(hint, widget->minimumWidth()) + m_row->spacing();
    };
    const auto roomOf = [&](QWidget *widget) {
        const auto *choices = qobject_cast<Segmented *>(widget);
        return choices ? choices->fullWidth() - choices->leastWidth() : widthOf(widget);
    };
    const auto hasGiven = [](QWidget *widget) {
        const auto *choices = qobject_cast<Segmented *>(widget);
        return choices ? choices->isFolded() : widget->isHidden();
    };
    int needed = m_row->minimumSize().width();
    for (QWidget *widget : m_giving)
        needed += hasGiven(widget) ? roomOf(widget) : 0;
    for (QWidget *widget : m_giving) {
        const bool gives = needed > width();
        if (gives)
            needed -= roomOf(widget);
        if (hasGiven(widget) == gives)
            continue;
        if (auto *choices = qobject_cast<Segmented *>(widget))
            choices->setFolded(gives);
        else
            widget->setVisible(!gives);
    }
}

} // namespace rankyard::ui
