// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "ui/common/theme.h"

#include <QByteArray>
#include <QObject>
#include <QString>
#include <QVariant>

#include <memory>

class QHeaderView;
class QSettings;
class QSplitter;
class QWidget;

namespace rankyard::ui {

/// What the workbench remembers between starts, in one file with a schema number. A file of a newer schema is read for what is
/// understood and never written. GUI thread.
class Settings : public QObject
{
    Q_OBJECT
public:
    static constexpr int schema = 1;

    /// Empty: remembers nothing beyond this object (snapshots, tests).
    explicit Settings(const QString &file, QObject *parent = nullptr);
    ~Settings() override;

    ThemeMode themeMode() const;
    void setThemeMode(ThemeMode mode);
    int textPercent() const;
    void setTextPercent(int percent);
    double smoothing() const; ///< weight of the debiased moving average, 0 … 0.999
    void setSmoothing(double weight);
    int columns() const; ///< of the Monitor's grid; 0: by width
    void setColumns(int columns);
    bool logShown() const;
    void setLogShown(bool shown);

    /// Geometry of windows, splitters and headers by object name. Restoring garbage changes nothing.
    void keep(QWidget *window);
    void bringBack(QWidget *window);
    void keep(const QString &name, QSplitter *splitter);
    bool bringBack(const QString &name, QSplitter *splitter);
    void keep(const QString &name, QHeaderView *header);
    bool bringBack(const QString &name, QHeaderView *header);
    QVariant value(const QString &key, const QVariant &fallback = {}) const;
    void setValue(const QString &key, const QVariant &value);

    bool isReadOnly() const { return m_readOnly; }

signals:
    void changed();

private:
    std::unique_ptr<QSettings> m_file; ///< null: memory only
    QVariantHash m_memory;
    bool m_readOnly = false;
};

} // namespace rankyard::ui
