// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "ui/monitor/monitor_charts.h"

#include <QWidget>

class QLabel;
class QMenu;
class QPushButton;
class QToolButton;

namespace rankyard::ui {

class ActionRegistry;
class Chip;
class ElidedLabel;
class Segmented;
class Settings;

/// The Monitor's part of the window head: whose run, its state, what can be done with it.
class MonitorHead : public QWidget
{
    Q_OBJECT
public:
    MonitorHead(ActionRegistry *registry, Settings *settings, QWidget *parent = nullptr);

    void showNothing();
    void showRun(const RunData &run);
    void showFollowing(bool following, int newSteps);
    Segmented *modes() const { return m_modes; }
    QString stateWord() const;
    QString summary() const;
    /// Narrow: what has another way to it gives way (x axis, checkpoint; both are in the view menu).
    QSize minimumSizeHint() const override;

protected:
    void resizeEvent(QResizeEvent *event) override;

signals:
    void modeChosen(rankyard::ui::XMode mode);
    void resumeFollowing();

private:
    void restyle();
    void fit();
    void buildViewMenu(Settings *settings);

    ActionRegistry *m_registry;
    QLabel *m_name;
    Chip *m_state;
    ElidedLabel *m_summary;
    Chip *m_follow;
    Segmented *m_modes;
    QToolButton *m_view;
    QPushButton *m_pause;
    QPushButton *m_checkpoint;
    QPushButton *m_stop;
};

/// Seconds until the last step, from the median of the last steps; negative when unknown.
double secondsLeft(const RunData &run);

} // namespace rankyard::ui
