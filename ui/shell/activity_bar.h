// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <QFrame>
#include <QHash>

class QAction;
class QToolButton;
class QVBoxLayout;

namespace rankyard::ui {

/// The pages as icons at the left edge. The last one added with `bottom` stands at the foot.
class ActivityBar : public QFrame
{
    Q_OBJECT
public:
    explicit ActivityBar(QWidget *parent = nullptr);
    void add(const QString &page, QAction *action, bool bottom);
    void setCurrent(const QString &page);

private:
    void restyle();

    QVBoxLayout *m_top;
    QVBoxLayout *m_bottom;
    QHash<QString, QToolButton *> m_buttons;
};

} // namespace rankyard::ui
