// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/base/error.h"

#include <QAbstractListModel>

#include <functional>
#include <vector>

namespace rankyard::ui {

enum class Severity { Info, Good, Warning, Error };

/// What the program has to tell beside the page: one line with at most one verb. Repeats are counted, never stacked;
/// nothing is modal. The list stays until the program ends. GUI thread.
class Notices : public QAbstractListModel
{
    Q_OBJECT
public:
    enum Roles { SeverityRole = Qt::UserRole + 1, CountRole, TimeRole, VerbRole, DetailRole };

    struct Notice {
        int id = 0;
        Severity severity = Severity::Info;
        QString text;
        QString detail; ///< tooltip: what, where, way out
        QString verb;
        std::function<void()> run;
        int count = 1;
        qint64 msecs = 0; ///< wall, of the newest
    };

    explicit Notices(QObject *parent = nullptr);

    /// Same text and severity as one in the list: that one is counted up. Returns its id.
    int post(Severity severity, const QString &text, const QString &verb = {}, std::function<void()> run = {},
             const QString &detail = {});
    int post(const Error &error, const QString &verb = {}, std::function<void()> run = {});
    void clear();
    void act(int id);
    const std::vector<Notice> &all() const { return m_notices; } ///< newest first
    const Notice *find(int id) const;

    int rowCount(const QModelIndex &parent = {}) const override;
    QVariant data(const QModelIndex &index, int role) const override;

signals:
    void posted(int id);

private:
    std::vector<Notice> m_notices;
    int m_next = 1;
};

} // namespace rankyard::ui
