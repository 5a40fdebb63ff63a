// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/base/result.h"
#include "engine/cluster/cluster.h"
#include "ui/designer/design_document.h"

#include <QWidget>

#include <memory>

class QComboBox;
class QLabel;
class QSpinBox;

namespace rankyard::ui {

/// Which cluster the design is for: this machine, a preset with a number of nodes, or a file. Opens what the document names and
/// owns it.
class ClusterChoice : public QWidget
{
    Q_OBJECT
public:
    explicit ClusterChoice(DesignDocument *document, QWidget *parent = nullptr);

    void refresh();
    /// Null when what the document names cannot be opened.
    const std::shared_ptr<const cluster::Cluster> &cluster() const { return m_cluster; }
    QString error() const;
    QComboBox *source() const { return m_source; }
    QSpinBox *count() const { return m_count; }

signals:
    void clusterChanged();

private:
    void choose();
    void chooseFile();

    DesignDocument *m_document;
    QComboBox *m_source;
    QSpinBox *m_count;
    QLabel *m_note;
    std::string m_what; ///< that m_cluster was opened from
    std::shared_ptr<const cluster::Cluster> m_cluster;
};

} // namespace rankyard::ui
