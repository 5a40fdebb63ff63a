// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "ui/common/notices.h"

#include <QWidget>

class QVBoxLayout;

namespace rankyard::ui {

/// The newest notices at the bottom right of its parent. Errors stay until closed, others leave by themselves.
class NoticeStack : public QWidget
{
    Q_OBJECT
public:
    NoticeStack(Notices *notices, QWidget *parent);
    int shown() const;
    /// Distance to the parent's bottom (the status strip).
    void setBottom(int pixels);

protected:
    bool eventFilter(QObject *object, QEvent *event) override;

private:
    void present(int id);
    void place();
    QWidget *card(int id) const;

    Notices *m_notices;
    QVBoxLayout *m_layout;
    int m_bottom = 0;
};

} // namespace rankyard::ui
