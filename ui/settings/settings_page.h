// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <QWidget>

namespace rankyard::ui {

class ActionRegistry;
class Panel;
class Settings;
class ShortcutTable;

/// Look, charts, where the data are, what this program is.
class SettingsPage : public QWidget
{
    Q_OBJECT
public:
    SettingsPage(Settings *settings, ActionRegistry *registry, const QString &storeFile,
                 QWidget *parent = nullptr);

private:
    Panel *look();
    Panel *charts();
    Panel *data(const QString &storeFile);
    Panel *about();

protected:
    /// The registry is complete only when the window stands.
    void showEvent(QShowEvent *event) override;

private:
    Settings *m_settings;
    ActionRegistry *m_registry;
    ShortcutTable *m_keys = nullptr;
};

} // namespace rankyard::ui
