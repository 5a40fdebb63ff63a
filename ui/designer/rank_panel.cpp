// SPDX-License-Identifier: GPL-3.0-or-later
#include "ui/designer/rank_panel.h"

#include "ui/cluster/device_text.h"
#include "ui/common/elided_label.h"
#include "ui/common/format.h"
#include "ui/common/narrow_row.h"
#include "ui/common/rows.h"
#include "ui/common/segmented.h"
#include "ui/common/theme.h"

#include <QHBoxLayout>
#include <QLabel>

#include <algorithm>

namespace rankyard::ui {

namespace {

/// "0–7", "3, 11, 19 …"
QString listOf(const std::vector<int> &ranks)
{
    if (ranks.size() > 2 && ranks.back() - ranks.front() == static_cast<int>(ranks.size()) - 1)
        return QStringLiteral("%1–%2").arg(ranks.front()).arg(ranks.back());
    QStringList parts;
    for (std::size_t i = 0; i < std::min<std::size_t>(ranks.size(), 5); ++i)
        parts << QString::number(ranks[i]);
    return parts.join(QStringLiteral(", ")) + (ranks.size() > 5 ? QStringLiteral(" …") : QString());
}

} // namespace

RankPanel::RankPanel(QWidget *parent)
    : Panel({}, parent),
      m_map(new RankMap(this)),
      m_summary(new ElidedLabel(this)),
      m_colouring(new Segmented(tr("Colours"), {tr("Stages"), tr("Tensor groups"), tr("Data groups")}, this)),
      m_detail(new QLabel(this))
{
    m_summary->setProperty("tone", "muted");
    m_summary->setProperty("data", true);
    setRole(m_summary, FontRole::Small);
    auto *head = new NarrowRow(this);
    auto *title = new QLabel(tr("Ranks on the cluster"), head);
    setRole(title, FontRole::Strong);
    setAccessibleName(title->text());
    head->row()->addWidget(title);
    head->row()->addWidget(m_summary, 1);
    head->row()->addWidget(m_colouring);
    head->addGiving(m_colouring);
    head->addGiving(title); // the map says it
    headLayout()->addWidget(head, 1);
    body()->addWidget(m_map, 1);
    m_detail->setWordWrap(true);
    m_detail->setMinimumWidth(80); // it wraps
    m_detail->setProperty("data", true);
    m_detail->setContentsMargins(12, 4, 12, 8);
    setRole(m_detail, FontRole::Small);
    body()->addWidget(m_detail);
    connect(m_colouring, &Segmented::changed, this,
            [this](int index) { m_map->setColouring(static_cast<RankMap::Colouring>(index)); });
    connect(m_map, &RankMap::selectionChanged, this, &RankPanel::refresh);
    refresh();
}

void RankPanel::setDesign(const std::optional<spec::Layout> &layout,
                          std::shared_ptr<const cluster::Cluster> cluster)
{
    m_cluster = cluster;
    QString summary;
    if (m_cluster) {
        const int nodes = m_cluster->nodes();
        summary = nodes == 1 ? tr("1 node") : tr("%1 nodes").arg(formatStep(nodes));
        if (!m_cluster->types.empty())
            summary += QStringLiteral(" · ") + summaryOf(m_cluster->types[0]);
    }
    m_summary->setFullText(summary);
    m_map->setDesign(layout, std::move(cluster));
    refresh();
}

void RankPanel::setColouring(RankMap::Colouring colouring) { m_colouring->setCurrent(colouring); }

QString RankPanel::detail() const { return m_detail->text(); }

void RankPanel::refresh()
{
    QStringList lines;
    const char *tone = "muted";
    if (!m_cluster) {
        lines << tr("No cluster is open.");
    } else if (m_map->world() == 0) {
        lines << tr("The ranks have no place on this cluster.");
    } else if (m_map->selected() < 0) {
        lines << tr("Select a rank to see whom it talks to, and over which links.");
    } else {
        tone = "";
        QStringList parts{tr("Rank %1").arg(m_map->selected())};
        for (const RankMap::Group &group : m_map->groups()) {
            parts << QStringLiteral("%1 %2 (%3)")
                         .arg(group.name, listOf(group.ranks), wordsOfLink(group.worst.link));
            if (group.axis == "tp" && !group.worst.island) {
                tone = "warn";
                parts.last() += QStringLiteral(", ") + tr("leaves its fast island");
            }
        }
        if (m_map->groups().empty())
            parts << tr("alone");
        lines << parts.join(QStringLiteral(" · "));
    }
    m_detail->setText(lines.join(QLatin1Char('\n')));
    setTone(m_detail, tone);
}

} // namespace rankyard::ui
