// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "ui/common/notices.h"

#include <QWidget>

class QPushButton;
class QVBoxLayout;

namespace rankyard::ui {

/// The two newest notices at the bottom right of its parent, and how many more there are: they come up when those leave. Errors stay
/// until closed, others leave by themselves.
class NoticeStack : public QWidget
{
    Q_OBJECT
public:
    NoticeStack(Notices *notices, QWidget *parent);
    int shown() const;        ///< cards, without those behind "and n more"
    QString moreText() const; ///< empty: there are no more
    /// Distance to the parent's bottom (the status strip).
    void setBottom(int pixels);

signals:
    void moreClicked(); ///< wants the whole list

protected:
    bool eventFilter(QObject *object, QEvent *event) override;

private:
    void present(int id);
    void place();
    QWidget *card(int id) const;

    std::vector<QWidget *> cards() const; ///< oldest first

    Notices *m_notices;
    QPushButton *m_more;
    QVBoxLayout *m_layout; ///< m_more, then the cards
    int m_bottom = 0;
};

} // namespace rankyard::ui
