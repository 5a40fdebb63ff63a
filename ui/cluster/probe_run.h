// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "ui/common/long_work.h"

class QProcess;

namespace rankyard::ui {

/// A measurement of this machine: `rankyardctl cluster probe` in a process of its own, so that the window neither waits for it nor disturbs
/// it. One at a time. Going away ends it. On the GUI thread.
class ProbeRun : public LongWork
{
    Q_OBJECT
public:
    /// `program`: empty for the rankyardctl beside this program.
    explicit ProbeRun(QObject *parent = nullptr, QString program = {});
    ~ProbeRun() override;

    void start();
    /// It leaves what was measured before as it is.
    void cancel() override;

signals:
    /// `error` is empty after a measurement that the cluster `local` has from now on, and after `cancel`.
    void ended(bool measured, const QString &error);

private:
    void read();
    void finish();

    QString m_program;
    QProcess *m_process = nullptr;
    bool m_cancelled = false;
    QString m_last; ///< line that was no progress
};

} // namespace rankyard::ui
