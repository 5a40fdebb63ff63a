// SPDX-License-Identifier: GPL-3.0-or-later
#include "ui/cluster/device_text.h"

#include "ui/common/format.h"

#include <QCoreApplication>

#include <map>

namespace rankyard::ui {

namespace {

QString say(const char *text) { return QCoreApplication::translate("Cluster", text); }

/// "8 × A100 SXM 80 GB", of a kind of device.
QString countOf(const cluster::Node &node, cluster::DeviceKind kind)
{
    std::map<std::string, int> models;
    for (const int at : node.of(kind))
        ++models[node.devices[static_cast<std::size_t>(at)].model];
    QStringList parts;
    for (const auto &[model, count] : models) {
        const QString name = model.empty()
            ? say(kind == cluster::DeviceKind::Gpu ? QT_TRANSLATE_NOOP("Cluster", "GPU")
                                                   : QT_TRANSLATE_NOOP("Cluster", "processor"))
            : QString::fromStdString(model);
        parts << (count > 1 ? QStringLiteral("%1 × %2").arg(count).arg(name) : name);
    }
    return parts.join(QStringLiteral(", "));
}

} // namespace

QString textOfBytes(double bytes)
{
    return QStringLiteral("%1 GB").arg(QString::number(bytes / 1e9, 'f', 0));
}

QString textOfRate(double bytesPerSecond)
{
    return bytesPerSecond >= 1e12
        ? QStringLiteral("%1 TB/s").arg(QString::number(bytesPerSecond / 1e12, 'g', 3))
        : QStringLiteral("%1 GB/s").arg(QString::number(bytesPerSecond / 1e9, 'g', 3));
}

QString summaryOf(const cluster::Node &node)
{
    QStringList parts;
    for (const cluster::DeviceKind kind : {cluster::DeviceKind::Package, cluster::DeviceKind::Gpu}) {
        if (!node.of(kind).empty())
            parts << countOf(node, kind);
    }
    if (node.hostBytes() > 0)
        parts.insert(std::min<qsizetype>(1, parts.size()), formatValue(node.hostBytes(), Unit::Bytes));
    return parts.join(QStringLiteral(" · "));
}

QString titleOf(const cluster::Device &device)
{
    QStringList parts{QString::fromStdString(device.name)};
    if (device.cores > 0)
        parts << QCoreApplication::translate("Cluster", "%n cores", nullptr, device.cores);
    if (device.kind == cluster::DeviceKind::Numa && device.bytes > 0)
        parts << formatValue(device.bytes, Unit::Bytes);
    if (device.kind == cluster::DeviceKind::Nic && device.bandwidth > 0)
        parts << QStringLiteral("%1 Gb/s").arg(QString::number(device.bandwidth * 8 / 1e9, 'f', 0));
    return parts.join(device.kind == cluster::DeviceKind::Nic ? QStringLiteral("  ") : QStringLiteral(" · "));
}

QString codeOfLink(const cluster::Link &link)
{
    const QString code = QString::fromLatin1(cluster::codeOf(link.path));
    return link.path == cluster::Path::NvLink || link.path == cluster::Path::NvSwitch
        ? code + QString::number(link.lanes)
        : code;
}

QString wordsOfLink(const cluster::Link &link)
{
    static const char *const words[cluster::pathCount] = {
        QT_TRANSLATE_NOOP("Cluster", "itself"),
        QT_TRANSLATE_NOOP("Cluster", "memory of one NUMA node"),
        QT_TRANSLATE_NOOP("Cluster", "NVSwitch"),
        QT_TRANSLATE_NOOP("Cluster", "NVLink"),
        QT_TRANSLATE_NOOP("Cluster", "one PCIe switch"),
        QT_TRANSLATE_NOOP("Cluster", "several PCIe switches"),
        QT_TRANSLATE_NOOP("Cluster", "the host bridge of a processor"),
        QT_TRANSLATE_NOOP("Cluster", "host bridges of one NUMA node"),
        QT_TRANSLATE_NOOP("Cluster", "the link between processors"),
        QT_TRANSLATE_NOOP("Cluster", "network, one switch"),
        QT_TRANSLATE_NOOP("Cluster", "network, over the spine")};
    QString text = say(words[static_cast<int>(link.path)]);
    if (link.path == cluster::Path::NvLink && link.lanes > 0)
        text += QStringLiteral(" × %1").arg(link.lanes);
    if (link.bandwidth > 0)
        text += QStringLiteral(", ") + textOfRate(link.bandwidth);
    return text;
}

} // namespace rankyard::ui
