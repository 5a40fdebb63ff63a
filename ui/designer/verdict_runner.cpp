// SPDX-License-Identifier: GPL-3.0-or-later
#include "ui/designer/verdict_runner.h"

namespace rankyard::ui {

namespace {

predict::Verdict judgeIt(const VerdictRunner::Request &request, std::stop_token stop,
                         const VerdictRunner::Early &early)
{
    predict::Options options;
    options.targetTokens = request.targetTokens;
    options.stop = std::move(stop);
    options.early = early;
    if (!request.job)
        return predict::judgeWide(request.document, *request.cluster, options);
    return predict::judge(*request.job, *request.cluster, request.document, options);
}

} // namespace

VerdictRunner::VerdictRunner(QObject *parent, Judge judge)
    : QObject(parent),
      m_judge(judge ? std::move(judge) : judgeIt),
      m_thread([this](const std::stop_token &end) { work(end); })
{}

VerdictRunner::~VerdictRunner()
{
    {
        const std::lock_guard lock(m_mutex);
        m_next.reset();
        m_running.request_stop();
    }
    m_thread.request_stop();
    m_thread.join();
}

void VerdictRunner::request(Request request)
{
    const bool was = isBusy();
    ++m_asked;
    {
        const std::lock_guard lock(m_mutex);
        m_next.emplace(m_asked, std::move(request));
        m_running.request_stop();
    }
    m_wake.notify_one();
    if (!was)
        emit busyChanged();
}

void VerdictRunner::cancel()
{
    {
        const std::lock_guard lock(m_mutex);
        m_next.reset();
        m_running.request_stop();
    }
    if (!isBusy())
        return;
    m_answered = m_asked;
    emit busyChanged();
}

void VerdictRunner::work(const std::stop_token &end)
{
    for (;;) {
        std::optional<std::pair<std::uint64_t, Request>> next;
        std::stop_token stop;
        {
            std::unique_lock lock(m_mutex);
            if (!m_wake.wait(lock, end, [this] { return m_next.has_value(); }))
                return;
            next.swap(m_next);
            m_running = std::stop_source();
            stop = m_running.get_token();
        }
        const std::uint64_t number = next->first;
        post(number, m_judge(next->second, stop, [this, number](predict::Verdict early) {
                 post(number, std::move(early));
             }));
    }
}

void VerdictRunner::post(std::uint64_t number, predict::Verdict verdict)
{
    auto shared = std::make_shared<const predict::Verdict>(std::move(verdict));
    // The runner outlives its thread, and a call that is still queued when it goes is dropped with it.
    QMetaObject::invokeMethod(
        this, [this, number, shared] { answer(number, shared); }, Qt::QueuedConnection);
}

void VerdictRunner::answer(std::uint64_t number, std::shared_ptr<const predict::Verdict> verdict)
{
    // Stale: somebody has asked again since, or has cancelled.
    if (number != m_asked || m_answered == m_asked || verdict->stopped)
        return;
    const bool whole = !verdict->isEarly();
    if (whole)
        m_answered = number;
    emit judged(std::move(verdict));
    if (whole)
        emit busyChanged();
}

} // namespace rankyard::ui
