// SPDX-License-Identifier: GPL-3.0-or-later
#include "ui/common/choice_box.h"

#include <QWheelEvent>

namespace rankyard::ui {

ChoiceBox::ChoiceBox(QWidget *parent) : QComboBox(parent) { setFocusPolicy(Qt::StrongFocus); }

void ChoiceBox::wheelEvent(QWheelEvent *event) { event->ignore(); }

} // namespace rankyard::ui
