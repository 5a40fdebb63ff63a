// SPDX-License-Identifier: GPL-3.0-or-later
#include "ui/designer/factor_board.h"

#include "ui/common/theme.h"

#include <QApplication>
#include <QFocusEvent>
#include <QHelpEvent>
#include <QKeyEvent>
#include <QMouseEvent>
#include <QPainter>
#include <QToolTip>

#include <algorithm>
#include <utility>

namespace rankyard::ui {

namespace {

constexpr int gap = 6;

Ink inkOf(int axis)
{
    constexpr std::array<Kind, FactorBoard::axes> kinds = {Kind::TensorParallel, Kind::Copy, Kind::Pipeline,
                                                           Kind::DataParallel};
    return Ink::of(kinds[static_cast<std::size_t>(axis)]);
}

} // namespace

const std::array<const char *, FactorBoard::axes> FactorBoard::names = {"tp", "cp", "pp", "dp"};

FactorBoard::FactorBoard(QWidget *parent) : QWidget(parent)
{
    setFocusPolicy(Qt::StrongFocus);
    setAccessibleName(tr("Factors of the layout"));
    setSizePolicy(QSizePolicy::Expanding, QSizePolicy::Fixed);
    setMouseTracking(true);
    connect(&Theme::instance(), &Theme::changed, this, [this] {
        updateGeometry();
        update();
    });
    setSizes({1, 1, 1, 1});
}

std::vector<std::int64_t> FactorBoard::primesOf(std::int64_t value)
{
    std::vector<std::int64_t> primes;
    for (std::int64_t prime = 2; prime * prime <= value; ++prime) {
        while (value % prime == 0) {
            primes.push_back(prime);
            value /= prime;
        }
    }
    if (value > 1)
        primes.push_back(value);
    return primes;
}

void FactorBoard::setSizes(const std::array<std::int64_t, axes> &sizes)
{
    m_sizes = sizes;
    for (int axis = 0; axis < axes; ++axis)
        m_factors[static_cast<std::size_t>(axis)] =
            primesOf(std::min<std::int64_t>(sizes[static_cast<std::size_t>(axis)], 65536));
    const auto all = chips();
    if (std::find(all.begin(), all.end(), m_current) == all.end()) {
        m_current = all.empty() ? Chip() : all.front();
        m_origin = -1;
    }
    describe();
    update();
}

void FactorBoard::describe()
{
    QStringList words;
    for (int axis = 0; axis < axes; ++axis)
        words << QStringLiteral("%1 %2")
                     .arg(QLatin1String(names[static_cast<std::size_t>(axis)]))
                     .arg(m_sizes[static_cast<std::size_t>(axis)]);
    QString text = words.join(QStringLiteral(", "));
    if (m_current.axis >= 0)
        text += QStringLiteral(". ")
            + tr("Factor %1 of %2")
                  .arg(m_factors[static_cast<std::size_t>(m_current.axis)]
                                [static_cast<std::size_t>(m_current.index)])
                  .arg(QLatin1String(names[static_cast<std::size_t>(m_current.axis)]));
    setAccessibleDescription(text);
}

bool FactorBoard::move(std::int64_t factor, int from, int to)
{
    auto &source = m_factors[static_cast<std::size_t>(from)];
    if (from == to || std::find(source.begin(), source.end(), factor) == source.end())
        return false;
    auto sizes = m_sizes;
    sizes[static_cast<std::size_t>(from)] /= factor;
    sizes[static_cast<std::size_t>(to)] *= factor;
    const int origin = std::exchange(m_origin, -1);
    setSizes(sizes);
    m_origin = origin;
    const auto &target = m_factors[static_cast<std::size_t>(to)];
    m_current = {to, static_cast<int>(std::find(target.begin(), target.end(), factor) - target.begin())};
    describe();
    emit moved(from, to);
    return true;
}

QRect FactorBoard::boxOf(int axis) const
{
    const int wide = (width() - gap * (axes - 1)) / axes;
    return {axis * (wide + gap), 0, wide, height()};
}

QRect FactorBoard::chipOf(int axis, int index) const
{
    const Theme &theme = Theme::instance();
    const QRect box = boxOf(axis);
    const int high = theme.scaled(20);
    const int head = theme.scaled(22);
    const auto count = std::max<int>(1, static_cast<int>(m_factors[static_cast<std::size_t>(axis)].size()));
    // As many in a row as have room; more rows than two would not be read anyway and overlap.
    const int perRow = std::max(1, std::min(count, (box.width() - 8) / theme.scaled(20)));
    const int wide = (box.width() - 8 - (perRow - 1) * 2) / std::max(perRow, 2);
    const int row = index / perRow;
    return {box.left() + 4 + index % perRow * (wide + 2), box.top() + head + std::min(row, 2) * (high + 2),
            wide, high};
}

QSize FactorBoard::sizeHint() const
{
    const Theme &theme = Theme::instance();
    return {theme.scaled(240), theme.scaled(22) + 3 * (theme.scaled(20) + 2) + 4};
}

QSize FactorBoard::minimumSizeHint() const { return {Theme::instance().scaled(160), sizeHint().height()}; }

std::vector<FactorBoard::Chip> FactorBoard::chips() const
{
    std::vector<Chip> all;
    for (int axis = 0; axis < axes; ++axis) {
        for (int i = 0; i < static_cast<int>(m_factors[static_cast<std::size_t>(axis)].size()); ++i)
            all.push_back({axis, i});
    }
    return all;
}

FactorBoard::Chip FactorBoard::chipAt(const QPoint &point) const
{
    for (const Chip &chip : chips()) {
        if (chipOf(chip.axis, chip.index).contains(point))
            return chip;
    }
    return {};
}

int FactorBoard::axisAt(const QPoint &point) const
{
    for (int axis = 0; axis < axes; ++axis) {
        const QRect box = boxOf(axis);
        if (point.x() >= box.left() && point.x() <= box.right())
            return axis;
    }
    return -1;
}

void FactorBoard::paintEvent(QPaintEvent *)
{
    const Theme &theme = Theme::instance();
    QPainter painter(this);
    painter.setRenderHint(QPainter::Antialiasing);
    const int target = m_origin >= 0 ? m_current.axis : -1;
    const auto paintChip = [&](const QRect &rect, int axis, std::int64_t factor, bool current) {
        const QColor color = theme.color(inkOf(axis));
        painter.setPen(QPen(current ? theme.color(Token::Accent) : color, current ? 2 : 1));
        painter.setBrush(mixed(theme.color(Token::Surface), color, 0.22));
        painter.drawRoundedRect(QRectF(rect).adjusted(0.5, 0.5, -0.5, -0.5), 4, 4);
        painter.setPen(theme.color(Token::Text));
        painter.setFont(theme.font(FontRole::MonoSmall));
        painter.drawText(rect, Qt::AlignCenter, QString::number(factor));
    };
    for (int axis = 0; axis < axes; ++axis) {
        const QRect box = boxOf(axis);
        painter.setPen(theme.color(axis == target ? Token::Accent : Token::Border));
        painter.setBrush(theme.color(axis == target ? Token::Selection : Token::Background));
        painter.drawRoundedRect(QRectF(box).adjusted(0.5, 0.5, -0.5, -0.5), 5, 5);
        const QRect head(box.left() + 6, box.top(), box.width() - 12, theme.scaled(22));
        painter.setFont(theme.font(FontRole::MonoSmall));
        painter.setPen(theme.color(Token::Muted));
        painter.drawText(head, Qt::AlignVCenter | Qt::AlignLeft,
                         QLatin1String(names[static_cast<std::size_t>(axis)]));
        painter.setPen(theme.color(Token::Text));
        painter.drawText(head, Qt::AlignVCenter | Qt::AlignRight,
                         QString::number(m_sizes[static_cast<std::size_t>(axis)]));
        const auto &factors = m_factors[static_cast<std::size_t>(axis)];
        for (int i = 0; i < static_cast<int>(factors.size()); ++i) {
            const Chip chip{axis, i};
            if (m_origin >= 0 && chip == m_current)
                continue;
            paintChip(chipOf(axis, i), axis, factors[static_cast<std::size_t>(i)],
                      hasFocus() && chip == m_current);
        }
    }
    if (m_origin >= 0) {
        QRect rect = chipOf(m_current.axis, m_current.index);
        rect.moveTopLeft(m_pointer - m_grip);
        paintChip(
            rect, m_current.axis,
            m_factors[static_cast<std::size_t>(m_current.axis)][static_cast<std::size_t>(m_current.index)],
            true);
    }
}

void FactorBoard::mousePressEvent(QMouseEvent *event)
{
    if (event->button() != Qt::LeftButton)
        return;
    m_pointer = event->position().toPoint();
    const Chip chip = chipAt(m_pointer);
    if (chip.axis < 0)
        return;
    m_current = chip;
    m_origin = chip.axis;
    m_grip = m_pointer - chipOf(chip.axis, chip.index).topLeft();
    describe();
    update();
}

void FactorBoard::mouseMoveEvent(QMouseEvent *event)
{
    m_pointer = event->position().toPoint();
    if (m_origin < 0)
        return setCursor(chipAt(m_pointer).axis >= 0 ? Qt::OpenHandCursor : Qt::ArrowCursor);
    setCursor(Qt::ClosedHandCursor);
    dragTo(axisAt(m_pointer));
    update();
}

void FactorBoard::mouseReleaseEvent(QMouseEvent *event)
{
    if (event->button() != Qt::LeftButton || m_origin < 0)
        return;
    dragTo(axisAt(event->position().toPoint()));
    drop();
}

void FactorBoard::dragTo(int axis)
{
    if (axis >= 0)
        move(m_factors[static_cast<std::size_t>(m_current.axis)][static_cast<std::size_t>(m_current.index)],
             m_current.axis, axis);
}

void FactorBoard::drop()
{
    if (m_origin < 0)
        return;
    m_origin = -1;
    unsetCursor();
    update();
    emit dropped();
}

void FactorBoard::keyPressEvent(QKeyEvent *event)
{
    if (event->key() == Qt::Key_Escape && m_origin >= 0) {
        dragTo(m_origin);
        return drop();
    }
    const int by = event->key() == Qt::Key_Left ? -1 : event->key() == Qt::Key_Right ? 1 : 0;
    const auto all = chips();
    if (by == 0 || all.empty())
        return QWidget::keyPressEvent(event);
    if (event->modifiers() & Qt::ControlModifier) {
        const int to = m_current.axis + by;
        if (m_current.axis >= 0 && to >= 0 && to < axes) {
            dragTo(to);
            emit dropped();
        }
        return;
    }
    const auto at = std::find(all.begin(), all.end(), m_current) - all.begin();
    const auto last = static_cast<std::ptrdiff_t>(all.size()) - 1;
    m_current = all[static_cast<std::size_t>(std::clamp<std::ptrdiff_t>(at + by, 0, last))];
    describe();
    update();
}

void FactorBoard::focusInEvent(QFocusEvent *event)
{
    QWidget::focusInEvent(event);
    update();
}

void FactorBoard::focusOutEvent(QFocusEvent *event)
{
    QWidget::focusOutEvent(event);
    drop();
    update();
}

bool FactorBoard::event(QEvent *event)
{
    if (event->type() != QEvent::ToolTip)
        return QWidget::event(event);
    const auto *help = static_cast<QHelpEvent *>(event);
    QToolTip::showText(
        help->globalPos(),
        tr("Drag a factor to another axis: the number of ranks stays. Keys: arrows, Ctrl and arrows move"),
        this);
    return true;
}

} // namespace rankyard::ui
