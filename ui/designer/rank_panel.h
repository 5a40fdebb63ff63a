// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "ui/common/panel.h"
#include "ui/designer/rank_map.h"

namespace rankyard::ui {

class ElidedLabel;
class Segmented;

/// The rank map with its head, and a line that says with whom the selected rank talks, over which links.
class RankPanel : public Panel
{
    Q_OBJECT
public:
    explicit RankPanel(QWidget *parent = nullptr);

    void setDesign(const std::optional<spec::Layout> &layout,
                   std::shared_ptr<const cluster::Cluster> cluster);
    void setColouring(RankMap::Colouring colouring);
    RankMap *map() const { return m_map; }
    QString detail() const;

private:
    void refresh();

    RankMap *m_map;
    ElidedLabel *m_summary;
    Segmented *m_colouring;
    QLabel *m_detail;
    std::shared_ptr<const cluster::Cluster> m_cluster;
};

} // namespace rankyard::ui
