// SPDX-License-Identifier: GPL-3.0-or-later
#include "ui/cluster/cluster_page.h"

#include "engine/cluster/sources.h"
#include "ui/cluster/cluster_canvas.h"
#include "ui/cluster/fabric_view.h"
#include "ui/cluster/inspector.h"
#include "ui/cluster/matrix_view.h"
#include "ui/cluster/probe_run.h"
#include "ui/common/actions.h"
#include "ui/common/choice_box.h"
#include "ui/common/elided_label.h"
#include "ui/common/empty_state.h"
#include "ui/common/format.h"
#include "ui/common/narrow_row.h"
#include "ui/common/rows.h"
#include "ui/common/segmented.h"
#include "ui/common/settings.h"

#include <QComboBox>
#include <QDragEnterEvent>
#include <QFileDialog>
#include <QHBoxLayout>
#include <QKeyEvent>
#include <QMimeData>
#include <QPushButton>
#include <QSpinBox>
#include <QSplitter>
#include <QStackedWidget>
#include <QTableView>
#include <QThreadPool>
#include <QUrl>

#include <utility>

namespace rankyard::ui {

namespace {

constexpr QLatin1String openKey("cluster/open");
constexpr QLatin1String local("local");

} // namespace

ClusterPage::ClusterPage(ActionRegistry *registry, Settings *settings, QWidget *parent, DataHub *hub,
                         LiveUse::MakeRead makeRead)
    : QWidget(parent),
      m_registry(registry),
      m_settings(settings),
      m_head(new NarrowRow),
      m_outer(new QStackedWidget(this)),
      m_empty(new EmptyState(this)),
      m_splitter(new QSplitter(Qt::Horizontal, this)),
      m_stack(new QStackedWidget(this)),
      m_canvas(new ClusterCanvas(this)),
      m_matrix(new MatrixView(this)),
      m_fabric(new FabricView(this)),
      m_inspector(new Inspector(this)),
      m_use(new LiveUse(hub, this, std::move(makeRead))),
      m_probe(new ProbeRun(this))
{
    setAcceptDrops(true);
    addActions();
    buildHead();
    const auto framed = [this](QWidget *inside) {
        auto *frame = new Panel({}, this);
        auto *holder = new QWidget(this);
        auto *around = new QVBoxLayout(holder);
        around->setContentsMargins(12, 12, 12, 12);
        around->addWidget(frame);
        // A panel without a title has no head.
        frame->headLayout()->setContentsMargins(0, 0, 0, 0);
        frame->body()->addWidget(inside);
        m_stack->addWidget(holder);
    };
    framed(m_canvas);
    auto *holder = new QWidget(this);
    auto *around = new QVBoxLayout(holder);
    around->setContentsMargins(12, 12, 12, 12);
    around->addWidget(m_matrix);
    m_stack->addWidget(holder);
    framed(m_fabric);
    m_splitter->addWidget(m_stack);
    m_splitter->addWidget(m_inspector);
    m_splitter->setStretchFactor(0, 1);
    m_splitter->setStretchFactor(1, 0);
    m_splitter->setCollapsible(0, false);
    m_splitter->setHandleWidth(1);
    m_outer->addWidget(m_splitter);
    m_outer->addWidget(m_empty);
    auto *layout = new QVBoxLayout(this);
    layout->setContentsMargins(0, 0, 0, 0);
    layout->addWidget(m_outer);
    m_matrix->table()->installEventFilter(this);
    orderFocus(this);
    setFocusPolicy(Qt::StrongFocus);
    setFocusProxy(m_canvas);
    if (!settings->bringBack(QStringLiteral("cluster"), m_splitter))
        m_splitter->setSizes({1000, 320});

    connect(m_canvas, &ClusterCanvas::selectionChanged, this, &ClusterPage::refreshSelection);
    connect(m_canvas, &ClusterCanvas::planChanged, this, &ClusterPage::refreshSummary);
    connect(m_use, &LiveUse::changed, this, &ClusterPage::refreshUse);
    connect(m_probe, &ProbeRun::changed, this, &ClusterPage::refreshProbe);
    connect(m_probe, &ProbeRun::ended, this, [this](bool measured, const QString &error) {
        if (!error.isEmpty())
            emit told(Severity::Error, tr("This machine was not measured: %1").arg(error));
        if (!measured)
            return;
        emit told(Severity::Good, tr("This machine was measured: plans for it have times from now on"));
        if (m_what == local)
            openLater(local);
    });
    connect(m_inspector, &Inspector::overlayChanged, this, [this] {
        m_canvas->setMarks(m_slots ? m_inspector->overlay().marks(*m_slots, m_canvas->selectedSlot())
                                   : std::vector<std::uint8_t>());
    });
}

ClusterPage::~ClusterPage()
{
    m_settings->keep(QStringLiteral("cluster"), m_splitter);
    if (m_head && !m_head->parentWidget())
        delete m_head;
}

void ClusterPage::addActions()
{
    const QString page = QStringLiteral("cluster");
    const QString category = tr("Cluster");
    const auto add = [&](const char *id, const QString &text, const QString &tip, const char *iconName,
                         const QKeySequence &key, auto run) {
        m_registry->add(
            {QLatin1String(id), text, tip, category, QLatin1String(iconName), key, Scope::Page, page}, run);
    };
    add("cluster.open", tr("Open a cluster"),
        tr("A cluster file, hwloc XML, or the text of nvidia-smi topo -m"), "folder", Qt::Key_O,
        [this] { chooseFile(); });
    add("cluster.boxes", tr("Boxes"), tr("What is inside what"), "cluster", Qt::Key_B,
        [this] { setView(Boxes); });
    add("cluster.matrix", tr("Link matrix"), tr("How the devices of a node are joined"), "columns", Qt::Key_M,
        [this] { setView(Matrix); });
    add("cluster.fabric", tr("Fabric"), tr("How nodes are joined"), "machine", Qt::Key_R,
        [this] { setView(FabricOfNodes); });
    add("cluster.fit", tr("Fit the cluster"), tr("Shows all boxes"), "fit", Qt::Key_F,
        [this] { m_canvas->fit(); });
    add("cluster.probe", tr("Probe this machine"),
        tr("Measures its cores and memory, some 15 s on two cores, in which it should do nothing else; plans for this machine then have times"),
        "monitor", Qt::Key_P, [this] { toggleProbe(); });
    add("cluster.design", tr("Design a layout"), tr("Opens the design with this cluster"), "design",
        Qt::Key_D, [this] {
            if (m_cluster)
                emit designWanted(m_what);
        });
    add("cluster.fold", tr("Fold or unfold equal nodes"), tr("Shows every node, or the first of equal ones"),
        "chevron", Qt::Key_Space, [this] { m_canvas->toggleFold(); });
}

void ClusterPage::buildHead()
{
    QHBoxLayout *row = m_head->row();
    m_summary = new ElidedLabel(m_head);
    m_summary->setProperty("tone", "muted");
    m_summary->setProperty("data", true);
    m_views = new Segmented(tr("View"), {tr("Boxes"), tr("Matrix"), tr("Fabric")}, m_head);
    m_source = new ChoiceBox(m_head);
    m_source->setAccessibleName(tr("Cluster"));
    m_source->setToolTip(tr("This machine, or a cluster from data sheets"));
    m_source->setSizeAdjustPolicy(QComboBox::AdjustToMinimumContentsLengthWithIcon);
    m_source->setMinimumContentsLength(12);
    m_source->addItem(tr("This machine"), QString(local));
    for (const cluster::Preset &preset : cluster::presets()) {
        m_source->addItem(QString::fromLatin1(preset.id), QString::fromLatin1(preset.id));
        m_source->setItemData(m_source->count() - 1, QString::fromUtf8(preset.what), Qt::ToolTipRole);
    }
    m_count = new QSpinBox(m_head);
    m_count->setRange(1, 100'000);
    m_count->setValue(1);
    m_count->setAccessibleName(tr("Number of nodes"));
    m_count->setKeyboardTracking(false);
    m_count->setButtonSymbols(QAbstractSpinBox::NoButtons);
    auto *file = new QPushButton(tr("Open file"), m_head);
    file->setToolTip(m_registry->action(QStringLiteral("cluster.open"))->toolTip());
    m_probeButton = new QPushButton(m_head);
    m_probeButton->setToolTip(m_registry->action(QStringLiteral("cluster.probe"))->toolTip());
    auto *design = new QPushButton(tr("Design a layout"), m_head);
    design->setProperty("tone", "primary");
    design->setToolTip(m_registry->action(QStringLiteral("cluster.design"))->toolTip());
    refreshProbe();
    row->addWidget(m_summary, 1);
    row->addWidget(m_views);
    row->addSpacing(8);
    row->addWidget(m_source);
    row->addWidget(m_count);
    row->addWidget(file);
    row->addWidget(m_probeButton);
    row->addWidget(design);
    for (QWidget *giving : {static_cast<QWidget *>(m_probeButton), static_cast<QWidget *>(design),
                            static_cast<QWidget *>(m_views), static_cast<QWidget *>(file),
                            static_cast<QWidget *>(m_count), static_cast<QWidget *>(m_source)})
        m_head->addGiving(giving);
    connect(m_views, &Segmented::changed, this, [this](int view) { setView(static_cast<View>(view)); });
    connect(m_source, &QComboBox::activated, this, &ClusterPage::choosePreset);
    connect(m_count, &QSpinBox::valueChanged, this, &ClusterPage::choosePreset);
    connect(file, &QPushButton::clicked, this, &ClusterPage::chooseFile);
    connect(m_probeButton, &QPushButton::clicked, this, &ClusterPage::toggleProbe);
    connect(design, &QPushButton::clicked, m_registry->action(QStringLiteral("cluster.design")),
            &QAction::trigger);
}

void ClusterPage::toggleProbe()
{
    if (m_probe->isRunning())
        return m_probe->cancel();
    m_probe->start();
}

void ClusterPage::refreshProbe()
{
    const bool on = m_probe->isRunning();
    m_probeButton->setText(on ? tr("Cancel probe · %1 %").arg(m_probe->percent()) : tr("Probe"));
    if (on && !m_probe->doing().isEmpty())
        m_summary->setFullText(tr("%1: %2").arg(m_probe->title(), m_probe->doing()));
    else
        refreshSummary();
}

void ClusterPage::choosePreset()
{
    const QString id = m_source->currentData().toString();
    if (id.isEmpty())
        return;
    openLater(id == local ? id : QStringLiteral("%1 x %2").arg(id).arg(m_count->value()));
}

void ClusterPage::chooseFile()
{
    const QString file = QFileDialog::getOpenFileName(this, tr("Open a cluster"), {},
                                                      tr("Clusters (*.json *.xml *.txt);;All files (*)"));
    if (!file.isEmpty())
        openLater(file);
}

Status ClusterPage::open(const QString &what)
{
    m_shown = ++m_asked;
    return present(what, cluster::openCluster(what.toStdString()));
}

void ClusterPage::openLater(const QString &what)
{
    const std::uint64_t number = ++m_asked;
    m_summary->setFullText(tr("Reading %1").arg(what));
    const QPointer<ClusterPage> page(this);
    QThreadPool::globalInstance()->start([page, what, number] {
        auto read = std::make_shared<Result<cluster::Cluster>>(cluster::openCluster(what.toStdString()));
        // Through the application: the page may be gone by now.
        QMetaObject::invokeMethod(
            QCoreApplication::instance(),
            [page, what, number, read] {
                if (!page || number != page->m_asked)
                    return;
                page->m_shown = number;
                const bool gone = std::exchange(page->m_starting, false) && !*read && what != local;
                if (gone) // what was open last time: this machine is always there
                    return page->openLater(local);
                (void)page->present(what, std::move(*read));
                emit page->ready();
            },
            Qt::QueuedConnection);
    });
}

Status ClusterPage::present(const QString &what, Result<cluster::Cluster> read)
{
    if (!read) {
        m_empty->show(QStringLiteral("error"), tr("This cluster cannot be shown"),
                      QString::fromStdString(read.error().text()),
                      m_registry->action(QStringLiteral("cluster.open")));
        m_outer->setCurrentWidget(m_empty);
        return read.error();
    }
    m_use->stop();
    // The views hold no copy: away with the old one before it goes.
    m_canvas->setCluster(nullptr, nullptr);
    m_matrix->setNode(nullptr, {});
    m_fabric->setCluster(nullptr, nullptr);
    m_inspector->setCluster(nullptr, nullptr);
    m_slots.reset();
    m_cluster = std::make_unique<cluster::Cluster>(std::move(read).value());
    m_slots = std::make_unique<cluster::Slots>(*m_cluster);
    m_what = what;
    m_settings->setValue(openKey, what);
    const QSignalBlocker quiet(m_count);
    int known = what == local ? 0 : -1;
    for (int i = 1; i < m_source->count(); ++i) {
        const QString id = m_source->itemData(i).toString();
        if (what == id || what.startsWith(id + QLatin1Char('x')) || what.startsWith(id + QLatin1Char(' ')))
            known = i;
    }
    m_source->setCurrentIndex(known);
    m_count->setEnabled(known > 0);
    m_count->setValue(m_cluster->nodes());
    m_count->setSuffix(QLatin1Char(' ') + (m_cluster->nodes() == 1 ? tr("node") : tr("nodes")));
    m_canvas->setCluster(m_cluster.get(), m_slots.get());
    m_fabric->setCluster(m_cluster.get(), m_slots.get());
    m_inspector->setCluster(m_cluster.get(), m_slots.get());
    refreshSelection();
    refreshSummary();
    m_outer->setCurrentWidget(m_splitter);
    watchUse();
    return {};
}

/// While the page is seen and shows this machine.
void ClusterPage::watchUse()
{
    if (isVisible() && m_what == local && m_cluster)
        m_use->watch(m_cluster->types[0]);
}

void ClusterPage::refreshUse()
{
    m_canvas->setUse(m_use->devices());
    m_inspector->showUse(*m_use);
}

void ClusterPage::openSomething()
{
    if (m_cluster || isOpening() || m_outer->currentWidget() == m_empty)
        return;
    m_starting = true;
    openLater(m_settings->value(openKey, QString(local)).toString());
}

void ClusterPage::setView(View view)
{
    m_views->setCurrent(view);
    m_stack->setCurrentIndex(view);
    QWidget *focus = view == Boxes ? static_cast<QWidget *>(m_canvas)
        : view == Matrix           ? static_cast<QWidget *>(m_matrix->table())
                                   : m_fabric;
    setFocusProxy(focus);
    refreshSummary();
    if (isVisible())
        focus->setFocus();
}

ClusterPage::View ClusterPage::view() const { return static_cast<View>(m_stack->currentIndex()); }

QString ClusterPage::summary() const { return m_summary->fullText(); }

void ClusterPage::refreshSummary()
{
    if (!m_cluster)
        return;
    QStringList parts{QString::fromStdString(m_cluster->name)};
    const int shown = m_canvas->plan().shownNodes();
    if (view() == Boxes && shown < m_cluster->nodes())
        parts << tr("%1 of %2 nodes shown").arg(formatStep(shown), formatStep(m_cluster->nodes()));
    if (m_cluster->gpus() > 0)
        parts << tr("%1 GPUs").arg(formatStep(m_cluster->gpus()));
    m_summary->setFullText(parts.join(QStringLiteral(" · ")));
}

void ClusterPage::refreshSelection()
{
    if (!m_cluster)
        return;
    const int slot = m_canvas->selectedSlot();
    m_inspector->showSelection(m_canvas->selectedNode(), m_canvas->selectedDevice(), slot);
    m_canvas->setMarks(m_inspector->overlay().marks(*m_slots, slot));
    const int node = std::max(0, m_canvas->selectedNode());
    const auto type = static_cast<std::size_t>(m_slots->typeOfNode(node));
    m_matrix->setNode(&m_cluster->types[type],
                      tr("Links in %1").arg(QString::fromStdString(m_slots->nameOfNode(node))));
}

void ClusterPage::keyPressEvent(QKeyEvent *event)
{
    if (!m_registry->handleKey(QStringLiteral("cluster"), event))
        QWidget::keyPressEvent(event);
}

QWidget *ClusterPage::headWidget() const { return m_head; }

bool ClusterPage::eventFilter(QObject *object, QEvent *event)
{
    // Before the table takes letters for its search.
    if (event->type() == QEvent::KeyPress
        && m_registry->handleKey(QStringLiteral("cluster"), static_cast<QKeyEvent *>(event)))
        return true;
    return QWidget::eventFilter(object, event);
}

void ClusterPage::showEvent(QShowEvent *event)
{
    QWidget::showEvent(event);
    openSomething();
    watchUse();
}

void ClusterPage::hideEvent(QHideEvent *event)
{
    QWidget::hideEvent(event);
    m_use->stop();
}

void ClusterPage::dragEnterEvent(QDragEnterEvent *event)
{
    if (event->mimeData()->urls().size() == 1 && event->mimeData()->urls()[0].isLocalFile())
        event->acceptProposedAction();
}

void ClusterPage::dropEvent(QDropEvent *event) { openLater(event->mimeData()->urls()[0].toLocalFile()); }

} // namespace rankyard::ui
