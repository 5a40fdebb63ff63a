// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "ui/data/data_hub.h"

#include <QHash>
#include <QWidget>

class QBoxLayout;
class QGridLayout;
class QLabel;
class QVBoxLayout;

namespace rankyard::ui {

class ActionRegistry;
class Panel;
class RunRow;

/// Where a start ends: run the sample, design a layout, what is running, what ran last, what was designed last, this machine.
class HomePage : public QWidget
{
    Q_OBJECT
public:
    HomePage(DataHub *hub, ActionRegistry *registry, QWidget *parent = nullptr);
    bool isReady() const;
    /// Files of designs, the newest first; those that are gone are left out.
    void setDesigns(const QStringList &files);

signals:
    void openRequested(const QString &run);
    void designRequested(const QString &file);
    void ready();

private:
    QWidget *cards();
    QWidget *card(const QString &title, const QString &text, const char *action, const QString &button,
                  bool primary);
    QWidget *keysPanel();
    void refresh();
    void layOut();
    void fill(Panel *panel, const std::vector<store::RunInfo> &runs, const QString &nothing);

    DataHub *m_hub;
    ActionRegistry *m_registry;
    QGridLayout *m_grid = nullptr;
    QVBoxLayout *m_left = nullptr;
    QVBoxLayout *m_right = nullptr;
    QBoxLayout *m_cards = nullptr;
    Panel *m_live;
    Panel *m_recent;
    Panel *m_designs;
    QHash<QString, std::vector<double>> m_previews;
    QHash<QString, qint64> m_asked; ///< step at which the preview was asked for
    int m_waiting = 0;
};

} // namespace rankyard::ui
