// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "ui/data/run_actions.h"

#include <QThread>

#include <filesystem>
#include <memory>

namespace rankyard::app {

/// The actions over session::RunService, which lives on a thread of its own: starting an agent or asking it may take seconds.
/// Created and called on the GUI thread.
class ServiceActions : public ui::RunActions
{
    Q_OBJECT
public:
    explicit ServiceActions(std::filesystem::path storeFile);
    ~ServiceActions() override;

    void startJob(const QString &jobFile) override;
    void perform(Verb verb, const QString &run) override;
    QString sampleJob() const override;

private:
    class Worker;
    QThread m_thread;
    Worker *m_worker;
};

/// resources/sample/job.json beside the program or in the tree that it was built from; empty when there is none.
QString findSampleJob();

} // namespace rankyard::app
