// SPDX-License-Identifier: GPL-3.0-or-later
#include "ui/common/rows.h"

#include "ui/common/theme.h"

#include <QApplication>
#include <QHBoxLayout>
#include <QLabel>
#include <QScrollArea>
#include <QSplitter>
#include <QStyle>

#include <algorithm>

namespace rankyard::ui {

namespace {

void collect(QWidget *widget, QList<QWidget *> &found);

void collect(QLayout *layout, QList<QWidget *> &found)
{
    for (int i = 0; i < layout->count(); ++i) {
        QLayoutItem *item = layout->itemAt(i);
        if (QLayout *inner = item->layout())
            collect(inner, found);
        else if (QWidget *widget = item->widget())
            collect(widget, found);
    }
}

/// What takes the focus itself is not looked into: a number field has a line inside.
void collect(QWidget *widget, QList<QWidget *> &found)
{
    if (widget->focusPolicy() != Qt::NoFocus) {
        found << widget;
    } else if (auto *splitter = qobject_cast<QSplitter *>(widget)) {
        for (int i = 0; i < splitter->count(); ++i)
            collect(splitter->widget(i), found);
    } else if (auto *scroll = qobject_cast<QScrollArea *>(widget)) {
        if (scroll->widget())
            collect(scroll->widget(), found);
    } else if (widget->layout()) {
        collect(widget->layout(), found);
    }
}

} // namespace

void clear(QLayout *layout)
{
    while (QLayoutItem *item = layout->takeAt(0)) {
        if (QWidget *widget = item->widget()) {
            widget->hide();
            widget->deleteLater();
        }
        delete item;
    }
}

QWidget *valueRow(const QString &name, const QString &value, QWidget *parent, QLabel **valueLabel)
{
    auto *row = new QWidget(parent);
    auto *layout = new QHBoxLayout(row);
    layout->setContentsMargins(0, 0, 0, 0);
    layout->setSpacing(12);
    auto *left = new QLabel(name, row);
    left->setProperty("tone", "muted");
    auto *right = new QLabel(value, row);
    right->setProperty("data", true);
    right->setWordWrap(true);
    right->setAlignment(Qt::AlignRight | Qt::AlignTop);
    right->setTextInteractionFlags(Qt::TextSelectableByMouse);
    setRole(right, FontRole::Mono);
    layout->addWidget(left, 0, Qt::AlignTop);
    layout->addWidget(right, 1);
    if (valueLabel)
        *valueLabel = right;
    return row;
}

QLabel *remark(const QString &text, QWidget *parent)
{
    auto *label = new QLabel(text, parent);
    label->setWordWrap(true);
    label->setProperty("tone", "muted");
    label->setProperty("data", true);
    return label;
}

void setTone(QLabel *label, const char *tone)
{
    label->setProperty("tone", QLatin1String(tone));
    label->style()->unpolish(label);
    label->style()->polish(label);
}

void orderFocus(QWidget *root)
{
    QList<QWidget *> found;
    if (root->layout())
        collect(root->layout(), found);
    for (qsizetype i = 1; i < found.size(); ++i)
        QWidget::setTabOrder(found[i - 1], found[i]);
}

FocusKeeper::FocusKeeper(QLayout *layout, QWidget *otherwise) : m_layout(layout), m_otherwise(otherwise)
{
    QList<QWidget *> found;
    collect(layout, found);
    m_at = found.indexOf(QApplication::focusWidget());
    if (m_at >= 0 && otherwise)
        otherwise->setFocus(Qt::OtherFocusReason); // or Qt gives it to whoever is next, and then away again
}

FocusKeeper::~FocusKeeper()
{
    if (m_at < 0)
        return;
    QList<QWidget *> found;
    collect(m_layout, found);
    if (!found.isEmpty())
        found[std::min(m_at, found.size() - 1)]->setFocus(Qt::TabFocusReason);
}

} // namespace rankyard::ui
