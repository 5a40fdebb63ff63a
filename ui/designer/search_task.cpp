// SPDX-License-Identifier: GPL-3.0-or-later
#include "ui/designer/search_task.h"

namespace rankyard::ui {

namespace {

Result<search::Outcome> searchOn(const spec::JobSpec &job, const cluster::Cluster &cluster,
                                 search::Options options)
{
    options.devices = cluster::Slots(cluster).count();
    RY_ASSIGN(
        const predict::CostModel cost,
        predict::costModelFor(job, cluster, predict::Ranks{options.devices, job.run.threads.value_or(0)}));
    return search::search(job, cost, options);
}

} // namespace

SearchTask::SearchTask(QObject *parent) : LongWork(parent) {}

SearchTask::~SearchTask() = default; // the thread is told to stop, and waited for

void SearchTask::start(const spec::JobSpec &job, std::shared_ptr<const cluster::Cluster> cluster)
{
    begin(tr("Search of layouts"));
    const int number = ++m_number;
    m_thread = std::jthread([this, number, job, cluster = std::move(cluster)](const std::stop_token &stop) {
        search::Options options;
        options.top = 12;
        options.stop = stop;
        options.progress = [this, number](double share) {
            QMetaObject::invokeMethod(
                this,
                [this, number, share] {
                    if (number == m_number)
                        tell(share,
                             share < search::weighing ? tr("weighing every legal layout")
                                                      : tr("pricing the best by their programs"));
                },
                Qt::QueuedConnection);
        };
        auto outcome = searchOn(job, *cluster, options);
        QMetaObject::invokeMethod(
            this,
            [this, number, outcome = std::move(outcome)] {
                if (number != m_number)
                    return;
                end();
                if (outcome)
                    emit finished(std::make_shared<const search::Outcome>(*outcome));
                else
                    emit failed(outcome.error());
            },
            Qt::QueuedConnection);
    });
}

void SearchTask::cancel() { m_thread.request_stop(); }

} // namespace rankyard::ui
