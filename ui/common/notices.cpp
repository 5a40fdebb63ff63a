// SPDX-License-Identifier: GPL-3.0-or-later
#include "ui/common/notices.h"

#include <QDateTime>

#include <algorithm>

namespace rankyard::ui {

namespace {
constexpr std::size_t mostNotices = 200;
}

Notices::Notices(QObject *parent) : QAbstractListModel(parent) {}

int Notices::post(Severity severity, const QString &text, const QString &verb, std::function<void()> run,
                  const QString &detail)
{
    const qint64 now = QDateTime::currentMSecsSinceEpoch();
    const auto same = std::find_if(m_notices.begin(), m_notices.end(),
                                   [&](const Notice &n) { return n.severity == severity && n.text == text; });
    if (same != m_notices.end()) {
        same->count += 1;
        same->msecs = now;
        same->run = std::move(run);
        const QModelIndex at = index(static_cast<int>(same - m_notices.begin()));
        emit dataChanged(at, at);
        emit posted(same->id);
        return same->id;
    }
    if (m_notices.size() >= mostNotices) {
        const int last = static_cast<int>(m_notices.size()) - 1;
        beginRemoveRows({}, last, last);
        m_notices.pop_back();
        endRemoveRows();
    }
    beginInsertRows({}, 0, 0);
    const int id = m_next++;
    m_notices.insert(m_notices.begin(), {id, severity, text, detail, verb, std::move(run), 1, now});
    endInsertRows();
    emit posted(id);
    return id;
}

int Notices::post(const Error &error, const QString &verb, std::function<void()> run)
{
    QString line = QString::fromStdString(error.what);
    if (!line.isEmpty())
        line[0] = line[0].toUpper();
    if (!error.found.empty())
        line += tr(": found %1").arg(QString::fromStdString(error.found));
    if (!error.expected.empty())
        line += (error.found.empty() ? tr(": expected %1") : tr(", expected %1"))
                    .arg(QString::fromStdString(error.expected));
    if (!error.where.empty())
        line += QStringLiteral(" (") + QString::fromStdString(error.where) + QStringLiteral(")");
    if (!error.hint.empty())
        line += QStringLiteral(". ") + QString::fromStdString(error.hint);
    return post(Severity::Error, line, verb, std::move(run), QString::fromStdString(error.text()));
}

void Notices::clear()
{
    beginResetModel();
    m_notices.clear();
    endResetModel();
}

void Notices::act(int id)
{
    if (const Notice *notice = find(id); notice && notice->run) {
        const auto run = notice->run; // it may post, which moves the list
        run();
    }
}

const Notices::Notice *Notices::find(int id) const
{
    for (const Notice &notice : m_notices) {
        if (notice.id == id)
            return &notice;
    }
    return nullptr;
}

int Notices::rowCount(const QModelIndex &parent) const
{
    return parent.isValid() ? 0 : static_cast<int>(m_notices.size());
}

QVariant Notices::data(const QModelIndex &index, int role) const
{
    if (!index.isValid() || index.row() >= rowCount())
        return {};
    const Notice &notice = m_notices[static_cast<std::size_t>(index.row())];
    switch (role) {
    case Qt::DisplayRole:
        return notice.count > 1 ? tr("%1 (%2 times)").arg(notice.text).arg(notice.count) : notice.text;
    case Qt::ToolTipRole:
    case DetailRole:
        return notice.detail.isEmpty() ? notice.text : notice.detail;
    case SeverityRole:
        return static_cast<int>(notice.severity);
    case CountRole:
        return notice.count;
    case TimeRole:
        return notice.msecs;
    case VerbRole:
        return notice.verb;
    default:
        return {};
    }
}

} // namespace rankyard::ui
