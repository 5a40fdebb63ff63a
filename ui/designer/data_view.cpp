// SPDX-License-Identifier: GPL-3.0-or-later
#include "ui/designer/data_view.h"

#include "ui/common/choice_box.h"
#include "ui/common/elided_label.h"
#include "ui/common/format.h"
#include "ui/common/notices.h"
#include "ui/common/theme.h"
#include "ui/designer/design_document.h"
#include "ui/designer/prepare_task.h"

#include <QComboBox>
#include <QDragEnterEvent>
#include <QFileDialog>
#include <QFileInfo>
#include <QGridLayout>
#include <QLabel>
#include <QLineEdit>
#include <QMimeData>
#include <QProgressBar>
#include <QPushButton>
#include <QRegularExpressionValidator>
#include <QSpinBox>
#include <QUrl>

namespace rankyard::ui {

namespace {

enum Kinds { Byte, Bpe, SentencePiece };
constexpr int sampleCharacters = 600;

} // namespace

DataView::DataView(DesignDocument *document, Notices *notices, QWidget *parent)
    : QWidget(parent),
      m_document(document),
      m_notices(notices),
      m_task(new PrepareTask(this))
{
    setAcceptDrops(true);
    build();
    connect(m_task, &LongWork::changed, this, [this] {
        m_bar->setValue(static_cast<int>(m_bar->maximum() * m_task->share()));
        if (m_task->isRunning() && !m_task->doing().isEmpty())
            m_result->setText(tr("%1, %2").arg(m_task->progress(), m_task->doing()));
        refresh();
    });
    connect(m_task, &PrepareTask::finished, this, &DataView::finished);
    connect(m_task, &PrepareTask::failed, this, [this](const Error &error) {
        m_result->setText(error.code == Code::Stopped ? tr("Cancelled. Nothing was written.")
                                                      : QString::fromStdString(error.text()));
        if (error.code != Code::Stopped)
            m_notices->post(error);
        refresh();
    });
    refresh();
}

void DataView::build()
{
    auto *grid = new QGridLayout(this);
    grid->setContentsMargins(12, 4, 12, 10);
    grid->setHorizontalSpacing(10);
    grid->setVerticalSpacing(8);
    m_choose = new QPushButton(tr("Choose text"), this);
    m_choose->setToolTip(
        tr("Plain text, JSON lines, or either of them gzipped; files can be dropped here too"));
    m_fileLabel = new ElidedLabel(this);
    m_fileLabel->setProperty("data", true);
    m_kind = new ChoiceBox(this);
    m_kind->addItems({tr("Bytes"), tr("Byte pairs, trained on it"), tr("SentencePiece model")});
    m_kind->setAccessibleName(tr("Tokenizer"));
    m_kind->setToolTip(tr("How text becomes tokens"));
    m_vocabulary = new QSpinBox(this);
    m_vocabulary->setRange(300, 200'000);
    m_vocabulary->setValue(4096);
    m_vocabulary->setSingleStep(256);
    m_vocabulary->setAccessibleName(tr("Vocabulary of the tokenizer"));
    m_vocabulary->setSuffix(tr(" tokens"));
    m_split = new QSpinBox(this);
    for (QSpinBox *box : {m_vocabulary, m_split})
        box->setButtonSymbols(QAbstractSpinBox::NoButtons);
    m_split->setRange(0, 90);
    m_split->setValue(5);
    m_split->setSuffix(tr(" % validation"));
    m_split->setAccessibleName(tr("Part kept for validation"));
    m_name = new QLineEdit(this);
    m_name->setAccessibleName(tr("Name of the corpus"));
    m_name->setPlaceholderText(tr("Name of the corpus"));
    // It becomes a folder.
    m_name->setValidator(new QRegularExpressionValidator(
        QRegularExpression(QStringLiteral("[A-Za-z0-9][A-Za-z0-9._-]{0,63}")), m_name));
    m_name->setProperty("data", true);
    m_start = new QPushButton(tr("Prepare"), this);
    m_use = new QPushButton(tr("Use in this design"), this);
    m_use->setToolTip(tr("Sets corpus, validation part and vocabulary of the design"));
    m_bar = new QProgressBar(this);
    m_bar->setRange(0, 1000);
    m_bar->setTextVisible(false);
    m_bar->setFixedHeight(6);
    m_bar->setAccessibleName(tr("Progress"));
    for (QLabel **label : {&m_result, &m_sample}) {
        *label = new QLabel(this);
        (*label)->setWordWrap(true);
        (*label)->setProperty("data", true);
        (*label)->setTextFormat(Qt::PlainText);
        (*label)->setTextInteractionFlags(Qt::TextSelectableByMouse);
        (*label)->setMinimumWidth(80);
    }
    setRole(m_sample, FontRole::MonoSmall);
    m_sample->setProperty("tone", "muted");
    m_sample->setAlignment(Qt::AlignTop | Qt::AlignLeft);
    m_sample->setSizePolicy(QSizePolicy::Preferred, QSizePolicy::Ignored);
    grid->addWidget(m_choose, 0, 0);
    grid->addWidget(m_fileLabel, 0, 1, 1, 3);
    grid->addWidget(m_kind, 1, 0, 1, 2);
    grid->addWidget(m_vocabulary, 1, 2);
    grid->addWidget(m_split, 1, 3);
    grid->addWidget(m_name, 2, 0, 1, 2);
    grid->addWidget(m_start, 2, 2);
    grid->addWidget(m_use, 2, 3);
    grid->addWidget(m_bar, 3, 0, 1, 4);
    grid->addWidget(m_result, 4, 0, 1, 4);
    grid->addWidget(m_sample, 5, 0, 1, 4);
    grid->setRowStretch(5, 1);
    grid->setColumnStretch(1, 1);
    connect(m_choose, &QPushButton::clicked, this, [this] {
        const QString picked = QFileDialog::getOpenFileName(
            this, tr("Choose text"), {}, tr("Text (*.txt *.jsonl *.json *.gz);;All files (*)"));
        if (!picked.isEmpty())
            setFile(picked);
    });
    connect(m_kind, &QComboBox::activated, this, [this](int index) {
        if (index == SentencePiece && m_model.isEmpty()) {
            m_model = QFileDialog::getOpenFileName(this, tr("Choose a SentencePiece model"), {},
                                                   tr("Models (*.model);;All files (*)"));
            if (m_model.isEmpty())
                m_kind->setCurrentIndex(Byte);
        }
        refresh();
    });
    connect(m_kind, &QComboBox::currentIndexChanged, this, &DataView::refresh);
    connect(m_name, &QLineEdit::textChanged, this, &DataView::refresh);
    connect(m_start, &QPushButton::clicked, this, [this] { m_task->isRunning() ? cancel() : start(); });
    connect(m_use, &QPushButton::clicked, this, &DataView::use);
}

void DataView::setFile(const QString &file)
{
    m_file = file;
    m_ready.clear();
    const auto sample = sampleOf(file, sampleCharacters);
    if (sample) {
        m_sample->setText(*sample);
        m_result->setText(
            tr("%1, begins so:").arg(formatValue(static_cast<double>(QFileInfo(file).size()), Unit::Bytes)));
        // A name that files and jobs can carry.
        QString name = QFileInfo(file).baseName().toLower();
        name.replace(QRegularExpression(QStringLiteral("[^a-z0-9._-]+")), QStringLiteral("-"));
        name = name.left(64);
        m_name->setText(name);
    } else {
        m_file.clear();
        m_sample->clear();
        m_result->setText(QString::fromStdString(sample.error().text()));
    }
    refresh();
}

QString DataView::tokenizer() const
{
    switch (m_kind->currentIndex()) {
    case Bpe:
        return QStringLiteral("bpe:%1").arg(m_vocabulary->value());
    case SentencePiece:
        return QStringLiteral("spm:") + m_model;
    default:
        return QStringLiteral("byte");
    }
}

void DataView::start()
{
    if (m_file.isEmpty() || m_name->text().trimmed().isEmpty() || m_task->isRunning())
        return;
    m_ready.clear();
    m_bar->setValue(0);
    m_task->start(m_file, tokenizer(), m_name->text().trimmed());
    m_result->setText(tr("Reading %1").arg(QFileInfo(m_file).fileName()));
    refresh();
}

void DataView::cancel() { m_task->cancel(); }

void DataView::finished(const QString &name, const OrderedJson &report)
{
    m_ready = name;
    const auto count = [&report](const char *key) { return report.value(key, std::int64_t(0)); };
    m_vocab = report.contains("tokenizer") ? report["tokenizer"].value("vocab", std::int64_t(0)) : 0;
    const auto tokens = static_cast<double>(count("tokens"));
    m_bar->setValue(m_bar->maximum());
    m_result->setText(
        tr("%1: %2, %3 tokens, vocabulary %4; %5 bytes a token. %6 tokens for validation.")
            .arg(name, documentsOf(count("documents")), formatStep(count("tokens")), formatStep(m_vocab))
            .arg(tokens > 0 ? static_cast<double>(QFileInfo(m_file).size()) / tokens : 0, 0, 'f', 2)
            .arg(formatStep(static_cast<qint64>(tokens * m_split->value() / 100))));
    refresh();
}

QWidget *DataView::entry() const { return m_choose; }

void DataView::use()
{
    if (m_ready.isEmpty())
        return;
    m_document->apply({"data.train=" + dumpJson(Json(m_ready.toStdString())),
                       "data.valid_fraction=" + dumpJson(Json(m_split->value() / 100.0)),
                       "model.vocab=" + std::to_string(m_vocab)},
                      tr("Corpus %1").arg(m_ready));
}

void DataView::refresh()
{
    const bool running = m_task->isRunning();
    m_fileLabel->setFullText(m_file.isEmpty() ? tr("Drop a text file here: plain, JSON lines, or gzipped")
                                              : QFileInfo(m_file).fileName());
    m_vocabulary->setEnabled(m_kind->currentIndex() == Bpe && !running);
    for (QWidget *field : std::initializer_list<QWidget *>{m_kind, m_name, m_split})
        field->setEnabled(!running);
    m_start->setText(running ? tr("Cancel") : tr("Prepare"));
    m_start->setEnabled(running || (!m_file.isEmpty() && !m_name->text().trimmed().isEmpty()));
    m_use->setEnabled(!running && !m_ready.isEmpty());
    m_bar->setVisible(running || !m_ready.isEmpty());
}

QString DataView::result() const { return m_result->text(); }

QString DataView::sample() const { return m_sample->text(); }

void DataView::dragEnterEvent(QDragEnterEvent *event)
{
    if (event->mimeData()->urls().size() == 1 && event->mimeData()->urls()[0].isLocalFile())
        event->acceptProposedAction();
}

void DataView::dropEvent(QDropEvent *event) { setFile(event->mimeData()->urls()[0].toLocalFile()); }

} // namespace rankyard::ui
