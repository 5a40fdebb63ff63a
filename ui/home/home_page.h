// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "ui/data/data_hub.h"

#include <QHash>
#include <QWidget>

class QGridLayout;
class QLabel;
class QVBoxLayout;

namespace rankyard::ui {

class ActionRegistry;
class Panel;
class RunRow;

/// Where a start ends: run the sample, what is running, what ran last, this machine.
class HomePage : public QWidget
{
    Q_OBJECT
public:
    HomePage(DataHub *hub, ActionRegistry *registry, QWidget *parent = nullptr);
    bool isReady() const;

signals:
    void openRequested(const QString &run);
    void ready();

private:
    QWidget *sampleCard();
    QWidget *keysPanel();
    void refresh();
    void layOut();
    void fill(Panel *panel, const std::vector<store::RunInfo> &runs, const QString &nothing);

    DataHub *m_hub;
    ActionRegistry *m_registry;
    QGridLayout *m_grid = nullptr;
    QVBoxLayout *m_left = nullptr;
    QVBoxLayout *m_right = nullptr;
    Panel *m_live;
    Panel *m_recent;
    QHash<QString, std::vector<double>> m_previews;
    QHash<QString, qint64> m_asked; ///< step at which the preview was asked for
    int m_waiting = 0;
};

} // namespace rankyard::ui
