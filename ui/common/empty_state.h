// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <QWidget>

class QAction;
class QLabel;
class QPushButton;

namespace rankyard::ui {

/// What stands where nothing is yet: an icon, one sentence, at most one action.
class EmptyState : public QWidget
{
    Q_OBJECT
public:
    explicit EmptyState(QWidget *parent = nullptr);
    /// `action` may be null; its text becomes the button's.
    void show(const QString &iconName, const QString &title, const QString &sentence,
              QAction *action = nullptr);

private:
    void retint();

    QString m_icon;
    QLabel *m_picture;
    QLabel *m_title;
    QLabel *m_sentence;
    QPushButton *m_button;
    QAction *m_action = nullptr;
};

} // namespace rankyard::ui
