// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "ui/common/notices.h"
#include "ui/data/data_hub.h"

#include <QFrame>

#include <vector>

class QHBoxLayout;
class QLabel;
class QProgressBar;
class QToolButton;

namespace rankyard::ui {

class ElidedLabel;
class LongWork;

/// The line at the foot: the live run, what goes on in the background, notices.
class StatusStrip : public QFrame
{
    Q_OBJECT
public:
    StatusStrip(DataHub *hub, Notices *notices, QWidget *parent = nullptr);
    /// What is being started; empty text removes it.
    void setJob(const QString &text);
    /// From its begin to its end it is shown, with what is left of it and a way to end it; the newest of several.
    void watch(LongWork *work);
    QString workText() const;
    QToolButton *cancelButton() const { return m_cancel; }
    QString liveText() const;
    void refresh();

signals:
    void runClicked(const QString &run);
    void noticesClicked();

private:
    void restyle();
    void refreshWork();

    DataHub *m_hub;
    Notices *m_notices;
    QToolButton *m_run;
    ElidedLabel *m_figures;
    QLabel *m_job;
    QLabel *m_work;
    QProgressBar *m_bar;
    QToolButton *m_cancel;
    std::vector<LongWork *> m_works; ///< that run, in the order they began
    QToolButton *m_noticeButton;
    QString m_shown;
};

} // namespace rankyard::ui
