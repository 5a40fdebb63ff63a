// SPDX-License-Identifier: GPL-3.0-or-later
#include "ui/common/segmented.h"

#include <QAction>
#include <QButtonGroup>
#include <QFocusEvent>
#include <QHBoxLayout>
#include <QMenu>
#include <QToolButton>

#include <algorithm>

namespace rankyard::ui {

namespace {

const QString arrow = QStringLiteral(" \u25be");
constexpr int slack = 8; ///< the arrow may come from another font than it was measured in

} // namespace

Segmented::Segmented(const QString &name, const QStringList &choices, QWidget *parent)
    : QFrame(parent),
      m_row(new QHBoxLayout(this)),
      m_group(new QButtonGroup(this))
{
    setObjectName(QStringLiteral("segmented"));
    setAccessibleName(name);
    setSizePolicy(QSizePolicy::Fixed, QSizePolicy::Fixed);
    m_row->setContentsMargins(1, 1, 1, 1);
    m_row->setSpacing(0);
    int index = 0;
    for (const QString &choice : choices) {
        auto *button = new QToolButton(this);
        button->setText(choice);
        button->setCheckable(true);
        button->setChecked(index == 0);
        button->setFocusPolicy(Qt::StrongFocus);
        button->setAccessibleName(name + QStringLiteral(": ") + choice);
        m_group->addButton(button, index++);
        m_row->addWidget(button);
    }
    buildFold();
    connect(m_group, &QButtonGroup::idToggled, this, [this](int id, bool on) {
        if (!on)
            return;
        refreshFold();
        emit changed(id);
    });
    refreshFold();
}

void Segmented::buildFold()
{
    m_fold = new QToolButton(this);
    m_fold->setPopupMode(QToolButton::InstantPopup);
    m_fold->setToolButtonStyle(Qt::ToolButtonTextOnly);
    m_fold->setFocusPolicy(Qt::StrongFocus);
    m_fold->hide();
    m_row->addWidget(m_fold);
    auto *menu = new QMenu(m_fold);
    m_fold->setMenu(menu);
    for (QAbstractButton *button : m_group->buttons()) {
        QAction *action = menu->addAction(button->text());
        action->setCheckable(true);
        connect(action, &QAction::triggered, button, [button] { button->setChecked(true); });
    }
    connect(menu, &QMenu::aboutToShow, this, &Segmented::refreshFold);
}

/// The menu has the states of the buttons, the button the name of the current one.
void Segmented::refreshFold()
{
    const QList<QAction *> actions = m_fold->menu()->actions();
    for (int i = 0; i < actions.size(); ++i) {
        const QAbstractButton *button = m_group->button(i);
        actions[i]->setChecked(button->isChecked());
        actions[i]->setEnabled(button->isEnabled());
        actions[i]->setToolTip(button->toolTip());
    }
    const QAbstractButton *now = m_group->checkedButton();
    m_name = now ? now->text() : QString();
    m_fold->setAccessibleName(accessibleName() + QStringLiteral(": ") + m_name);
    elide();
    updateGeometry();
}

/// As much of the name as there is room for.
void Segmented::elide()
{
    const QFontMetrics metrics = m_fold->fontMetrics();
    m_fold->setText(arrow);
    const int room = std::max(width(), leastWidth()) - edges() - m_fold->sizeHint().width();
    const QString shown = metrics.elidedText(m_name, Qt::ElideRight, room);
    m_fold->setText(shown + arrow);
    m_fold->setToolTip(shown == m_name ? QString() : m_name);
}

/// No proxy: Tab would come by the frame, and from there jump to the button.
void Segmented::focusInEvent(QFocusEvent *event)
{
    QAbstractButton *button = isFolded() ? m_fold : m_group->checkedButton();
    if (button)
        button->setFocus(event->reason());
}

void Segmented::resizeEvent(QResizeEvent *event)
{
    QFrame::resizeEvent(event);
    if (isFolded())
        elide();
}

bool Segmented::isFolded() const { return !m_fold->isHidden(); }

void Segmented::setFolded(bool folded)
{
    if (folded == isFolded())
        return;
    const QWidget *focus = focusWidget();
    const bool focused = focus && focus->hasFocus();
    setSizePolicy(folded ? QSizePolicy::Maximum : QSizePolicy::Fixed, QSizePolicy::Fixed);
    m_fold->setVisible(folded);
    for (QAbstractButton *button : m_group->buttons())
        button->setVisible(!folded);
    if (focused) // what had it is hidden now
        (folded ? m_fold : m_group->checkedButton())->setFocus(Qt::OtherFocusReason);
    refreshFold();
}

int Segmented::edges() const
{
    const QMargins edge = m_row->contentsMargins();
    return edge.left() + edge.right() + 2 * frameWidth();
}

int Segmented::leastWidth() const
{
    // What a button adds to its text is the same for all of them.
    const QAbstractButton *any = m_group->button(0);
    const QFontMetrics metrics = any->fontMetrics();
    const int around = any->sizeHint().width() - metrics.horizontalAdvance(any->text());
    return edges() + around + metrics.horizontalAdvance(QStringLiteral("Abc\u2026") + arrow);
}

int Segmented::fullWidth() const
{
    int width = edges();
    for (const QAbstractButton *button : m_group->buttons())
        width += button->sizeHint().width();
    return width;
}

QSize Segmented::sizeHint() const
{
    if (!isFolded())
        return QFrame::sizeHint();
    const QAbstractButton *now = m_group->checkedButton();
    const int arrowWidth = m_fold->fontMetrics().horizontalAdvance(arrow);
    return {edges() + (now ? now->sizeHint().width() : 0) + arrowWidth + slack, QFrame::sizeHint().height()};
}

QSize Segmented::minimumSizeHint() const
{
    return {isFolded() ? leastWidth() : QFrame::minimumSizeHint().width(),
            QFrame::minimumSizeHint().height()};
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
