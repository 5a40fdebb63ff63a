// SPDX-License-Identifier: GPL-3.0-or-later
#include "ui/monitor/monitor_head.h"

#include "ui/common/actions.h"
#include "ui/common/chip.h"
#include "ui/common/elided_label.h"
#include "ui/common/icons.h"
#include "ui/common/segmented.h"
#include "ui/common/settings.h"

#include <QHBoxLayout>
#include <QLabel>
#include <QMenu>
#include <QPushButton>
#include <QSlider>
#include <QToolButton>
#include <QVBoxLayout>
#include <QWidgetAction>

#include <algorithm>
#include <cmath>

namespace rankyard::ui {

double secondsLeft(const RunData &run)
{
    const RankColumns *lead = run.lead();
    const std::int64_t steps = run.info().steps > 0 ? run.info().steps : run.job().steps;
    if (!lead || steps <= 0)
        return -1;
    const std::int64_t left = steps - lead->step.back();
    const std::size_t from = lead->size() > 30 ? lead->size() - 30 : 0;
    std::vector<double> recent(lead->stepMs.begin() + static_cast<std::ptrdiff_t>(from), lead->stepMs.end());
    std::nth_element(recent.begin(), recent.begin() + static_cast<std::ptrdiff_t>(recent.size() / 2),
                     recent.end());
    return left <= 0 ? 0 : static_cast<double>(left) * recent[recent.size() / 2] / 1e3;
}

MonitorHead::MonitorHead(ActionRegistry *registry, Settings *settings, QWidget *parent)
    : QWidget(parent),
      m_registry(registry),
      m_name(new QLabel(this)),
      m_state(new Chip(this)),
      m_summary(new ElidedLabel(this)),
      m_follow(new Chip(this)),
      m_modes(new Segmented(tr("X axis"), {tr("Step"), tr("Tokens"), tr("Time")}, this)),
      m_view(new QToolButton(this)),
      m_pause(new QPushButton(this)),
      m_checkpoint(new QPushButton(this)),
      m_stop(new QPushButton(this))
{
    auto *row = new QHBoxLayout(this);
    row->setContentsMargins(0, 0, 0, 0);
    row->setSpacing(8);
    row->addWidget(m_name);
    row->addSpacing(4);
    row->addWidget(m_state);
    row->addSpacing(4);
    row->addWidget(m_summary, 1);
    row->addWidget(m_follow);
    row->addWidget(m_modes);
    row->addWidget(m_view);
    row->addSpacing(4);
    const std::pair<QPushButton *, const char *> buttons[] = {
        {m_pause, "monitor.pause"}, {m_checkpoint, "monitor.checkpoint"}, {m_stop, "monitor.stop"}};
    for (const auto &[button, id] : buttons) {
        QAction *action = registry->action(QLatin1String(id));
        const auto mirror = [this, target = button, action] {
            target->setText(action->text());
            target->setToolTip(action->toolTip());
            target->setEnabled(action->isEnabled());
            target->setVisible(action->isVisible());
            fit();
        };
        connect(action, &QAction::changed, button, mirror);
        connect(button, &QPushButton::clicked, action, &QAction::trigger);
        mirror();
        row->addWidget(button);
    }
    m_stop->setProperty("tone", "danger");
    setRole(m_name, FontRole::Head);
    setRole(m_summary, FontRole::Mono);
    m_summary->setProperty("tone", "muted");
    m_follow->setClickable(true);
    m_follow->hide();
    m_modes->setChoiceTip(0, tr("Optimizer steps on the x axis"));
    m_modes->setChoiceTip(1, tr("Tokens seen on the x axis"));
    m_modes->setChoiceTip(2, tr("Wall-clock time since the start on the x axis"));
    connect(m_modes, &Segmented::changed, this,
            [this](int index) { emit modeChosen(static_cast<XMode>(index)); });
    connect(m_follow, &Chip::clicked, this, &MonitorHead::resumeFollowing);
    buildViewMenu(settings);
    connect(&Theme::instance(), &Theme::changed, this, &MonitorHead::restyle);
    restyle();
    showNothing();
}

void MonitorHead::buildViewMenu(Settings *settings)
{
    m_view->setIcon(icon(QStringLiteral("settings")));
    m_view->setIconSize({18, 18});
    m_view->setToolTip(tr("Columns, smoothing, panes"));
    m_view->setAccessibleName(tr("View options"));
    m_view->setPopupMode(QToolButton::InstantPopup);
    auto *menu = new QMenu(m_view);
    m_view->setMenu(menu);
    auto *holder = new QWidget(menu);
    auto *column = new QVBoxLayout(holder);
    column->setContentsMargins(12, 8, 12, 8);
    column->setSpacing(8);
    auto *columns = new Segmented(
        tr("Columns"),
        {tr("Auto"), QStringLiteral("1"), QStringLiteral("2"), QStringLiteral("3"), QStringLiteral("4")},
        holder);
    columns->setCurrent(settings->columns());
    connect(columns, &Segmented::changed, settings, &Settings::setColumns);
    auto *slider = new QSlider(Qt::Horizontal, holder);
    auto *value = new QLabel(holder);
    slider->setRange(0, 99);
    slider->setMinimumWidth(200);
    slider->setAccessibleName(tr("Smoothing"));
    const QString what = tr(
        "Debiased exponential moving average over all steps, before anything is reduced to pixels. The raw line stays behind it.");
    slider->setToolTip(what);
    const auto say = [slider, value] {
        value->setText(tr("Smoothing %1").arg(QString::number(slider->value() / 100.0, 'f', 2)));
    };
    slider->setValue(static_cast<int>(std::lround(settings->smoothing() * 100)));
    say();
    connect(slider, &QSlider::valueChanged, settings, [settings, say](int percent) {
        say();
        settings->setSmoothing(percent / 100.0);
    });
    connect(menu, &QMenu::aboutToShow, this, [settings, slider, columns] {
        columns->setCurrent(settings->columns());
        slider->setValue(static_cast<int>(std::lround(settings->smoothing() * 100)));
    });
    column->addWidget(new QLabel(tr("Columns"), holder));
    column->addWidget(columns);
    column->addSpacing(4);
    column->addWidget(value);
    column->addWidget(slider);
    auto *action = new QWidgetAction(menu);
    action->setDefaultWidget(holder);
    menu->addAction(action);
    menu->addSeparator();
    for (const char *id :
         {"monitor.follow", "monitor.fit", "monitor.back", "monitor.x", "monitor.log", "monitor.checkpoint"})
        menu->addAction(m_registry->action(QLatin1String(id)));
}

void MonitorHead::showNothing()
{
    m_name->setText(tr("Monitor"));
    m_name->setProperty("data", false);
    m_state->hide();
    m_summary->setFullText({});
    m_view->hide();
    fit();
}

void MonitorHead::showRun(const RunData &run)
{
    const store::RunInfo &info = run.info();
    const StateLook look = lookOf(info.state);
    m_name->setText(QString::fromStdString(info.name));
    m_name->setProperty("data", true);
    m_name->setToolTip(QString::fromStdString(info.id));
    m_state->setLook(look.word, look.tone, look.icon);
    m_state->show();
    m_view->show();
    QStringList parts{run.job().layout(), run.job().compute};
    const std::int64_t steps = info.steps > 0 ? info.steps : run.job().steps;
    parts << (steps > 0 ? tr("step %1 / %2").arg(formatStep(info.step), formatStep(steps))
                        : tr("step %1").arg(formatStep(info.step)));
    if (telemetry::isTerminal(info.state)) {
        const std::int64_t end = info.endedNs > 0 ? info.endedNs : info.lastSeenNs;
        if (info.startedNs > 0 && end > info.startedNs)
            parts << tr("took %1").arg(formatSeconds(static_cast<double>(end - info.startedNs) / 1e9));
    } else if (info.state == telemetry::RunState::Running) {
        const double left = secondsLeft(run);
        if (left > 0)
            parts << tr("%1 left").arg(formatSeconds(left));
    }
    m_summary->setFullText(parts.join(QStringLiteral(" · ")));
    fit();
}

void MonitorHead::showFollowing(bool following, int newSteps)
{
    m_follow->setVisible(!following);
    m_follow->setLook(newSteps > 0 ? tr("paused, %1 new").arg(formatStep(newSteps)) : tr("view paused"),
                      Token::Accent);
    m_follow->setToolTip(tr("The view stays where you put it. Click to follow the run again (Space)"));
}

QString MonitorHead::stateWord() const { return m_state->text(); }
QString MonitorHead::summary() const { return m_summary->fullText(); }

QSize MonitorHead::minimumSizeHint() const { return {0, QWidget::minimumSizeHint().height()}; }

void MonitorHead::resizeEvent(QResizeEvent *event)
{
    QWidget::resizeEvent(event);
    fit();
}

void MonitorHead::fit()
{
    const bool shown = !m_view->isHidden();
    const QAction *checkpoint = m_registry->action(QStringLiteral("monitor.checkpoint"));
    m_modes->setVisible(shown);
    m_checkpoint->setVisible(checkpoint->isVisible());
    for (QWidget *giving : {static_cast<QWidget *>(m_modes), static_cast<QWidget *>(m_checkpoint)}) {
        if (layout()->minimumSize().width() > width())
            giving->hide();
    }
}

void MonitorHead::restyle() { m_view->setIconSize(QSize(18, 18) * Theme::instance().textPercent() / 100); }

} // namespace rankyard::ui
