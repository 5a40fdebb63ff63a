// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/search/search.h"

#include "ui/common/long_work.h"

#include <memory>
#include <thread>

namespace rankyard::ui {

/// search::search on a thread of its own. Called on the GUI thread, where its signals arrive; a new search stops the one before.
class SearchTask : public LongWork
{
    Q_OBJECT
public:
    explicit SearchTask(QObject *parent = nullptr);
    ~SearchTask() override;

    void start(const spec::JobSpec &job, std::shared_ptr<const cluster::Cluster> cluster);
    void cancel() override;

signals:
    void finished(std::shared_ptr<const rankyard::search::Outcome> outcome);
    void failed(const rankyard::Error &error);

private:
    int m_number = 0; ///< of the newest search: what older ones bring is dropped
    std::jthread m_thread;
};

} // namespace rankyard::ui
