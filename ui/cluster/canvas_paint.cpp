// SPDX-License-Identifier: GPL-3.0-or-later
// How the boxes look, at every size.
#include "ui/cluster/cluster_canvas.h"
#include "ui/cluster/device_text.h"
#include "ui/common/format.h"
#include "ui/common/theme.h"

#include <QPainter>

#include <algorithm>
#include <cmath>

namespace rankyard::ui {

namespace {

using cluster::DeviceKind;

// Below this zoom texts cannot be read; below this height of a node in pixels its boxes cannot be told apart.
constexpr double withTexts = 0.5;
constexpr double withBoxes = 26;

Ink inkOf(std::uint8_t marks)
{
    return marks & Overlay::Tensor ? Ink::of(Kind::TensorParallel)
        : marks & Overlay::Data    ? Ink::of(Kind::DataParallel)
                                   : Ink::of(Kind::Pipeline);
}

QString wordOf(std::uint8_t marks)
{
    QStringList words;
    if (marks & Overlay::Tensor)
        words << QStringLiteral("tp");
    if (marks & Overlay::Data)
        words << QStringLiteral("dp");
    if (marks & Overlay::Pipeline)
        words << QStringLiteral("pp");
    return words.join(QLatin1Char(' '));
}

} // namespace

/// Rectangles of one colour, drawn together: what is small is many.
struct ClusterCanvas::Batch {
    QVector<QRectF> nodes;
    QVector<QRectF> gpus;
    QVector<QRectF> marked[8];
};

void ClusterCanvas::paintEvent(QPaintEvent *)
{
    const Theme &theme = Theme::instance();
    QPainter painter(this);
    painter.fillRect(rect(), theme.color(Token::Surface));
    if (!m_cluster)
        return;
    Batch batch;
    for (const BoxPlan::Field &field : m_plan.fields()) {
        paintField(painter, field, batch);
        if (!field.fold.isEmpty())
            paintFold(painter, field);
    }
    painter.setPen(QPen(theme.color(Token::Border), 1));
    painter.setBrush(theme.color(Token::Surface));
    painter.drawRects(batch.nodes);
    painter.setPen(Qt::NoPen);
    painter.setBrush(mixed(theme.color(Token::Surface), theme.color(Token::Muted), 0.45));
    painter.drawRects(batch.gpus);
    for (std::uint8_t marks = 1; marks < 8; ++marks) {
        painter.setBrush(theme.color(inkOf(marks)));
        painter.drawRects(batch.marked[marks]);
    }
    paintRing(painter);
}

void ClusterCanvas::paintField(QPainter &painter, const BoxPlan::Field &field, Batch &batch) const
{
    const BoxPlan::NodeBoxes &boxes = m_plan.boxes(field.type);
    const double tall = boxes.size.height() * m_zoom;
    const QRectF seen(toScene({0, 0}), toScene(QPointF(width(), height())));
    // Only the rows and columns in view.
    const auto clampTo = [](double value, int most) {
        return std::clamp(static_cast<int>(std::floor(value)), 0, most);
    };
    const int rows = (field.shown + field.columns - 1) / field.columns;
    const int firstRow = clampTo((seen.top() - field.origin.y()) / field.pitch.height(), rows);
    const int lastRow = clampTo((seen.bottom() - field.origin.y()) / field.pitch.height() + 1, rows);
    const int firstColumn = clampTo((seen.left() - field.origin.x()) / field.pitch.width(), field.columns);
    const int lastColumn =
        clampTo((seen.right() - field.origin.x()) / field.pitch.width() + 1, field.columns);
    for (int row = firstRow; row < lastRow; ++row) {
        for (int column = firstColumn; column < lastColumn; ++column) {
            const int index = row * field.columns + column;
            if (index >= field.shown)
                break;
            const int node = field.firstNode + index;
            const QPointF at = m_plan.nodeAt(field, index);
            if (m_zoom >= withTexts) {
                painter.save();
                painter.translate(toPixel(at));
                painter.scale(m_zoom, m_zoom);
                paintNode(painter, boxes, node, field.type);
                painter.restore();
                continue;
            }
            batch.nodes.append(QRectF(toPixel(at), boxes.size * m_zoom));
            const int firstSlot = m_slots->firstOf(node);
            std::uint8_t all = 0;
            for (std::size_t i = 0; i < boxes.gpus.size(); ++i) {
                const std::size_t slot = static_cast<std::size_t>(firstSlot) + i;
                const std::uint8_t marks = slot < m_marks.size() ? m_marks[slot] : std::uint8_t(0);
                all |= marks;
                if (tall < withBoxes)
                    continue;
                const QRectF &box = boxes.gpus[i].rect;
                auto &list = marks ? batch.marked[marks] : batch.gpus;
                list.append(QRectF(toPixel(at + box.topLeft()), box.size() * m_zoom));
            }
            if (tall < withBoxes && all)
                batch.marked[all].append(batch.nodes.last());
        }
    }
}

void ClusterCanvas::paintNode(QPainter &painter, const BoxPlan::NodeBoxes &boxes, int node, int type) const
{
    const Theme &theme = Theme::instance();
    const cluster::Node &what = m_cluster->types[static_cast<std::size_t>(type)];
    const auto device = [&what](int at) -> const cluster::Device & {
        return what.devices[static_cast<std::size_t>(at)];
    };
    const QColor surface = theme.color(Token::Surface);
    // Fonts are of the scene: the painter scales them.
    QFont small = theme.font(FontRole::Small);
    small.setPixelSize(11);
    QFont strong = theme.font(FontRole::Strong);
    strong.setPixelSize(13);
    QFont mono = theme.font(FontRole::MonoSmall);
    mono.setPixelSize(11);
    const auto frame = [&](const QRectF &rect, const QColor &fill, bool selected,
                           Qt::PenStyle style = Qt::SolidLine) {
        painter.setPen(
            QPen(theme.color(selected ? Token::Accent : Token::Border), (selected ? 2 : 1) / m_zoom, style));
        painter.setBrush(fill);
        painter.drawRoundedRect(rect, 5, 5);
    };
    const auto text = [&](const QRectF &rect, const QString &line, const QFont &font, Token tone,
                          Qt::Alignment align) {
        painter.setFont(font);
        painter.setPen(theme.color(tone));
        painter.drawText(rect, static_cast<int>(align),
                         QFontMetricsF(font).elidedText(line, Qt::ElideRight, rect.width()));
    };
    painter.setRenderHint(QPainter::Antialiasing);
    const QRectF whole(QPointF(), boxes.size);
    frame(whole, surface, node == m_node && m_device == 0);
    const QString name = QString::fromStdString(m_slots->nameOfNode(node));
    text(QRectF(12, 6, whole.width() - 24, 22), name, strong, Token::Text, Qt::AlignLeft | Qt::AlignVCenter);
    const double after = 12 + QFontMetricsF(strong).horizontalAdvance(name) + 14;
    text(QRectF(after, 6, whole.width() - after - 12, 22), summaryOf(what), small, Token::Muted,
         Qt::AlignLeft | Qt::AlignVCenter);
    if (!boxes.plane.isEmpty()) {
        painter.setPen(Qt::NoPen);
        painter.setBrush(mixed(surface, theme.color(Ink::of(Kind::DataParallel)), 0.28));
        painter.drawRoundedRect(boxes.plane, 3, 3);
        text(boxes.plane, tr("NVSwitch · %1 per GPU and direction").arg(textOfRate(what.switchBandwidth)),
             small, Token::Text, Qt::AlignCenter);
    }
    for (const BoxPlan::Box &box : boxes.containers) {
        const bool numa = device(box.device).kind == DeviceKind::Numa;
        frame(box.rect, surface, node == m_node && m_device == box.device,
              numa ? Qt::DashLine : Qt::SolidLine);
        text(box.rect.adjusted(10, 4, -8, 0), titleOf(device(box.device)), small, Token::Muted,
             Qt::AlignLeft | Qt::AlignTop);
    }
    for (const BoxPlan::Box &box : boxes.nics) {
        const bool selected = node == m_node && m_device == box.device;
        frame(box.rect, mixed(surface, theme.color(Ink::series(5)), 0.22), selected);
        text(box.rect.adjusted(4, 0, -4, 0), titleOf(device(box.device)), small, Token::Text,
             Qt::AlignCenter);
    }
    const int firstSlot = m_slots->firstOf(node);
    for (std::size_t i = 0; i < boxes.gpus.size(); ++i) {
        const BoxPlan::Box &box = boxes.gpus[i];
        const std::size_t slot = static_cast<std::size_t>(firstSlot) + i;
        const std::uint8_t marks = slot < m_marks.size() ? m_marks[slot] : std::uint8_t(0);
        const bool selected = node == m_node && m_device == box.device;
        frame(box.rect, marks ? mixed(surface, theme.color(inkOf(marks)), 0.38) : surface, selected);
        const QRectF inside = box.rect.adjusted(4, 4, -4, -4);
        text(inside, QString::fromStdString(device(box.device).name), small, Token::Text,
             Qt::AlignHCenter | Qt::AlignTop);
        if (device(box.device).bytes > 0)
            text(inside, textOfBytes(device(box.device).bytes), mono, Token::Muted, Qt::AlignCenter);
        if (marks)
            text(inside, wordOf(marks), mono, Token::Text, Qt::AlignHCenter | Qt::AlignBottom);
        const auto at = static_cast<std::size_t>(box.device);
        if (node == 0 && at < m_use.size() && m_use[at].busy >= 0)
            paintUse(painter, box.rect, m_use[at], !marks);
    }
}

/// A bar along the lower edge, as long as the device is busy.
void ClusterCanvas::paintUse(QPainter &painter, const QRectF &box, const cluster::DeviceUse &use,
                             bool withText) const
{
    const Theme &theme = Theme::instance();
    const QRectF track(box.left() + 4, box.bottom() - 6, box.width() - 8, 3);
    painter.setPen(Qt::NoPen);
    painter.setBrush(theme.color(Token::Border));
    painter.drawRoundedRect(track, 1.5, 1.5);
    painter.setBrush(theme.color(Token::Accent));
    painter.drawRoundedRect(QRectF(track.topLeft(), QSizeF(track.width() * use.busy, track.height())), 1.5,
                            1.5);
    if (!withText || box.height() < 40)
        return;
    QFont mono = theme.font(FontRole::MonoSmall);
    mono.setPixelSize(11);
    painter.setFont(mono);
    painter.setPen(theme.color(Token::Text));
    painter.drawText(box.adjusted(4, 0, -4, -8), Qt::AlignHCenter | Qt::AlignBottom,
                     formatShort(100 * use.busy, Unit::Percent));
}

void ClusterCanvas::paintFold(QPainter &painter, const BoxPlan::Field &field) const
{
    const Theme &theme = Theme::instance();
    const QRectF box(toPixel(field.fold.topLeft()), field.fold.size() * m_zoom);
    painter.setRenderHint(QPainter::Antialiasing);
    painter.setBrush(theme.color(Token::Surface));
    painter.setPen(QPen(theme.color(Token::Border), 1));
    // A stack: more of the same lies behind.
    for (int behind = 2; behind >= 0; --behind)
        painter.drawRoundedRect(box.translated(behind * 4, -behind * 4 * (behind > 0 ? -1 : 0)), 5, 5);
    const int hidden = m_cluster->groups[static_cast<std::size_t>(field.group)].count - field.shown;
    painter.setFont(theme.font(FontRole::Body));
    painter.setPen(theme.color(Token::Accent));
    painter.drawText(box, Qt::AlignCenter, tr("%1 more like these · show all").arg(formatStep(hidden)));
    painter.setRenderHint(QPainter::Antialiasing, false);
}

QString ClusterCanvas::tipOf(const BoxPlan::Hit &hit) const
{
    if (hit.node < 0 || hit.device < 0)
        return {};
    const cluster::Node &what = m_cluster->types[static_cast<std::size_t>(m_slots->typeOfNode(hit.node))];
    const cluster::Device &device = what.devices[static_cast<std::size_t>(hit.device)];
    const QString node = QString::fromStdString(m_slots->nameOfNode(hit.node));
    if (hit.device == 0)
        return node + QLatin1Char('\n') + summaryOf(what);
    QString text = tr("%1 of %2").arg(titleOf(device), node);
    if (!device.model.empty())
        text += QLatin1Char('\n') + QString::fromStdString(device.model);
    return text;
}

} // namespace rankyard::ui
