// SPDX-License-Identifier: GPL-3.0-or-later
#include "ui/cluster/inspector.h"

#include "engine/cluster/catalogue.h"
#include "ui/cluster/device_text.h"
#include "ui/common/format.h"
#include "ui/common/rows.h"
#include "ui/common/theme.h"

#include <QHBoxLayout>
#include <QLabel>
#include <QSignalBlocker>
#include <QSpinBox>
#include <QVBoxLayout>

#include <cmath>

namespace rankyard::ui {

namespace {

QString flops(double rate) { return QStringLiteral("%1 TFLOP/s").arg(QString::number(rate / 1e12, 'g', 4)); }

/// "0, 8, 16 …"
QString listOf(const std::vector<int> &ranks)
{
    QStringList parts;
    for (std::size_t i = 0; i < std::min<std::size_t>(ranks.size(), 6); ++i)
        parts << QString::number(ranks[i]);
    // Neighbours in a row are said as a range.
    if (ranks.size() > 2 && ranks.back() - ranks.front() == static_cast<int>(ranks.size()) - 1)
        return QStringLiteral("%1–%2").arg(ranks.front()).arg(ranks.back());
    return parts.join(QStringLiteral(", ")) + (ranks.size() > 6 ? QStringLiteral(" …") : QString());
}

} // namespace

Inspector::Inspector(QWidget *parent) : QScrollArea(parent)
{
    // Larger text needs a wider column.
    const auto widen = [this] { setMinimumWidth(Theme::instance().scaled(240)); };
    connect(&Theme::instance(), &Theme::changed, this, widen);
    widen();
    setObjectName(QStringLiteral("side"));
    setWidgetResizable(true);
    setFrameShape(QFrame::NoFrame);
    setHorizontalScrollBarPolicy(Qt::ScrollBarAlwaysOff);
    setFocusPolicy(Qt::NoFocus);
    auto *content = new QWidget;
    content->setObjectName(QStringLiteral("sideContent"));
    setWidget(content);
    auto *column = new QVBoxLayout(content);
    column->setContentsMargins(14, 12, 14, 12);
    column->setSpacing(14);
    const auto head = [&](const QString &title) {
        auto *label = new QLabel(title, content);
        label->setWordWrap(true);
        setRole(label, FontRole::Strong);
        column->addWidget(label);
        return label;
    };
    const auto list = [&] {
        auto *lines = new QVBoxLayout;
        lines->setSpacing(6);
        column->addLayout(lines);
        return lines;
    };
    m_title = head({});
    m_facts = list();
    m_measuredTitle = head(tr("Measured"));
    m_measured = list();
    m_useTitle = head(tr("Now"));
    m_useLines = list();
    head(tr("Layout laid over it"));
    auto *axes = new QHBoxLayout;
    axes->setSpacing(8);
    const std::pair<QString, QString> names[] = {
        {QStringLiteral("tp"), tr("Ranks of a tensor-parallel group")},
        {QStringLiteral("pp"), tr("Pipeline stages")},
        {QStringLiteral("dp"), tr("Data-parallel replicas")}};
    for (int i = 0; i < 3; ++i) {
        auto *label = new QLabel(names[i].first, content);
        label->setProperty("data", true);
        setRole(label, FontRole::Mono);
        m_axes[i] = new QSpinBox(content);
        m_axes[i]->setRange(1, 100'000);
        m_axes[i]->setMinimumWidth(44); // narrower than its widest number may be
        m_axes[i]->setAccessibleName(names[i].second);
        m_axes[i]->setToolTip(names[i].second);
        m_axes[i]->setButtonSymbols(QAbstractSpinBox::NoButtons);
        axes->addWidget(label);
        axes->addWidget(m_axes[i], 1);
        connect(m_axes[i], &QSpinBox::valueChanged, this, &Inspector::rebuildOverlay);
    }
    column->addLayout(axes);
    m_verdict = new QLabel(content);
    m_verdict->setWordWrap(true);
    column->addWidget(m_verdict);
    m_groupsTitle = head(tr("Groups of a rank"));
    m_groups = list();
    head(tr("Where this comes from"));
    m_notes = list();
    column->addStretch(1);
    showSelection(-1, -1, -1);
}

void Inspector::line(QVBoxLayout *into, const QString &name, const QString &value, const char *tone)
{
    QLabel *what = nullptr;
    into->addWidget(valueRow(name, value, nullptr, &what));
    if (tone)
        what->setProperty("tone", tone);
}

void Inspector::setCluster(const cluster::Cluster *cluster, const cluster::Slots *places)
{
    m_cluster = cluster;
    m_slots = places;
    clear(m_notes);
    if (cluster) {
        for (const std::string &note : cluster->notes) {
            m_notes->addWidget(remark(QString::fromStdString(note)));
        }
    }
    fillMeasured();
    // A first layout that anybody would try: tensor groups as wide as a node, replicas over nodes.
    const int all = places ? places->count() : 1;
    const int perNode = places && all > 0 ? std::max(1, places->firstOf(1)) : 1;
    const int tp = cluster && cluster->gpus() > 0 ? perNode : 1;
    setAxes(tp, 1, std::max(1, all / tp));
    showSelection(-1, -1, -1);
}

/// What a probe found, when and where, and how far the plan's model is from it. Cores that nobody measured have no times.
void Inspector::fillMeasured()
{
    clear(m_measured);
    m_measuredRows.clear();
    const bool cores = m_cluster && m_cluster->gpus() == 0;
    m_measuredTitle->setVisible(cores);
    if (!cores)
        return;
    if (!m_cluster->measured) {
        m_measured->addWidget(
            remark(tr("Not measured yet, so plans for it have no times. Probe measures this machine.")));
        return;
    }
    const cluster::Measured &what = *m_cluster->measured;
    const auto add = [this](const QString &name, const QString &value, const char *tone = nullptr) {
        line(m_measured, name, value, tone);
        m_measuredRows << name + QLatin1Char(' ') + value;
    };
    add(tr("On"), QString::fromStdString(what.host));
    add(tr("When"), QString::fromStdString(what.date).replace(QLatin1Char('T'), QLatin1Char(' ')));
    const auto value = [&](const std::string &name) {
        const auto found = what.values.find(name);
        return found == what.values.end() ? 0.0 : found->second;
    };
    for (const char *type : {"fp32", "bf16", "fp16"}) {
        if (const double peak = value(std::string("peak_") + type); peak > 0)
            add(tr("%1 products, a thread").arg(QLatin1String(type)),
                QStringLiteral("%1 GFLOP/s").arg(QString::number(peak / 1e9, 'g', 3)));
    }
    add(tr("Memory, a thread"), textOfRate(value("memory_bandwidth")));
    add(tr("Between ranks"), textOfRate(value("link_bandwidth")));
    if (!what.fits.empty())
        m_measured->addWidget(
            remark(tr("How far the model of times is from what was measured: median / worst")));
    for (const cluster::Measured::Fit &fit : what.fits)
        add(QString::fromStdString(fit.what),
            QStringLiteral("%1 / %2 %")
                .arg(QString::number(100 * fit.median, 'f', 0), QString::number(100 * fit.worst, 'f', 0)),
            fit.isRough() ? "warn" : nullptr);
}

void Inspector::setAxes(int tp, int pp, int dp)
{
    const int values[] = {tp, pp, dp};
    for (int i = 0; i < 3; ++i) {
        const QSignalBlocker quiet(m_axes[i]);
        m_axes[i]->setValue(values[i]);
    }
    rebuildOverlay();
}

void Inspector::rebuildOverlay()
{
    const qint64 world = static_cast<qint64>(m_axes[0]->value()) * m_axes[1]->value() * m_axes[2]->value();
    const bool fits = m_slots && world <= m_slots->count();
    m_overlay =
        fits ? Overlay(*m_slots, m_axes[0]->value(), m_axes[1]->value(), m_axes[2]->value()) : Overlay();
    const char *tone = "good";
    QString text;
    if (!m_slots) {
        text.clear();
    } else if (!fits) {
        tone = "bad";
        text = tr("%1 ranks, and there is room for %2").arg(formatStep(world), formatStep(m_slots->count()));
    } else if (m_overlay.leaving().count > 0) {
        const Overlay::Leaving &leaving = m_overlay.leaving();
        tone = "warn";
        text = tr("%1 of %2 tensor groups leave their fast island: ranks %3 go over %4")
                   .arg(formatStep(leaving.count), formatStep(leaving.of), listOf(leaving.first.ranks),
                        wordsOfLink(leaving.first.worst.link));
    } else if (m_axes[0]->value() == 1 && world > 1) {
        text = tr("%1 ranks on %2 places; no tensor groups")
                   .arg(formatStep(world), formatStep(m_slots->count()));
    } else if (world == 1) {
        text = tr("One rank has nobody to talk to");
    } else {
        text = world == m_slots->count()
            ? tr("%1 ranks on all of it; every tensor group stays on its fast island").arg(formatStep(world))
            : tr("%1 ranks on %2 places; every tensor group stays on its fast island")
                  .arg(formatStep(world), formatStep(m_slots->count()));
    }
    m_verdict->setText(text);
    setTone(m_verdict, tone);
    fillGroups();
    emit overlayChanged();
}

QString Inspector::verdict() const { return m_verdict->text(); }

void Inspector::showSelection(int node, int device, int slot)
{
    m_node = node;
    m_device = device;
    m_slot = slot;
    fillFacts();
    fillUse();
    fillGroups();
}

void Inspector::showUse(const LiveUse &use)
{
    m_use = &use;
    fillUse();
}

QStringList Inspector::useRows() const { return m_useRows; }

/// Without a selection the machine's own.
void Inspector::fillUse()
{
    clear(m_useLines);
    m_useRows.clear();
    const auto add = [this](const QString &name, const QString &value) {
        line(m_useLines, name, value);
        m_useRows << name + QLatin1Char(' ') + value;
    };
    const auto at = static_cast<std::size_t>(std::max(0, m_device));
    if (m_use && m_cluster && m_node <= 0 && at < m_use->devices().size()) {
        const cluster::DeviceUse &use = m_use->devices()[at];
        const cluster::Device &device = m_cluster->types[0].devices[at];
        const bool gpu = device.kind == cluster::DeviceKind::Gpu;
        const double all = gpu ? device.bytes : m_cluster->types[0].hostBytes();
        if (use.busy >= 0)
            add(tr("Busy"), formatShort(100 * use.busy, Unit::Percent));
        if (use.bytes >= 0)
            add(tr("Memory in use"),
                tr("%1 of %2").arg(formatValue(use.bytes, Unit::Bytes), formatValue(all, Unit::Bytes)));
        if (use.watts >= 0)
            add(tr("Power"), QStringLiteral("%1 W").arg(std::lround(use.watts)));
    }
    if (const auto rank = m_use && m_cluster ? m_use->rank(m_slot) : std::nullopt) {
        add(tr("Run"), m_use->run());
        add(tr("Memory of the rank"), formatValue(rank->bytes, Unit::Bytes));
        if (rank->mfu >= 0)
            add(tr("MFU"), formatShort(100 * rank->mfu, Unit::Percent));
        if (rank->tokensPerS >= 0)
            add(tr("Tokens/s, all ranks"), formatValue(rank->tokensPerS, Unit::Count));
    }
    m_useTitle->setVisible(!m_useRows.isEmpty());
}

void Inspector::fillFacts()
{
    clear(m_facts);
    if (!m_cluster || !m_slots) {
        m_title->setText(tr("Nothing is open"));
        return;
    }
    if (m_node < 0) {
        m_title->setText(QString::fromStdString(m_cluster->name));
        m_title->setProperty("data", true);
        line(m_facts, tr("Nodes"), formatStep(m_cluster->nodes()));
        line(m_facts, tr("GPUs"), formatStep(m_cluster->gpus()));
        line(m_facts, tr("Network cards"), formatStep(m_cluster->nics()));
        return;
    }
    const cluster::Node &type = m_cluster->types[static_cast<std::size_t>(m_slots->typeOfNode(m_node))];
    const cluster::Device &device = type.devices[static_cast<std::size_t>(std::max(0, m_device))];
    const QString node = QString::fromStdString(m_slots->nameOfNode(m_node));
    m_title->setProperty("data", true);
    m_title->setText(m_device <= 0 ? node : tr("%1 on %2").arg(QString::fromStdString(device.name), node));
    if (m_slot >= 0)
        line(m_facts, tr("Rank"), formatStep(m_slot));
    if (!device.model.empty())
        line(m_facts, tr("Model"), QString::fromStdString(device.model));
    if (m_device <= 0) {
        line(m_facts, tr("Kind"), QString::fromStdString(type.type));
        line(m_facts, tr("Cores"), formatStep(type.cores()));
        line(m_facts, tr("Host memory"), formatValue(type.hostBytes(), Unit::Bytes));
        line(m_facts, tr("GPUs"), formatStep(static_cast<qint64>(type.of(cluster::DeviceKind::Gpu).size())));
        return;
    }
    if (device.cores > 0)
        line(m_facts, tr("Cores"), formatStep(device.cores));
    if (device.bytes > 0)
        line(m_facts, tr("Memory"),
             device.kind == cluster::DeviceKind::Gpu ? textOfBytes(device.bytes)
                                                     : formatValue(device.bytes, Unit::Bytes));
    if (device.bandwidth > 0)
        line(m_facts, tr("Line rate"), textOfRate(device.bandwidth));
    const cluster::GpuModel *model =
        device.kind == cluster::DeviceKind::Gpu ? cluster::findGpu(device.model) : nullptr;
    if (!model)
        return;
    line(m_facts, tr("Memory rate"), textOfRate(model->memoryBandwidth));
    line(m_facts, model->hasBf16 ? tr("Peak, bf16") : tr("Peak, fp16"), flops(model->bf16));
    if (model->fp8 > 0)
        line(m_facts, tr("Peak, fp8"), flops(model->fp8));
    if (type.switchBandwidth > 0)
        line(m_facts, tr("NVLink"), textOfRate(type.switchBandwidth));
    line(m_facts, tr("To its host"), textOfRate(model->pcieBandwidth));
}

void Inspector::fillGroups()
{
    clear(m_groups);
    const bool ranked = m_slot >= 0 && m_slot < m_overlay.world();
    m_groupsTitle->setText(ranked ? tr("Groups of rank %1").arg(formatStep(m_slot)) : tr("Groups of a rank"));
    if (!ranked) {
        m_groups->addWidget(remark(m_overlay.isEmpty() ? tr("The layout does not fit.")
                                       : m_slot >= 0
                                       ? tr("No rank runs here.")
                                       : tr("Select a GPU or a core to see whom its rank talks to.")));
        return;
    }
    const auto groups = m_overlay.groupsOf(*m_slots, m_slot);
    for (const Overlay::Group &group : groups) {
        const QString name = group.member == Overlay::Tensor ? tr("tensor")
            : group.member == Overlay::Data                  ? tr("data")
                                                             : tr("pipeline");
        const bool leaves = group.member == Overlay::Tensor && !group.worst.island;
        line(m_groups, name, listOf(group.ranks) + QLatin1Char('\n') + wordsOfLink(group.worst.link),
             leaves ? "warn" : nullptr);
    }
    if (groups.empty())
        line(m_groups, tr("alone"), {});
}

} // namespace rankyard::ui
