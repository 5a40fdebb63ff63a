// SPDX-License-Identifier: GPL-3.0-or-later
#include "ui/common/settings.h"

#include <QHeaderView>
#include <QSettings>
#include <QSplitter>

#include <algorithm>

namespace rankyard::ui {

Settings::Settings(const QString &file, QObject *parent) : QObject(parent)
{
    if (file.isEmpty())
        return;
    m_file = std::make_unique<QSettings>(file, QSettings::IniFormat);
    const int found = m_file->value(QStringLiteral("schema"), 0).toInt();
    m_readOnly = found > schema;
    if (!m_readOnly && found != schema)
        m_file->setValue(QStringLiteral("schema"), schema);
}

Settings::~Settings() = default;

QVariant Settings::value(const QString &key, const QVariant &fallback) const
{
    const auto found = m_memory.constFind(key);
    if (found != m_memory.constEnd())
        return *found;
    return m_file ? m_file->value(key, fallback) : fallback;
}

void Settings::setValue(const QString &key, const QVariant &value)
{
    if (!m_file || m_readOnly)
        m_memory.insert(key, value);
    else
        m_file->setValue(key, value);
}

ThemeMode Settings::themeMode() const
{
    const QString name = value(QStringLiteral("look/theme")).toString();
    return name == QLatin1String("dark") ? ThemeMode::Dark
        : name == QLatin1String("light") ? ThemeMode::Light
                                         : ThemeMode::System;
}

void Settings::setThemeMode(ThemeMode mode)
{
    setValue(QStringLiteral("look/theme"),
             mode == ThemeMode::Dark        ? QStringLiteral("dark")
                 : mode == ThemeMode::Light ? QStringLiteral("light")
                                            : QStringLiteral("system"));
    emit changed();
}

int Settings::textPercent() const
{
    return std::clamp(value(QStringLiteral("look/text"), 100).toInt(), 100, 200);
}

void Settings::setTextPercent(int percent)
{
    setValue(QStringLiteral("look/text"), std::clamp(percent, 100, 200));
    emit changed();
}

double Settings::smoothing() const
{
    return std::clamp(value(QStringLiteral("charts/smoothing"), 0.85).toDouble(), 0.0, 0.999);
}

void Settings::setSmoothing(double weight)
{
    setValue(QStringLiteral("charts/smoothing"), std::clamp(weight, 0.0, 0.999));
    emit changed();
}

int Settings::columns() const { return std::clamp(value(QStringLiteral("charts/columns"), 0).toInt(), 0, 4); }

void Settings::setColumns(int columns)
{
    setValue(QStringLiteral("charts/columns"), std::clamp(columns, 0, 4));
    emit changed();
}

bool Settings::logShown() const { return value(QStringLiteral("monitor/log"), true).toBool(); }

void Settings::setLogShown(bool shown)
{
    setValue(QStringLiteral("monitor/log"), shown);
    emit changed();
}

void Settings::keep(QWidget *window)
{
    setValue(QStringLiteral("window/") + window->objectName(), window->saveGeometry());
}

void Settings::bringBack(QWidget *window)
{
    window->restoreGeometry(value(QStringLiteral("window/") + window->objectName()).toByteArray());
}

void Settings::keep(const QString &name, QSplitter *splitter)
{
    setValue(QStringLiteral("splitter/") + name, splitter->saveState());
}

bool Settings::bringBack(const QString &name, QSplitter *splitter)
{
    return splitter->restoreState(value(QStringLiteral("splitter/") + name).toByteArray());
}

void Settings::keep(const QString &name, QHeaderView *header)
{
    setValue(QStringLiteral("header/") + name, header->saveState());
}

bool Settings::bringBack(const QString &name, QHeaderView *header)
{
    return header->restoreState(value(QStringLiteral("header/") + name).toByteArray());
}

} // namespace rankyard::ui
