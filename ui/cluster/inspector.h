// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "ui/cluster/live_use.h"
#include "ui/cluster/overlay.h"

#include <QPointer>
#include <QScrollArea>

class QFormLayout;
class QLabel;
class QSpinBox;
class QVBoxLayout;

namespace rankyard::ui {

/// Right of the cluster: what is selected, the layout that is laid over it, and the groups of the selected rank. GUI thread.
class Inspector : public QScrollArea
{
    Q_OBJECT
public:
    explicit Inspector(QWidget *parent = nullptr);

    void setCluster(const cluster::Cluster *cluster,
                    const cluster::Slots *places); ///< outlive it, or are replaced
    void showSelection(int node, int device, int slot);
    const Overlay &overlay() const { return m_overlay; }
    void setAxes(int tp, int pp, int dp);
    /// What the selected device does now; kept, and looked at until it says something else.
    void showUse(const LiveUse &use);
    QStringList useRows() const; ///< "name value"
    QStringList measuredRows() const { return m_measuredRows; }
    QString verdict() const; ///< on the layout as a whole

signals:
    void overlayChanged();

private:
    QWidget *section(const QString &title, QVBoxLayout **body);
    void rebuildOverlay();
    void fillFacts();
    void fillGroups();
    void fillUse();
    void fillMeasured();
    void line(QVBoxLayout *into, const QString &name, const QString &value, const char *tone = nullptr);

    const cluster::Cluster *m_cluster = nullptr;
    const cluster::Slots *m_slots = nullptr;
    Overlay m_overlay;
    QPointer<const LiveUse> m_use;
    QStringList m_useRows;
    QStringList m_measuredRows;
    int m_node = -1;
    int m_device = -1;
    int m_slot = -1;
    QLabel *m_title;
    QVBoxLayout *m_facts;
    QLabel *m_measuredTitle;
    QVBoxLayout *m_measured;
    QLabel *m_useTitle;
    QVBoxLayout *m_useLines;
    QVBoxLayout *m_groups;
    QLabel *m_groupsTitle;
    QSpinBox *m_axes[3]; ///< tp, pp, dp
    QLabel *m_verdict;
    QVBoxLayout *m_notes;
};

} // namespace rankyard::ui
