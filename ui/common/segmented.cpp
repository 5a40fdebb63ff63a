// SPDX-License-Identifier: GPL-3.0-or-later
#include "ui/common/segmented.h"

#include <QButtonGroup>
#include <QHBoxLayout>
#include <QToolButton>

namespace rankyard::ui {

Segmented::Segmented(const QString &name, const QStringList &choices, QWidget *parent)
    : QFrame(parent),
      m_group(new QButtonGroup(this))
{
    setObjectName(QStringLiteral("segmented"));
    setAccessibleName(name);
    setSizePolicy(QSizePolicy::Fixed, QSizePolicy::Fixed);
    auto *row = new QHBoxLayout(this);
    row->setContentsMargins(1, 1, 1, 1);
    row->setSpacing(0);
    int index = 0;
    for (const QString &choice : choices) {
        auto *button = new QToolButton(this);
        button->setText(choice);
        button->setCheckable(true);
        button->setChecked(index == 0);
        button->setFocusPolicy(Qt::StrongFocus);
        button->setAccessibleName(name + QStringLiteral(": ") + choice);
        m_group->addButton(button, index++);
        row->addWidget(button);
    }
    connect(m_group, &QButtonGroup::idToggled, this, [this](int id, bool on) {
        if (on)
            emit changed(id);
    });
}

int Segmented::current() const { return m_group->checkedId(); }

void Segmented::setCurrent(int index)
{
    if (QAbstractButton *button = m_group->button(index))
        button->setChecked(true);
}

void Segmented::setChoiceEnabled(int index, bool enabled, const QString &why)
{
    QAbstractButton *button = m_group->button(index);
    button->setEnabled(enabled);
    button->setToolTip(enabled ? QString() : why);
}

void Segmented::setChoiceTip(int index, const QString &tip) { m_group->button(index)->setToolTip(tip); }

} // namespace rankyard::ui
