// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/predict/verdict.h"

#include <QObject>

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

namespace rankyard::ui {

/// Judges designs on a thread of its own. The newest request wins: an older one is told to stop, and what it still brings is
/// dropped. Requests and signals on the GUI thread.
class VerdictRunner : public QObject
{
    Q_OBJECT
public:
    struct Request {
        std::optional<spec::JobSpec> job; ///< none: the document has a section plan_only
        Json document;
        std::shared_ptr<const cluster::Cluster> cluster;
        double targetTokens = 300e9;
    };
    using Early = std::function<void(predict::Verdict)>;
    /// Runs on the runner's thread; looks at `stop` where it can, and may say early what it knows already.
    using Judge = std::function<predict::Verdict(const Request &, std::stop_token stop, const Early &early)>;

    explicit VerdictRunner(QObject *parent = nullptr, Judge judge = {});
    ~VerdictRunner() override;

    void request(Request request);
    void cancel();
    bool isBusy() const { return m_asked != m_answered; }

signals:
    /// First perhaps an early one, while the runner is still busy.
    void judged(std::shared_ptr<const predict::Verdict> verdict);
    void busyChanged();

private:
    void work(const std::stop_token &end);
    void post(std::uint64_t number, predict::Verdict verdict);
    void answer(std::uint64_t number, std::shared_ptr<const predict::Verdict> verdict);

    Judge m_judge;
    std::uint64_t m_asked = 0;
    std::uint64_t m_answered = 0;
    std::mutex m_mutex; ///< guards the three below
    std::condition_variable_any m_wake;
    std::optional<std::pair<std::uint64_t, Request>> m_next;
    std::stop_source m_running;
    std::jthread m_thread; ///< last: ends before the rest goes
};

} // namespace rankyard::ui
