// SPDX-License-Identifier: GPL-3.0-or-later
#include "ui/runs/difference_model.h"

#include "ui/common/theme.h"
#include "ui/data/job_summary.h"

#include <algorithm>
#include <set>

namespace rankyard::ui {

void DifferenceModel::setJobs(const std::vector<std::pair<QString, std::string>> &jobs)
{
    beginResetModel();
    m_rows.clear();
    m_names.clear();
    std::vector<std::map<std::string, std::string>> flat;
    std::set<std::string> keys;
    for (const auto &[name, document] : jobs) {
        m_names << name;
        flat.push_back(flattenJob(document));
        for (const auto &[key, value] : flat.back())
            keys.insert(key);
    }
    for (const std::string &key : keys) {
        if (key == "name")
            continue;
        Row row{QString::fromStdString(key), {}};
        for (const auto &job : flat) {
            const auto found = job.find(key);
            row.values << (found == job.end() ? QStringLiteral("–") : QString::fromStdString(found->second));
        }
        if (std::any_of(row.values.begin(), row.values.end(),
                        [&](const QString &value) { return value != row.values.front(); }))
            m_rows.push_back(std::move(row));
    }
    endResetModel();
}

int DifferenceModel::rowCount(const QModelIndex &parent) const
{
    return parent.isValid() ? 0 : static_cast<int>(m_rows.size());
}
int DifferenceModel::columnCount(const QModelIndex &parent) const
{
    return parent.isValid() ? 0 : static_cast<int>(m_names.size()) + 1;
}

QVariant DifferenceModel::data(const QModelIndex &index, int role) const
{
    if (!index.isValid())
        return {};
    const Row &row = m_rows[static_cast<std::size_t>(index.row())];
    if (role == Qt::DisplayRole || role == Qt::ToolTipRole)
        return index.column() == 0 ? row.key : row.values.value(index.column() - 1);
    if (role == Qt::FontRole)
        return Theme::instance().font(FontRole::Mono);
    if (role == Qt::ForegroundRole && index.column() == 0)
        return Theme::instance().color(Token::Muted);
    return {};
}

QVariant DifferenceModel::headerData(int section, Qt::Orientation orientation, int role) const
{
    if (orientation != Qt::Horizontal)
        return {};
    if (role == Qt::TextAlignmentRole)
        return QVariant::fromValue(Qt::Alignment(Qt::AlignLeft | Qt::AlignVCenter));
    if (role == Qt::DisplayRole)
        return section == 0 ? tr("Key") : m_names.value(section - 1);
    return {};
}

} // namespace rankyard::ui
