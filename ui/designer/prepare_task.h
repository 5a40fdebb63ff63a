// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/data/prepare.h"

#include "ui/common/long_work.h"

#include <atomic>
#include <thread>

namespace rankyard::ui {

/// data::prepare on a thread of its own. Called on the GUI thread, where its signals arrive; one run at a time.
class PrepareTask : public LongWork
{
    Q_OBJECT
public:
    explicit PrepareTask(QObject *parent = nullptr);
    ~PrepareTask() override;

    /// `name`: in the registry, as `rankyardctl data prepare` and jobs know it.
    void start(const QString &file, const QString &tokenizer, const QString &name);
    void cancel() override { m_cancelled = true; }

signals:
    /// The side document of the corpus.
    void finished(const QString &name, const rankyard::OrderedJson &report);
    void failed(const rankyard::Error &error);

private:
    std::atomic<bool> m_cancelled{false};
    std::jthread m_thread;
};

QString documentsOf(qint64 count); ///< "1 document", "1,234 documents"

/// The beginning of a text, JSON lines or gzip file: at most `most` characters of its first document.
Result<QString> sampleOf(const QString &file, int most);

} // namespace rankyard::ui
