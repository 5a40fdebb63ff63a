// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "ui/common/notices.h"
#include "ui/data/data_hub.h"

#include <QFrame>

class QHBoxLayout;
class QLabel;
class QToolButton;

namespace rankyard::ui {

class ElidedLabel;

/// The line at the foot: the live run, what goes on in the background, notices.
class StatusStrip : public QFrame
{
    Q_OBJECT
public:
    StatusStrip(DataHub *hub, Notices *notices, QWidget *parent = nullptr);
    /// A job in the background; empty text removes it.
    void setJob(const QString &text);
    QString liveText() const;
    void refresh();

signals:
    void runClicked(const QString &run);
    void noticesClicked();

private:
    void restyle();

    DataHub *m_hub;
    Notices *m_notices;
    QToolButton *m_run;
    ElidedLabel *m_figures;
    QLabel *m_job;
    QToolButton *m_noticeButton;
    QString m_shown;
};

} // namespace rankyard::ui
