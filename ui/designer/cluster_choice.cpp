// SPDX-License-Identifier: GPL-3.0-or-later
#include "ui/designer/cluster_choice.h"

#include "engine/cluster/sources.h"
#include "ui/common/choice_box.h"
#include "ui/common/theme.h"

#include <QComboBox>
#include <QFileDialog>
#include <QHBoxLayout>
#include <QLabel>
#include <QSignalBlocker>
#include <QSpinBox>
#include <QStyle>
#include <QVBoxLayout>

namespace rankyard::ui {

namespace {

const QString local = QStringLiteral("local");
const QString fromFile = QStringLiteral("file");

} // namespace

ClusterChoice::ClusterChoice(DesignDocument *document, QWidget *parent)
    : QWidget(parent),
      m_document(document),
      m_source(new ChoiceBox(this)),
      m_count(new QSpinBox(this)),
      m_note(new QLabel(this))
{
    auto *column = new QVBoxLayout(this);
    column->setContentsMargins(0, 0, 0, 0);
    column->setSpacing(6);
    auto *row = new QHBoxLayout;
    row->setSpacing(8);
    row->addWidget(m_source, 1);
    row->addWidget(m_count);
    column->addLayout(row);
    m_source->setAccessibleName(tr("Cluster"));
    m_source->setToolTip(tr("What the design is for: this machine, or a cluster from data sheets"));
    m_source->setSizeAdjustPolicy(QComboBox::AdjustToMinimumContentsLengthWithIcon);
    m_source->setMinimumContentsLength(8);
    m_source->setProperty("data", true);
    m_source->addItem(tr("This machine"), local);
    for (const cluster::Preset &preset : cluster::presets()) {
        m_source->addItem(QString::fromLatin1(preset.id), QString::fromLatin1(preset.id));
        m_source->setItemData(m_source->count() - 1, QString::fromUtf8(preset.what), Qt::ToolTipRole);
    }
    m_source->addItem(tr("A cluster file"), fromFile);
    m_count->setRange(1, 100'000);
    m_count->setKeyboardTracking(false);
    m_count->setButtonSymbols(QAbstractSpinBox::NoButtons);
    m_count->setAccessibleName(tr("Number of nodes"));
    m_count->setToolTip(tr("Number of nodes"));
    m_count->setAlignment(Qt::AlignRight);
    const auto widen = [this] { m_count->setFixedWidth(Theme::instance().scaled(92)); };
    connect(&Theme::instance(), &Theme::changed, this, widen);
    widen();
    m_note->setWordWrap(true);
    m_note->setProperty("data", true);
    m_note->setProperty("tone", "bad");
    setRole(m_note, FontRole::Small);
    m_note->hide();
    column->addWidget(m_note);
    connect(m_source, &QComboBox::activated, this, &ClusterChoice::choose);
    connect(m_count, &QSpinBox::valueChanged, this, &ClusterChoice::choose);
    refresh();
}

void ClusterChoice::choose()
{
    const QString id = m_source->currentData().toString();
    if (id == fromFile)
        return chooseFile();
    const QString what = id == local ? local : QStringLiteral("%1 x %2").arg(id).arg(m_count->value());
    m_document->set("cluster", what.toStdString());
}

void ClusterChoice::chooseFile()
{
    const QString file = QFileDialog::getOpenFileName(this, tr("Open a cluster"), {},
                                                      tr("Clusters (*.json *.xml *.txt);;All files (*)"));
    if (file.isEmpty())
        return refresh();
    m_document->set("cluster", file.toStdString());
}

QString ClusterChoice::error() const { return m_note->isHidden() ? QString() : m_note->text(); }

void ClusterChoice::refresh()
{
    const std::string what = m_document->cluster();
    if (what == m_what)
        return;
    m_what = what;
    auto opened = cluster::openCluster(what);
    m_cluster = opened ? std::make_shared<const cluster::Cluster>(std::move(opened).value()) : nullptr;
    m_note->setText(m_cluster ? QString() : QString::fromStdString(opened.error().text()));
    m_note->setVisible(!m_cluster);
    const QSignalBlocker quietSource(m_source);
    const QSignalBlocker quietCount(m_count);
    const QString text = QString::fromStdString(what);
    int index = m_source->findData(fromFile);
    for (int i = 0; i < index; ++i) {
        const QString id = m_source->itemData(i).toString();
        if (text == id
            || (id != local
                && (text.startsWith(id + QLatin1Char('x')) || text.startsWith(id + QLatin1Char(' '))))) {
            index = i;
            break;
        }
    }
    m_source->setCurrentIndex(index);
    const bool preset = index > 0 && m_source->itemData(index).toString() != fromFile;
    m_count->setEnabled(preset);
    if (m_cluster) {
        m_count->setValue(m_cluster->nodes());
        m_count->setSuffix(QLatin1Char(' ') + (m_cluster->nodes() == 1 ? tr("node") : tr("nodes")));
    }
    emit clusterChanged();
}

} // namespace rankyard::ui
