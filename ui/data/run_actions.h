// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/base/error.h"

#include <QObject>
#include <QString>

namespace rankyard::ui {

/// What the workbench can do to runs. Calls return at once; what came of them arrives as a signal. The program uses the one over
/// session::RunService (app/workbench), tests a fake.
class RunActions : public QObject
{
    Q_OBJECT
public:
    enum class Verb { Stop, Kill, Pause, Resume, Checkpoint, Remove, Follow };
    Q_ENUM(Verb)

    using QObject::QObject;

    /// Reads the job file and starts it as a new run.
    virtual void startJob(const QString &jobFile) = 0;
    virtual void perform(Verb verb, const QString &run) = 0;
    /// The sample job that comes with the program; empty when it was not found.
    virtual QString sampleJob() const = 0;

    static QString nameOf(Verb verb); ///< "Stop"

signals:
    void started(const QString &run);
    void done(rankyard::ui::RunActions::Verb verb, const QString &run);
    /// `what`: the verb that failed, for the notice.
    void failed(const QString &what, const rankyard::Error &error);
    void storeChanged();
};

} // namespace rankyard::ui
