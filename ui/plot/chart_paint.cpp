// SPDX-License-Identifier: GPL-3.0-or-later
#include "ui/plot/chart_p.h"

#include <algorithm>
#include <cmath>

namespace rankyard::ui {

namespace {

/// Black or white, whichever is read better on `fill`.
QColor readableOn(const QColor &fill)
{
    const QColor dark = Theme::colorIn(Token::Text, false);
    return contrast(dark, fill) > contrast(Qt::white, fill) ? dark : QColor(Qt::white);
}

} // namespace

std::optional<double> Chart::Private::referencePixel() const
{
    if (!reference || *reference < yView.lo || *reference > yView.hi)
        return std::nullopt;
    return std::floor(y->coordToPixel(*reference)) + 0.5;
}

void Chart::Private::paintBands(QCPPainter *painter)
{
    if (bands.empty() || bands[0].empty())
        return;
    const Theme &theme = Theme::instance();
    const QColor surface = theme.color(Token::Surface);
    const double base = y->coordToPixel(std::max(0.0, yView.lo));
    for (std::size_t band = 0; band < bands.size(); ++band) {
        const Series &each = *series[static_cast<std::size_t>(bandSeries[band])];
        // Runs without gaps.
        for (std::size_t begin = 0; begin < bands[band].size();) {
            while (begin < bands[band].size() && !std::isfinite(bands[band][begin].y))
                ++begin;
            std::size_t end = begin;
            while (end < bands[band].size() && std::isfinite(bands[band][end].y))
                ++end;
            if (begin == end)
                break;
            QPolygonF area;
            for (std::size_t k = begin; k < end; ++k)
                area << QPointF(x->coordToPixel(bands[band][k].x), y->coordToPixel(bands[band][k].y));
            const QPolygonF top = area;
            for (std::size_t k = end; k-- > begin;)
                area << QPointF(x->coordToPixel(bands[band][k].x),
                                band > 0 ? y->coordToPixel(bands[band - 1][k].y) : base);
            painter->setPen(Qt::NoPen);
            painter->setBrush(theme.brush(each.spec.ink, theme.isDark() ? 0.88 : 0.86));
            painter->drawPolygon(area);
            painter->setBrush(Qt::NoBrush);
            painter->setPen(QPen(surface, 1));
            painter->drawPolyline(top);
            begin = end;
        }
    }
    // The name inside its band, where there is room: a band is never told by colour alone.
    painter->setFont(tickFont());
    const QFontMetrics metrics(tickFont());
    const QRect area = plot->axisRect()->rect();
    for (std::size_t band = 0; band < bands.size(); ++band) {
        const Series &each = *series[static_cast<std::size_t>(bandSeries[band])];
        const int width = metrics.horizontalAdvance(each.spec.name);
        const double begin = std::max<double>(area.left(), x->coordToPixel(bands[band].front().x)) + 8;
        if (begin + width > x->coordToPixel(bands[band].back().x))
            continue;
        double low = -1e9;
        double high = 1e9;
        for (std::size_t k = 0; k < bands[band].size(); ++k) {
            const double px = x->coordToPixel(bands[band][k].x);
            if (px < begin - 12 || px > begin + width + 12)
                continue;
            low = std::max(low, y->coordToPixel(bands[band][k].y));
            high = std::min(high, band > 0 ? y->coordToPixel(bands[band - 1][k].y) : base);
        }
        low = std::max<double>(low, area.top());
        high = std::min<double>(high, area.bottom());
        if (high - low < metrics.height() || high > 1e8)
            continue;
        // Beside the reference line, where the band has room there: a name that is crossed out is not read.
        if (const auto line = referencePixel(); line && *line > low && *line < high) {
            const bool below = high - *line > *line - low;
            (below ? low : high) = *line + (below ? 2 : -2);
            if (high - low < metrics.height())
                continue;
        }
        const QRectF place(begin, (low + high) / 2 - metrics.height() / 2.0, width, metrics.height());
        if (Theme::isHatched(each.spec.ink)) {
            painter->setPen(Qt::NoPen);
            painter->setBrush(surface);
            painter->drawRoundedRect(place.adjusted(-4, 0, 4, 0), 3, 3);
            painter->setPen(theme.color(Token::Text));
        } else {
            painter->setPen(readableOn(mixed(surface, theme.color(each.spec.ink), 0.87)));
        }
        painter->drawText(place, Qt::AlignCenter, each.spec.name);
    }
}

void Chart::Private::paintMarks(QCPPainter *painter)
{
    const Theme &theme = Theme::instance();
    const QRect area = plot->axisRect()->rect();
    painter->setClipRect(area.adjusted(-4, -6, 5, 8));
    if (!group->hasData()) {
        painter->setFont(theme.font(FontRole::Small));
        painter->setPen(theme.color(Token::Muted));
        painter->drawText(QRectF(area), Qt::AlignCenter, Chart::tr("no steps"));
    }
    int lastPixel = -10;
    for (const ChartMark &mark : marks) {
        if (mark.x < group->lo() || mark.x > group->hi())
            continue;
        const int px = static_cast<int>(std::lround(x->coordToPixel(mark.x)));
        if (px == lastPixel)
            continue;
        lastPixel = px;
        QPen pen(theme.color(mark.ink), 1);
        pen.setDashPattern({2, 2});
        painter->setPen(pen);
        painter->drawLine(QPointF(px + 0.5, area.top()), QPointF(px + 0.5, area.bottom()));
        // A tick on the axis, so that it is seen where the lines are dense.
        painter->setPen(QPen(theme.color(mark.ink), 2));
        painter->drawLine(QPointF(px + 0.5, area.top() - 5), QPointF(px + 0.5, area.top() + 1));
    }
    if (const auto py = referencePixel()) {
        QPen pen(theme.color(Token::Text), 1);
        pen.setDashPattern({5, 4});
        painter->setPen(pen);
        painter->drawLine(QPointF(area.left(), *py), QPointF(area.right(), *py));
    }
    // NaN and infinities: a gap in the line, and a red triangle on the axis.
    painter->setPen(Qt::NoPen);
    painter->setBrush(theme.color(Token::Bad));
    for (const auto &each : series) {
        if (!each->shown)
            continue;
        int last = -10;
        for (std::size_t at : each->model.nonFinite()) {
            const double key = each->model.x()[at];
            if (key < group->lo() || key > group->hi())
                continue;
            const int px = static_cast<int>(std::lround(x->coordToPixel(key)));
            if (px - last < 2)
                continue;
            last = px;
            const QPointF tip(px + 0.5, area.bottom() - 5);
            painter->drawPolygon(QPolygonF({tip, tip + QPointF(-4, 7), tip + QPointF(4, 7)}));
        }
    }
    if (above > 0 && left.clipOutliers && clip && !yView.moved) {
        painter->setFont(tickFont());
        painter->setPen(theme.color(Token::Muted));
        const QString text = QStringLiteral("▲ ") + Chart::tr("%n above", nullptr, above);
        painter->drawText(QRectF(area.adjusted(0, 1, -4, 0)), Qt::AlignRight | Qt::AlignTop, text);
    }
    painter->setClipping(false);
}

void Chart::Private::paintOverlay(QCPPainter *painter)
{
    const Theme &theme = Theme::instance();
    const QRect area = plot->axisRect()->rect();
    const auto cursor = group->cursor();
    if (cursor && *cursor >= group->lo() && *cursor <= group->hi()) {
        const double px = std::floor(x->coordToPixel(*cursor)) + 0.5;
        painter->setPen(QPen(faded(theme.color(Token::Text), 0.55), 1));
        painter->drawLine(QPointF(px, area.top()), QPointF(px, area.bottom()));
        for (const auto &each : series) {
            if (!each->shown || each->spec.draw == SeriesSpec::Draw::Area || each->model.empty())
                continue;
            const auto which = smoothing(*each) ? SeriesModel::Which::Smooth : SeriesModel::Which::Raw;
            const std::size_t at = each->model.nearest(*cursor);
            const double value = each->model.values(which)[at];
            const double py = std::isfinite(value) ? (each->spec.right ? right : y)->coordToPixel(value) : -1;
            const double sx = x->coordToPixel(each->model.x()[at]);
            if (py < area.top() || py > area.bottom() || std::fabs(sx - px) > 24)
                continue;
            painter->setPen(QPen(theme.color(Token::Surface), 1.5));
            painter->setBrush(theme.color(each->spec.ink));
            painter->drawEllipse(QPointF(sx, py), 3.5, 3.5);
        }
    }
    if (!box.isNull()) {
        painter->setPen(QPen(theme.color(Token::Accent), 1));
        painter->setBrush(faded(theme.color(Token::Accent), 0.15));
        painter->drawRect(QRectF(box).adjusted(0.5, 0.5, -0.5, -0.5));
    }
    if (q->hasFocus()) {
        painter->setPen(QPen(theme.color(Token::Accent), 1.5));
        painter->setBrush(Qt::NoBrush);
        painter->drawRoundedRect(QRectF(plot->rect()).adjusted(2, 1, -2, -2), 5, 5);
    }
}

} // namespace rankyard::ui
