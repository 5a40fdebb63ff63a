// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/data/prepare.h"

#include <QObject>
#include <QString>

#include <atomic>
#include <thread>

namespace rankyard::ui {

/// data::prepare on a thread of its own. Called on the GUI thread, where its signals arrive; one run at a time.
class PrepareTask : public QObject
{
    Q_OBJECT
public:
    explicit PrepareTask(QObject *parent = nullptr);
    ~PrepareTask() override;

    /// `name`: in the registry, as `rankyardctl data prepare` and jobs know it.
    void start(const QString &file, const QString &tokenizer, const QString &name);
    void cancel() { m_cancelled = true; }
    bool isRunning() const { return m_running; }

signals:
    /// `share`: of the bytes, 0 … 1. `stage` says what goes on.
    void progressed(double share, const QString &stage, qint64 documents, qint64 tokens);
    /// The side document of the corpus.
    void finished(const QString &name, const rankyard::OrderedJson &report);
    void failed(const rankyard::Error &error);

private:
    std::atomic<bool> m_cancelled{false};
    bool m_running = false;
    std::jthread m_thread;
};

/// The beginning of a text, JSON lines or gzip file: at most `most` characters of its first document.
Result<QString> sampleOf(const QString &file, int most);

} // namespace rankyard::ui
