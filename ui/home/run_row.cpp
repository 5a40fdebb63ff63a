// SPDX-License-Identifier: GPL-3.0-or-later
#include "ui/home/run_row.h"

#include "ui/common/format.h"
#include "ui/common/icons.h"

#include <QPainter>
#include <QPainterPath>

#include <algorithm>
#include <cmath>

namespace rankyard::ui {

RunRow::RunRow(QWidget *parent) : QAbstractButton(parent)
{
    setFocusPolicy(Qt::StrongFocus);
    setCursor(Qt::PointingHandCursor);
    setSizePolicy(QSizePolicy::Expanding, QSizePolicy::Fixed);
    setAttribute(Qt::WA_Hover);
    connect(&Theme::instance(), &Theme::changed, this, [this] {
        updateGeometry();
        update();
    });
}

void RunRow::setRun(const store::RunInfo &run, std::int64_t nowNs)
{
    if (run.job != m_run.job)
        m_job = summariseJob(run.job);
    m_run = run;
    m_now = nowNs;
    setAccessibleName(tr("Open %1, %2").arg(QString::fromStdString(run.name), lookOf(run.state).word));
    setToolTip(QString::fromStdString(run.id));
    update();
}

void RunRow::setNow(std::int64_t nowNs)
{
    m_now = nowNs;
    update();
}

void RunRow::setPreview(std::vector<double> losses)
{
    m_losses = std::move(losses);
    update();
}

void RunRow::setTall(bool tall)
{
    m_tall = tall;
    setSizePolicy(QSizePolicy::Expanding, tall ? QSizePolicy::MinimumExpanding : QSizePolicy::Fixed);
    updateGeometry();
}

QSize RunRow::sizeHint() const { return {400, Theme::instance().scaled(m_tall ? 168 : 48)}; }

void RunRow::paintCurve(QPainter &painter, const QRectF &area) const
{
    const Theme &theme = Theme::instance();
    double lo = 1e300;
    double hi = -1e300;
    for (double loss : m_losses) {
        if (std::isfinite(loss)) {
            lo = std::min(lo, loss);
            hi = std::max(hi, loss);
        }
    }
    if (m_losses.size() < 2 || hi <= lo)
        return;
    // Of a live run the curve is as wide as its part of the way.
    const double part = m_tall && m_run.steps > 0
        ? std::clamp(static_cast<double>(m_run.step) / static_cast<double>(m_run.steps), 0.02, 1.0)
        : 1;
    if (m_tall) {
        painter.setPen(QPen(mixed(theme.color(Token::Surface), theme.color(Token::Border), 0.6), 1));
        for (int line = 0; line <= 2; ++line) {
            const double y = std::floor(area.top() + area.height() * line / 2) + 0.5;
            painter.drawLine(QPointF(area.left(), y), QPointF(area.right(), y));
        }
    }
    QPainterPath line;
    bool pen = false;
    for (std::size_t i = 0; i < m_losses.size(); ++i) {
        if (!std::isfinite(m_losses[i])) {
            pen = false;
            continue;
        }
        const QPointF at(area.left()
                             + area.width() * part * static_cast<double>(i)
                                 / static_cast<double>(m_losses.size() - 1),
                         area.bottom() - area.height() * (m_losses[i] - lo) / (hi - lo));
        if (pen)
            line.lineTo(at);
        else
            line.moveTo(at);
        pen = true;
    }
    painter.setPen(QPen(theme.color(Ink::series(0)), 1));
    painter.setBrush(Qt::NoBrush);
    painter.drawPath(line);
}

void RunRow::paintEvent(QPaintEvent *)
{
    const Theme &theme = Theme::instance();
    QPainter painter(this);
    painter.setRenderHint(QPainter::Antialiasing);
    if (underMouse())
        painter.fillRect(rect(), mixed(theme.color(Token::Surface), theme.color(Token::Text), 0.035));
    const StateLook look = lookOf(m_run.state);
    const int head = m_tall ? theme.scaled(52) : height();
    const int size = theme.scaled(18);
    paintIcon(painter, look.icon, QRectF(12, (head - size) / 2.0, size, size), theme.color(look.tone));
    const QFont nameFont = theme.font(FontRole::Strong);
    const QFont small = theme.font(FontRole::Small);
    const QFont mono = theme.font(FontRole::Mono);
    const int left = 12 + size + 12;
    const int rightWidth = theme.scaled(112);
    const int sparkWidth = m_tall ? 0 : width() > theme.scaled(520) ? theme.scaled(132) : 0;
    const int textWidth = width() - left - rightWidth - sparkWidth - 36;

    painter.setFont(nameFont);
    painter.setPen(theme.color(Token::Text));
    painter.drawText(
        QRectF(left, 0, textWidth, head / 2.0 + 1), Qt::AlignBottom | Qt::AlignLeft,
        QFontMetrics(nameFont).elidedText(QString::fromStdString(m_run.name), Qt::ElideRight, textWidth));
    QStringList parts{look.word, m_job.layout()};
    parts << (m_run.steps > 0 ? tr("step %1 / %2").arg(formatStep(m_run.step), formatStep(m_run.steps))
                              : tr("step %1").arg(formatStep(m_run.step)));
    if (telemetry::isLive(m_run.state)) {
        if (m_run.tokensPerS > 0)
            parts << formatValue(m_run.tokensPerS, Unit::TokensPerSecond);
    } else {
        parts << formatAge(m_run.endedNs > 0 ? m_run.endedNs : m_run.lastSeenNs, m_now);
    }
    painter.setFont(small);
    painter.setPen(theme.color(Token::Muted));
    painter.drawText(
        QRectF(left, head / 2.0 + 2, textWidth, head / 2.0), Qt::AlignTop | Qt::AlignLeft,
        QFontMetrics(small).elidedText(parts.join(QStringLiteral(" · ")), Qt::ElideRight, textWidth));

    if (sparkWidth > 0)
        paintCurve(painter,
                   QRectF(width() - rightWidth - sparkWidth - 24, theme.scaled(11), sparkWidth,
                          height() - 2 * theme.scaled(11)));
    else if (m_tall)
        paintCurve(painter, QRectF(left, head + 4, width() - left - 12, height() - head - 16));
    painter.setFont(mono);
    painter.setPen(theme.color(Token::Text));
    painter.drawText(QRectF(width() - rightWidth - 12, 0, rightWidth, head / 2.0 + 1),
                     Qt::AlignBottom | Qt::AlignRight,
                     m_run.step > 0 ? formatLoss(m_run.lastLoss) : QStringLiteral("–"));
    painter.setFont(small);
    painter.setPen(theme.color(Token::Muted));
    painter.drawText(QRectF(width() - rightWidth - 12, head / 2.0 + 2, rightWidth, head / 2.0),
                     Qt::AlignTop | Qt::AlignRight, tr("last loss"));
    painter.setPen(QPen(mixed(theme.color(Token::Surface), theme.color(Token::Border), 0.7), 1));
    painter.drawLine(QPointF(12, 0.5), QPointF(width() - 12, 0.5));
    if (telemetry::isLive(m_run.state) && m_run.steps > 0) {
        const double t =
            std::clamp(static_cast<double>(m_run.step) / static_cast<double>(m_run.steps), 0.0, 1.0);
        painter.setPen(Qt::NoPen);
        painter.setBrush(theme.color(Token::Good));
        painter.drawRect(QRectF(12, height() - 2, (width() - 24) * t, 2));
    }
    if (hasFocus()) {
        painter.setPen(QPen(theme.color(Token::Accent), 1.5));
        painter.setBrush(Qt::NoBrush);
        painter.drawRoundedRect(QRectF(rect()).adjusted(2, 2, -2, -2), 5, 5);
    }
}

} // namespace rankyard::ui
