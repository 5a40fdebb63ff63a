// SPDX-License-Identifier: GPL-3.0-or-later
#include "ui/shell/status_strip.h"

#include "ui/common/elided_label.h"
#include "ui/common/format.h"
#include "ui/common/icons.h"
#include "ui/common/long_work.h"

#include <QHBoxLayout>
#include <QLabel>
#include <QProgressBar>
#include <QToolButton>

#include <algorithm>

namespace rankyard::ui {

StatusStrip::StatusStrip(DataHub *hub, Notices *notices, QWidget *parent)
    : QFrame(parent),
      m_hub(hub),
      m_notices(notices),
      m_run(new QToolButton(this)),
      m_figures(new ElidedLabel(this)),
      m_job(new QLabel(this)),
      m_work(new QLabel(this)),
      m_bar(new QProgressBar(this)),
      m_cancel(new QToolButton(this)),
      m_noticeButton(new QToolButton(this))
{
    setObjectName(QStringLiteral("strip"));
    auto *row = new QHBoxLayout(this);
    row->setContentsMargins(8, 1, 8, 0);
    row->setSpacing(12);
    row->addWidget(m_run);
    row->addWidget(m_figures, 1);
    row->addWidget(m_job);
    row->addWidget(m_work);
    row->addWidget(m_bar);
    row->addWidget(m_cancel);
    row->addWidget(m_noticeButton);
    m_run->setToolButtonStyle(Qt::ToolButtonTextBesideIcon);
    for (QWidget *widget :
         {static_cast<QWidget *>(m_run), static_cast<QWidget *>(m_noticeButton),
          static_cast<QWidget *>(m_job), static_cast<QWidget *>(m_work), static_cast<QWidget *>(m_cancel)})
        setRole(widget, FontRole::Small);
    setRole(m_figures, FontRole::Mono);
    m_bar->setRange(0, 1000);
    m_bar->setTextVisible(false);
    m_cancel->setText(tr("Cancel"));
    connect(m_cancel, &QToolButton::clicked, this, [this] {
        if (!m_works.empty())
            m_works.back()->cancel();
    });
    for (QLabel *label : {static_cast<QLabel *>(m_figures), m_job, m_work})
        label->setProperty("tone", "muted");
    m_run->setAccessibleName(tr("Live run"));
    m_noticeButton->setToolTip(tr("What the program had to tell"));
    connect(m_run, &QToolButton::clicked, this, [this] {
        if (!m_shown.isEmpty())
            emit runClicked(m_shown);
    });
    connect(m_noticeButton, &QToolButton::clicked, this, &StatusStrip::noticesClicked);
    connect(m_hub, &DataHub::runsChanged, this, &StatusStrip::refresh);
    for (auto signal : {&QAbstractItemModel::rowsInserted, &QAbstractItemModel::rowsRemoved})
        connect(m_notices, signal, this, &StatusStrip::refresh);
    connect(m_notices, &QAbstractItemModel::modelReset, this, &StatusStrip::refresh);
    connect(&Theme::instance(), &Theme::changed, this, &StatusStrip::restyle);
    restyle();
    refresh();
    refreshWork();
}

void StatusStrip::setJob(const QString &text) { m_job->setText(text); }

void StatusStrip::watch(LongWork *work)
{
    connect(work, &LongWork::changed, this, [this, work] {
        const auto at = std::find(m_works.begin(), m_works.end(), work);
        if (work->isRunning() && at == m_works.end())
            m_works.push_back(work);
        else if (!work->isRunning() && at != m_works.end())
            m_works.erase(at);
        refreshWork();
    });
    connect(work, &QObject::destroyed, this, [this, work] {
        std::erase(m_works, work);
        refreshWork();
    });
}

void StatusStrip::refreshWork()
{
    const bool on = !m_works.empty();
    for (QWidget *part :
         {static_cast<QWidget *>(m_work), static_cast<QWidget *>(m_bar), static_cast<QWidget *>(m_cancel)})
        part->setVisible(on);
    if (!on)
        return;
    const LongWork &work = *m_works.back();
    QString text = tr("%1: %2").arg(work.title(), work.progress());
    if (m_works.size() > 1)
        text += tr(", and %1 more").arg(m_works.size() - 1);
    m_work->setText(text);
    m_work->setToolTip(work.doing());
    m_bar->setValue(static_cast<int>(m_bar->maximum() * work.share()));
    m_bar->setAccessibleName(text);
    m_cancel->setAccessibleName(tr("Cancel: %1").arg(work.title()));
}

QString StatusStrip::workText() const { return m_work->text(); }

QString StatusStrip::liveText() const { return m_run->text() + QLatin1Char(' ') + m_figures->fullText(); }

void StatusStrip::refresh()
{
    const store::RunInfo *newest = nullptr;
    int live = 0;
    if (m_hub->runs()) {
        for (const store::RunInfo &run : *m_hub->runs()) {
            if (!telemetry::isLive(run.state))
                continue;
            ++live;
            if (!newest || run.startedNs > newest->startedNs)
                newest = &run;
        }
    }
    m_shown = newest ? QString::fromStdString(newest->id) : QString();
    if (newest) {
        const StateLook look = lookOf(newest->state);
        m_run->setIcon(icon(look.icon, look.tone));
        m_run->setText(QString::fromStdString(newest->name));
        m_run->setProperty("data", true); // a name of somebody's, not a text of ours
        m_run->setToolTip(tr("Watch %1 (%2)").arg(QString::fromStdString(newest->name), look.word));
        m_run->setEnabled(true);
        QStringList parts;
        parts << (newest->steps > 0
                      ? tr("step %1 / %2").arg(formatStep(newest->step), formatStep(newest->steps))
                      : tr("step %1").arg(formatStep(newest->step)));
        if (newest->step > 0)
            parts << tr("loss %1").arg(formatLoss(newest->lastLoss));
        if (newest->tokensPerS > 0)
            parts << formatValue(newest->tokensPerS, Unit::TokensPerSecond);
        parts << tr("%n ranks", nullptr, newest->world);
        if (live > 1)
            parts << tr("and %n more runs", nullptr, live - 1);
        m_figures->setFullText(parts.join(QStringLiteral("   ")));
    } else {
        m_run->setIcon(icon(QStringLiteral("state_waiting")));
        m_run->setText(tr("No live run"));
        m_run->setProperty("data", false);
        m_run->setToolTip({});
        m_run->setEnabled(false);
        m_figures->setFullText({});
    }
    const int count = m_notices->rowCount();
    m_noticeButton->setText(count == 0 ? tr("No notices") : tr("%n notices", nullptr, count));
    m_noticeButton->setAccessibleName(m_noticeButton->text());
}

void StatusStrip::restyle()
{
    const Theme &theme = Theme::instance();
    setFixedHeight(theme.scaled(28));
    m_run->setIconSize({theme.scaled(14), theme.scaled(14)});
    m_bar->setFixedSize(theme.scaled(80), theme.scaled(6));
}

} // namespace rankyard::ui
