// SPDX-License-Identifier: GPL-3.0-or-later
#include "ui/designer/prepare_task.h"

#include "engine/data/corpus.h"
#include "engine/data/text_source.h"
#include "ui/common/format.h"

#include <QElapsedTimer>

namespace rankyard::ui {

PrepareTask::PrepareTask(QObject *parent) : LongWork(parent) {}

PrepareTask::~PrepareTask() { m_cancelled = true; }

void PrepareTask::start(const QString &file, const QString &tokenizer, const QString &name)
{
    if (isRunning())
        return;
    m_cancelled = false;
    begin(tr("Preparing %1").arg(name));
    data::PrepareOptions options;
    options.inputs = {file.toStdString()};
    options.tokenizer = tokenizer.toStdString();
    options.out = data::registryPrefix(name.toStdString());
    options.progress = [this, shown = QElapsedTimer()](const data::PrepareProgress &progress) mutable {
        // People cannot read faster than ten times a second.
        if (!shown.isValid() || shown.elapsed() >= 100) {
            shown.start();
            const double share = progress.bytesTotal > 0
                ? static_cast<double>(progress.bytesRead) / static_cast<double>(progress.bytesTotal)
                : 0;
            QMetaObject::invokeMethod(
                this,
                [this, share, training = progress.stage == std::string_view("training"),
                 documents = progress.documents, tokens = progress.tokens] {
                    tell(share,
                         training
                             ? tr("training the tokenizer")
                             : tr("%1, %2 tokens so far").arg(documentsOf(documents), formatStep(tokens)));
                },
                Qt::QueuedConnection);
        }
        return !m_cancelled.load();
    };
    m_thread = std::jthread([this, name, options = std::move(options)] {
        auto made = data::prepare(options);
        QMetaObject::invokeMethod(
            this,
            [this, name, made = std::move(made)] {
                end();
                if (made)
                    emit finished(name, *made);
                else
                    emit failed(made.error());
            },
            Qt::QueuedConnection);
    });
}

QString documentsOf(qint64 count)
{
    return count == 1 ? PrepareTask::tr("1 document")
                      : PrepareTask::tr("%1 documents").arg(formatStep(count));
}

Result<QString> sampleOf(const QString &file, int most)
{
    RY_ASSIGN(data::TextSource source, data::TextSource::open(file.toStdString()));
    QString text;
    std::string_view piece;
    bool last = false;
    // An empty first document has nothing to show; the next one may.
    while (text.trimmed().isEmpty()) {
        RY_ASSIGN(const bool more, source.next(piece, last));
        if (!more)
            break;
        text = QString::fromUtf8(
            piece.data(),
            static_cast<qsizetype>(std::min<std::size_t>(piece.size(), static_cast<std::size_t>(4 * most))));
    }
    return text.left(most);
}

} // namespace rankyard::ui
