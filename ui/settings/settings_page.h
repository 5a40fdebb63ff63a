// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <QWidget>

class QLabel;

namespace rankyard::ui {

class ActionRegistry;
class Panel;
class Settings;

/// Look, charts, where the data are, what this program is.
class SettingsPage : public QWidget
{
    Q_OBJECT
public:
    SettingsPage(Settings *settings, ActionRegistry *registry, const QString &storeFile, QWidget *parent = nullptr);

private:
    Panel *look();
    Panel *charts();
    Panel *data(const QString &storeFile);
    Panel *about();
    void restyle();

    Settings *m_settings;
    ActionRegistry *m_registry;
    QList<QLabel *> m_mono;
    QList<QLabel *> m_hints;
};

} // namespace rankyard::ui
