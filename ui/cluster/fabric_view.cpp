// SPDX-License-Identifier: GPL-3.0-or-later
#include "ui/cluster/fabric_view.h"

#include "ui/cluster/device_text.h"
#include "ui/common/format.h"
#include "ui/common/theme.h"
#include "ui/common/zoom_canvas.h"

#include <QPainter>

#include <algorithm>
#include <cmath>

namespace rankyard::ui {

namespace {

constexpr int mostNodes = 4;
constexpr int mostRails = 8;

} // namespace

/// Where things stand, for the size of the widget.
struct FabricView::Shape {
    int nodes = 0;     ///< drawn
    int underLeaf = 0; ///< nodes under one set of leaves
    int leafSets = 1;
    int leaves = 1;  ///< switches of a set: one a rail
    int cards = 0;   ///< of a node, drawn
    double rate = 0; ///< of a card
    QRectF spine;
    std::vector<QRectF> leaf;
    std::vector<QRectF> node;
    std::vector<std::vector<QPointF>> card; ///< [node][card]: top of its box
    QSizeF cardSize;
};

FabricView::FabricView(QWidget *parent) : QWidget(parent)
{
    setFocusPolicy(Qt::StrongFocus);
    setAttribute(Qt::WA_OpaquePaintEvent);
    setMinimumSize(200, 160);
    connect(&Theme::instance(), &Theme::changed, this, qOverload<>(&QWidget::update));
}

void FabricView::setCluster(const cluster::Cluster *cluster, const cluster::Slots *places)
{
    m_cluster = cluster;
    m_slots = places;
    setAccessibleName(tr("Fabric of the cluster"));
    setAccessibleDescription(facts().join(QStringLiteral(". ")));
    update();
}

FabricView::Shape FabricView::shape() const
{
    Shape shape;
    const cluster::Node &type = m_cluster->types[static_cast<std::size_t>(m_slots->typeOfNode(0))];
    const cluster::Fabric &fabric = m_cluster->fabric;
    const int all = m_cluster->nodes();
    shape.underLeaf = fabric.leafNodes > 0 ? std::min(fabric.leafNodes, all) : all;
    shape.leafSets = fabric.leafNodes > 0 ? (all + fabric.leafNodes - 1) / fabric.leafNodes : 1;
    shape.nodes = std::min(shape.underLeaf, mostNodes);
    const std::vector<int> nics = type.of(cluster::DeviceKind::Nic);
    shape.cards = std::min<int>(static_cast<int>(nics.size()), mostRails);
    shape.leaves = fabric.rails ? std::max(1, shape.cards) : 1;
    for (const int nic : nics)
        shape.rate = std::max(shape.rate, type.devices[static_cast<std::size_t>(nic)].bandwidth);
    const Theme &theme = Theme::instance();
    const QRectF area = QRectF(rect()).adjusted(28, 24, -28, -28 - theme.scaled(22) * facts().size());
    const double tall = theme.scaled(40);
    shape.spine = QRectF(area.left(), area.top(), area.width(), tall);
    const double nodeTop = area.bottom() - theme.scaled(116);
    const double leafTop = area.top() + tall + (nodeTop - area.top() - 2 * tall) * 0.42;
    const double leafPitch = area.width() / shape.leaves;
    for (int i = 0; i < shape.leaves; ++i)
        shape.leaf.emplace_back(area.left() + i * leafPitch + 4, leafTop, leafPitch - 8, tall);
    const double nodePitch = area.width() / std::max(1, shape.nodes);
    shape.cardSize =
        QSizeF(std::min<double>(theme.scaled(64), (nodePitch - 28) / std::max(1, shape.cards) - 4),
               theme.scaled(22));
    for (int i = 0; i < shape.nodes; ++i) {
        const QRectF node(area.left() + i * nodePitch + 6, nodeTop, nodePitch - 12, area.bottom() - nodeTop);
        shape.node.push_back(node);
        auto &cards = shape.card.emplace_back();
        const double pitch = (node.width() - 16) / std::max(1, shape.cards);
        for (int c = 0; c < shape.cards; ++c)
            cards.emplace_back(node.left() + 8 + (c + 0.5) * pitch, node.top() + 8);
    }
    return shape;
}

QStringList FabricView::facts() const
{
    QStringList facts;
    if (!m_cluster || m_cluster->nodes() == 0)
        return facts;
    const cluster::Fabric &fabric = m_cluster->fabric;
    const int all = m_cluster->nodes();
    if (all == 1)
        return {tr("One node: nothing is between nodes")};
    if (fabric.domainNodes > 1)
        facts << tr("%1 nodes are one NVLink domain: inside it no network is needed").arg(fabric.domainNodes);
    if (fabric.rails)
        facts << tr("Card i of every node is on rail i: GPUs of one number reach each other over one switch");
    if (fabric.leafNodes > 0 && all > fabric.leafNodes) {
        const int sets = (all + fabric.leafNodes - 1) / fabric.leafNodes;
        const int last = all - (sets - 1) * fabric.leafNodes;
        const QString rest = last == fabric.leafNodes ? QString() : tr(", the last with %1").arg(last);
        facts
            << tr("%1 nodes in %2 sets of %3 under leaf switches of their own%4. The first is drawn; between sets the spine")
                   .arg(formatStep(all), formatStep(sets), formatStep(fabric.leafNodes), rest);
    }
    if (fabric.oversubscription > 1)
        facts << tr("Over the spine a GPU has 1 ÷ %1 of its card's rate").arg(fabric.oversubscription);
    return facts;
}

void FabricView::paintEvent(QPaintEvent *)
{
    const Theme &theme = Theme::instance();
    QPainter painter(this);
    painter.fillRect(rect(), theme.color(Token::Surface));
    if (!m_cluster || m_cluster->nodes() == 0)
        return;
    painter.setRenderHint(QPainter::Antialiasing);
    const QStringList facts = this->facts();
    if (m_cluster->nodes() > 1) {
        const Shape shape = this->shape();
        paintSwitches(painter, shape);
        paintNodes(painter, shape);
    }
    painter.setFont(theme.font(FontRole::Small));
    painter.setPen(theme.color(Token::Muted));
    double y = height() - 16 - theme.scaled(22) * facts.size();
    if (m_cluster->nodes() == 1)
        y = height() / 2.0;
    for (const QString &fact : facts) {
        painter.drawText(QRectF(28, y, width() - 56, theme.scaled(22)),
                         (m_cluster->nodes() == 1 ? Qt::AlignHCenter : Qt::AlignLeft) | Qt::AlignVCenter,
                         fact);
        y += theme.scaled(22);
    }
    if (hasFocus())
        paintFocusRing(painter, rect());
}

void FabricView::paintSwitches(QPainter &painter, const Shape &shape) const
{
    const Theme &theme = Theme::instance();
    const QColor surface = theme.color(Token::Surface);
    const double width = std::clamp(shape.rate * 8 / 1e9 / 100, 1.0, 6.0); // 1 px a 100 Gb/s
    for (std::size_t i = 0; i < shape.leaf.size(); ++i) {
        const QColor rail = theme.color(Ink::series(static_cast<int>(i) % seriesCount));
        // More rails than colours: the second round is dashed.
        painter.setPen(QPen(mixed(surface, rail, 0.8), width,
                            static_cast<int>(i) < seriesCount ? Qt::SolidLine : Qt::DashLine));
        const QPointF top(shape.leaf[i].center().x(), shape.leaf[i].top());
        painter.drawLine(top, QPointF(top.x(), shape.spine.bottom()));
        for (const auto &cards : shape.card) {
            for (std::size_t c = 0; c < cards.size(); ++c) {
                if (c % shape.leaf.size() != i)
                    continue;
                painter.drawLine(QPointF(shape.leaf[i].center().x(), shape.leaf[i].bottom()), cards[c]);
            }
        }
    }
    const auto box = [&](const QRectF &rect, const QColor &fill, const QString &text) {
        painter.setPen(QPen(theme.color(Token::Border), 1));
        painter.setBrush(fill);
        painter.drawRoundedRect(rect, 5, 5);
        painter.setPen(theme.color(Token::Text));
        painter.setFont(theme.font(FontRole::Small));
        painter.drawText(rect, Qt::AlignCenter,
                         QFontMetrics(painter.font())
                             .elidedText(text, Qt::ElideRight, static_cast<int>(rect.width()) - 8));
    };
    box(shape.spine, theme.color(Token::Background),
        shape.leafSets > 1 || m_cluster->fabric.rails ? tr("spine") : tr("one switch joins all nodes"));
    for (std::size_t i = 0; i < shape.leaf.size(); ++i) {
        const QColor rail = theme.color(Ink::series(static_cast<int>(i) % seriesCount));
        box(shape.leaf[i], mixed(surface, rail, 0.22),
            m_cluster->fabric.rails ? tr("leaf, rail %1").arg(i) : tr("leaf"));
    }
}

void FabricView::paintNodes(QPainter &painter, const Shape &shape) const
{
    const Theme &theme = Theme::instance();
    const QColor surface = theme.color(Token::Surface);
    const cluster::Node &type = m_cluster->types[static_cast<std::size_t>(m_slots->typeOfNode(0))];
    const int gpus = static_cast<int>(type.of(cluster::DeviceKind::Gpu).size());
    for (std::size_t i = 0; i < shape.node.size(); ++i) {
        const QRectF &node = shape.node[i];
        painter.setPen(QPen(theme.color(Token::Border), 1));
        painter.setBrush(surface);
        painter.drawRoundedRect(node, 5, 5);
        for (std::size_t c = 0; c < shape.card[i].size(); ++c) {
            const QColor rail =
                theme.color(Ink::series(static_cast<int>(c % shape.leaf.size()) % seriesCount));
            const QRectF card(shape.card[i][c] - QPointF(shape.cardSize.width() / 2, 0), shape.cardSize);
            painter.setPen(Qt::NoPen);
            painter.setBrush(mixed(surface, rail, 0.3));
            painter.drawRoundedRect(card, 3, 3);
            painter.setFont(theme.font(FontRole::MonoSmall));
            painter.setPen(theme.color(Token::Text));
            painter.drawText(card, Qt::AlignCenter, QString::number(c));
        }
        const QRectF text = node.adjusted(8, shape.cardSize.height() + 14, -8, -6);
        painter.setPen(theme.color(Token::Text));
        painter.setFont(theme.font(FontRole::Strong));
        const bool last = i + 1 == shape.node.size() && shape.underLeaf > shape.nodes;
        const QString name = last ? tr("%1 more nodes").arg(formatStep(shape.underLeaf - shape.nodes + 1))
                                  : QString::fromStdString(m_slots->nameOfNode(static_cast<int>(i)));
        painter.drawText(text, Qt::AlignHCenter | Qt::AlignTop, name);
        painter.setFont(theme.font(FontRole::Small));
        painter.setPen(theme.color(Token::Muted));
        const QString rate = tr("%1 cards of %2 Gb/s")
                                 .arg(type.of(cluster::DeviceKind::Nic).size())
                                 .arg(QString::number(shape.rate * 8 / 1e9, 'f', 0));
        painter.drawText(text.adjusted(0, theme.scaled(22), 0, 0),
                         Qt::AlignHCenter | Qt::AlignTop | Qt::TextWordWrap,
                         gpus > 0 ? tr("%1 GPUs").arg(gpus) + QLatin1Char('\n') + rate : rate);
    }
}

} // namespace rankyard::ui
