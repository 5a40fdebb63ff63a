// SPDX-License-Identifier: GPL-3.0-or-later
#include "ui/designer/memory_bars.h"

#include "ui/common/format.h"
#include "ui/common/theme.h"
#include "ui/designer/kinds.h"

#include <QFocusEvent>
#include <QHelpEvent>
#include <QKeyEvent>
#include <QMouseEvent>
#include <QPainter>
#include <QToolTip>

#include <algorithm>

namespace rankyard::ui {

namespace {

using plan::MemoryKind;

// Bottom up as in the picture of every guide: what stays, then what comes and goes.
constexpr MemoryKind order[] = {MemoryKind::Params,      MemoryKind::Grads,    MemoryKind::Optimizer,
                                MemoryKind::Activations, MemoryKind::Gathered, MemoryKind::Buckets,
                                MemoryKind::Workspace,   MemoryKind::Host};

int rowHeight() { return Theme::instance().scaled(24); }
int labelWidth() { return Theme::instance().scaled(58); }
int valueWidth() { return Theme::instance().scaled(76); }

std::int64_t bytesOf(const predict::StageMemory &stage, MemoryKind kind)
{
    std::int64_t bytes = stage.report.bytes[static_cast<std::size_t>(kind)];
    if (kind == MemoryKind::Workspace)
        bytes += stage.context;
    if (kind == MemoryKind::Host && stage.hostApart())
        return 0;
    return bytes;
}

} // namespace

MemoryBars::MemoryBars(QWidget *parent) : QWidget(parent)
{
    setFocusPolicy(Qt::StrongFocus);
    setAccessibleName(tr("Memory of each stage"));
    setSizePolicy(QSizePolicy::Expanding, QSizePolicy::Fixed);
    connect(&Theme::instance(), &Theme::changed, this, [this] {
        updateGeometry();
        update();
    });
}

void MemoryBars::setVerdict(std::shared_ptr<const predict::Verdict> verdict)
{
    m_verdict = std::move(verdict);
    const int stages = m_verdict ? static_cast<int>(m_verdict->stages.size()) : 0;
    if (m_current >= stages)
        m_current = -1;
    QStringList all;
    for (int stage = 0; stage < std::min(stages, 8); ++stage)
        all << partsOf(stage);
    setAccessibleDescription(all.join(QStringLiteral("; ")));
    updateGeometry();
    update();
}

void MemoryBars::setCurrent(int stage)
{
    const int stages = m_verdict ? static_cast<int>(m_verdict->stages.size()) : 0;
    stage = std::clamp(stage, -1, stages - 1);
    if (stage == m_current)
        return;
    m_current = stage;
    update();
    emit currentChanged(stage);
}

double MemoryBars::scale() const
{
    double most = 1;
    for (const auto &stage : m_verdict->stages)
        most = std::max({most, static_cast<double>(stage.used), static_cast<double>(stage.capacity)});
    // Where the host has far more than anybody needs, bars would be slivers.
    double used = 1;
    for (const auto &stage : m_verdict->stages)
        used = std::max(used, static_cast<double>(stage.used));
    return most > 8 * used ? used * 1.25 : most * 1.04;
}

QRectF MemoryBars::barOf(int stage) const
{
    const double room = std::max(20, width() - labelWidth() - valueWidth());
    return {static_cast<double>(labelWidth()), stage * rowHeight() + rowHeight() * 0.2, room,
            rowHeight() * 0.6};
}

QRectF MemoryBars::partOf(int stage, MemoryKind kind) const
{
    const QRectF bar = barOf(stage);
    const auto &memory = m_verdict->stages[static_cast<std::size_t>(stage)];
    double before = 0;
    for (const MemoryKind each : order) {
        const auto bytes = static_cast<double>(bytesOf(memory, each));
        if (each == kind)
            return {bar.left() + before / scale() * bar.width(), bar.top(), bytes / scale() * bar.width(),
                    bar.height()};
        before += bytes;
    }
    return {};
}

QString MemoryBars::partsOf(int stage) const
{
    const auto &memory = m_verdict->stages[static_cast<std::size_t>(stage)];
    QStringList lines{tr("Stage %1: %2")
                          .arg(memory.stage)
                          .arg(formatValue(static_cast<double>(memory.peak()), Unit::Bytes))};
    for (const MemoryKind kind : order) {
        if (const std::int64_t bytes = bytesOf(memory, kind))
            lines << QStringLiteral("%1 %2").arg(wordOf(kind),
                                                 formatValue(static_cast<double>(bytes), Unit::Bytes));
    }
    if (memory.hostApart())
        lines << tr("beside it, on the host %1")
                     .arg(formatValue(
                         static_cast<double>(memory.report.bytes[static_cast<std::size_t>(MemoryKind::Host)]),
                         Unit::Bytes));
    if (memory.context > 0)
        lines << tr("of the workspace, driver, communication and headroom %1")
                     .arg(formatValue(static_cast<double>(memory.context), Unit::Bytes));
    if (memory.capacity > 0)
        lines << (memory.headroom() >= 0
                      ? tr("left %1").arg(formatValue(static_cast<double>(memory.headroom()), Unit::Bytes))
                      : tr("missing %1")
                            .arg(formatValue(-static_cast<double>(memory.headroom()), Unit::Bytes)));
    return lines.join(QLatin1Char('\n'));
}

int MemoryBars::fullest() const
{
    const auto *stages = m_verdict ? &m_verdict->stages : nullptr;
    if (!stages || stages->empty())
        return -1;
    const auto most = std::max_element(stages->begin(), stages->end(), [](const auto &x, const auto &y) {
        return x.used - x.capacity < y.used - y.capacity;
    });
    return static_cast<int>(most - stages->begin());
}

QSize MemoryBars::sizeHint() const
{
    return {280, std::max(1, m_verdict ? static_cast<int>(m_verdict->stages.size()) : 0) * rowHeight() + 1};
}

void MemoryBars::paintEvent(QPaintEvent *)
{
    if (!m_verdict || m_verdict->stages.empty())
        return;
    const Theme &theme = Theme::instance();
    QPainter painter(this);
    const double whole = scale();
    for (int i = 0; i < static_cast<int>(m_verdict->stages.size()); ++i) {
        const auto &stage = m_verdict->stages[static_cast<std::size_t>(i)];
        const QRectF bar = barOf(i);
        const QRect row(0, i * rowHeight(), width(), rowHeight());
        if (i == m_current)
            painter.fillRect(row, theme.color(Token::Selection));
        painter.setFont(theme.font(FontRole::Small));
        painter.setPen(theme.color(Token::Muted));
        painter.drawText(row.adjusted(0, 0, labelWidth() - width(), 0), Qt::AlignVCenter,
                         tr("Stage %1").arg(stage.stage));
        painter.fillRect(bar, theme.color(Token::Background));
        if (stage.capacity > 0 && stage.headroom() > 0) {
            const double from = static_cast<double>(stage.used) / whole * bar.width();
            const double to =
                std::min(bar.width(), static_cast<double>(stage.capacity) / whole * bar.width());
            painter.setOpacity(0.5);
            painter.fillRect(QRectF(bar.left() + from, bar.top(), to - from, bar.height()),
                             theme.brush(Ink::of(Kind::Bubble)));
            painter.setOpacity(1);
        }
        for (const MemoryKind kind : order)
            painter.fillRect(partOf(i, kind), theme.brush(Ink::of(kindOf(kind))));
        const double line = static_cast<double>(stage.capacity) / whole * bar.width();
        if (stage.capacity > 0 && line <= bar.width() + 0.5) {
            const bool over = stage.headroom() < 0;
            painter.setPen(QPen(theme.color(over ? Token::Bad : Token::Text), 2));
            painter.drawLine(QPointF(bar.left() + line, bar.top() - 3),
                             QPointF(bar.left() + line, bar.bottom() + 3));
        }
        painter.setFont(theme.font(FontRole::Mono));
        painter.setPen(theme.color(stage.capacity > 0 && stage.headroom() < 0 ? Token::Bad : Token::Text));
        painter.drawText(row.adjusted(width() - valueWidth(), 0, 0, 0), Qt::AlignVCenter | Qt::AlignRight,
                         formatValue(static_cast<double>(stage.peak()), Unit::Bytes));
    }
    if (hasFocus()) {
        painter.setPen(theme.color(Token::Accent));
        painter.drawRect(QRect(0, 0, width() - 1, static_cast<int>(m_verdict->stages.size()) * rowHeight()));
    }
}

int MemoryBars::stageAt(const QPoint &point) const
{
    const int stage = point.y() / rowHeight();
    return m_verdict && stage >= 0 && stage < static_cast<int>(m_verdict->stages.size()) ? stage : -1;
}

void MemoryBars::mousePressEvent(QMouseEvent *event) { setCurrent(stageAt(event->position().toPoint())); }

void MemoryBars::keyPressEvent(QKeyEvent *event)
{
    if (event->key() == Qt::Key_Up || event->key() == Qt::Key_Down)
        return setCurrent(std::max(0, m_current + (event->key() == Qt::Key_Down ? 1 : -1)));
    QWidget::keyPressEvent(event);
}

void MemoryBars::focusInEvent(QFocusEvent *event)
{
    QWidget::focusInEvent(event);
    update();
}

void MemoryBars::focusOutEvent(QFocusEvent *event)
{
    QWidget::focusOutEvent(event);
    update();
}

bool MemoryBars::event(QEvent *event)
{
    if (event->type() != QEvent::ToolTip)
        return QWidget::event(event);
    const auto *help = static_cast<QHelpEvent *>(event);
    const int stage = stageAt(help->pos());
    if (stage < 0)
        QToolTip::hideText();
    else
        QToolTip::showText(help->globalPos(), partsOf(stage), this);
    return true;
}

} // namespace rankyard::ui
