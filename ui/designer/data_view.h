// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/base/json.h"

#include <QWidget>

class QComboBox;
class QLabel;
class QLineEdit;
class QProgressBar;
class QPushButton;
class QSpinBox;

namespace rankyard::ui {

class DesignDocument;
class ElidedLabel;
class Notices;
class PrepareTask;

/// Text to a corpus: a file that is dropped or chosen, its beginning, a tokenizer, the part kept for validation, progress and
/// Cancel; then counts, and one click that makes it the design's corpus.
class DataView : public QWidget
{
    Q_OBJECT
public:
    DataView(DesignDocument *document, Notices *notices, QWidget *parent = nullptr);

    void setFile(const QString &file);
    QString file() const { return m_file; }
    QString tokenizer() const; ///< "byte", "bpe:4096", "spm:FILE"
    void start();
    void cancel();
    PrepareTask *task() const { return m_task; }
    QComboBox *kinds() const { return m_kind; }
    QSpinBox *vocabulary() const { return m_vocabulary; }
    QLineEdit *corpusName() const { return m_name; }
    QString result() const;
    QString sample() const;
    QWidget *entry() const; ///< takes the focus when the view is gone to
    void use();             ///< the prepared corpus becomes the design's

protected:
    void dragEnterEvent(QDragEnterEvent *event) override;
    void dropEvent(QDropEvent *event) override;

private:
    void build();
    void refresh();
    void finished(const QString &name, const OrderedJson &report);

    DesignDocument *m_document;
    Notices *m_notices;
    PrepareTask *m_task;
    QString m_file;
    QString m_model; ///< of a sentencepiece tokenizer
    QString m_ready; ///< name of the corpus that was made
    qint64 m_vocab = 0;
    ElidedLabel *m_fileLabel = nullptr;
    QComboBox *m_kind = nullptr;
    QSpinBox *m_vocabulary = nullptr;
    QLineEdit *m_name = nullptr;
    QSpinBox *m_split = nullptr;
    QPushButton *m_choose = nullptr;
    QPushButton *m_start = nullptr;
    QPushButton *m_use = nullptr;
    QProgressBar *m_bar = nullptr;
    QLabel *m_result = nullptr;
    QLabel *m_sample = nullptr;
};

} // namespace rankyard::ui
