// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "ui/common/notices.h"

#include <QFrame>

class QLabel;
class QListView;

namespace rankyard::ui {

/// All notices since the start, above the status strip. Enter or a click runs the notice's verb.
class NoticeList : public QFrame
{
    Q_OBJECT
public:
    NoticeList(Notices *notices, QWidget *window);
    void toggle(int bottom);

protected:
    void keyPressEvent(QKeyEvent *event) override;

private:
    Notices *m_notices;
    QListView *m_view;
    QLabel *m_title;
    QLabel *m_nothing;
};

} // namespace rankyard::ui
