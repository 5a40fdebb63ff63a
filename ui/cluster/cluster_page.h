// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/base/result.h"
#include "engine/cluster/cluster.h"
#include "ui/cluster/live_use.h"
#include "ui/common/notices.h"

#include <QPointer>
#include <QWidget>

#include <memory>

class QComboBox;
class QPushButton;
class QSpinBox;
class QSplitter;
class QStackedWidget;

namespace rankyard::ui {

class ActionRegistry;
class ClusterCanvas;
class ElidedLabel;
class EmptyState;
class FabricView;
class Inspector;
class MatrixView;
class NarrowRow;
class ProbeRun;
class Segmented;
class Settings;

/// What there is to run on: nested boxes, link matrix, fabric; a layout laid over it with its groups and their worst links.
class ClusterPage : public QWidget
{
    Q_OBJECT
public:
    enum View { Boxes, Matrix, FabricOfNodes };

    /// `hub`: whose ranks are shown on this machine while a run is on; null: none.
    ClusterPage(ActionRegistry *registry, Settings *settings, QWidget *parent = nullptr,
                DataHub *hub = nullptr, LiveUse::MakeRead makeRead = {});
    ~ClusterPage() override;

    /// As cluster::openCluster takes it. An error is shown in place of the cluster, and returned.
    Status open(const QString &what);
    /// The same, read on another thread: a large file holds up nothing. The newest one asked for is shown.
    void openLater(const QString &what);
    bool isOpening() const { return m_shown != m_asked; }
    /// What was open when the program ended, or this machine; only when nothing is open. Read on another thread.
    void openSomething();
    void setView(View view);
    View view() const;

    QWidget *headWidget() const;
    ClusterCanvas *canvas() const { return m_canvas; }
    MatrixView *matrix() const { return m_matrix; }
    FabricView *fabric() const { return m_fabric; }
    Inspector *inspector() const { return m_inspector; }
    LiveUse *use() const { return m_use; }
    ProbeRun *probe() const { return m_probe; }
    const QString &what() const { return m_what; } ///< as open() took it
    const cluster::Cluster *cluster() const { return m_cluster.get(); }
    QString summary() const;

signals:
    void ready(); ///< what was asked for by openLater is shown
    /// A design for what is open, as cluster::openCluster takes it.
    void designWanted(const QString &what);
    void told(rankyard::ui::Severity severity, const QString &text); ///< how a probe ended, for a notice

protected:
    void keyPressEvent(QKeyEvent *event) override;
    void showEvent(QShowEvent *event) override;
    void hideEvent(QHideEvent *event) override;
    bool eventFilter(QObject *object, QEvent *event) override;
    void dragEnterEvent(QDragEnterEvent *event) override;
    void dropEvent(QDropEvent *event) override;

private:
    void addActions();
    void buildHead();
    void chooseFile();
    void choosePreset();
    Status present(const QString &what, Result<cluster::Cluster> read);
    void watchUse();
    void refreshUse();
    void refreshSummary();
    void refreshSelection();
    void toggleProbe();
    void refreshProbe();

    ActionRegistry *m_registry;
    Settings *m_settings;
    QPointer<NarrowRow> m_head; ///< the window head owns it once it is in there
    ElidedLabel *m_summary = nullptr;
    Segmented *m_views = nullptr;
    QComboBox *m_source = nullptr;
    QSpinBox *m_count = nullptr;
    QStackedWidget *m_outer;
    EmptyState *m_empty;
    QSplitter *m_splitter;
    QStackedWidget *m_stack;
    ClusterCanvas *m_canvas;
    MatrixView *m_matrix;
    FabricView *m_fabric;
    Inspector *m_inspector;
    LiveUse *m_use;
    ProbeRun *m_probe;
    QPushButton *m_probeButton = nullptr;
    std::uint64_t m_asked = 0; ///< by openLater
    std::uint64_t m_shown = 0;
    bool m_starting = false; ///< what is read was open last time, and may be gone
    std::unique_ptr<cluster::Cluster> m_cluster;
    std::unique_ptr<cluster::Slots> m_slots;
    QString m_what;
};

} // namespace rankyard::ui
