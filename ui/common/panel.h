// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <QFrame>

class QHBoxLayout;
class QLabel;
class QToolButton;
class QVBoxLayout;

namespace rankyard::ui {

/// A card: one head line (title, whatever belongs beside it, a menu) and a body. Every panel answers one question.
class Panel : public QFrame
{
    Q_OBJECT
public:
    explicit Panel(const QString &title, QWidget *parent = nullptr);

    void setTitle(const QString &title);
    QString title() const;
    QVBoxLayout *body() const { return m_body; }
    /// Between title and menu.
    QHBoxLayout *headLayout() const { return m_head; }
    /// The "…" button at the right of the head; made on first use.
    QToolButton *menuButton();

protected:
    virtual void restyle();

private:
    QHBoxLayout *m_head;
    QVBoxLayout *m_body;
    QLabel *m_title;
    QToolButton *m_menu = nullptr;
};

} // namespace rankyard::ui
