// SPDX-License-Identifier: GPL-3.0-or-later
#include "ui/plot/chart.h"

#include "ui/common/icons.h"
#include "ui/plot/chart_p.h"

#include <QContextMenuEvent>
#include <QHBoxLayout>
#include <QLabel>
#include <QTimer>
#include <QToolButton>

#include <algorithm>
#include <cmath>

namespace rankyard::ui {

namespace {

constexpr double rawAlpha = 0.34;
constexpr int dragThreshold = 5;

QFont tickFont()
{
    QFont font = Theme::instance().font(FontRole::Small);
    font.setPixelSize(Theme::instance().scaled(11));
    return font;
}

QColor faded(QColor color, double alpha)
{
    color.setAlphaF(static_cast<float>(alpha));
    return color;
}

/// Black or white, whichever is read better on `fill`.
QColor readableOn(const QColor &fill)
{
    const QColor dark = Theme::colorIn(Token::Text, false);
    return contrast(dark, fill) > contrast(Qt::white, fill) ? dark : QColor(Qt::white);
}

} // namespace

Chart::Private::Private(Chart *chart, ChartGroup *chartGroup) : q(chart), group(chartGroup) {}

Chart::Chart(const QString &title, ChartGroup *group, QWidget *parent)
    : Panel(title, parent),
      d(std::make_unique<Private>(this, group))
{
    setFocusPolicy(Qt::StrongFocus);
    d->legend = new Legend(this);
    headLayout()->addWidget(d->legend, 1);
    d->stack = new QStackedWidget(this);
    d->buildPlot();
    d->message = new QLabel(d->stack);
    d->message->setAlignment(Qt::AlignCenter);
    d->message->setWordWrap(true);
    d->message->setContentsMargins(24, 0, 24, 16);
    d->message->setProperty("tone", "muted");
    d->stack->addWidget(d->plot);
    d->stack->addWidget(d->message);
    body()->addWidget(d->stack, 1);
    d->buildMenu();
    group->join(
        this,
        {[this] { return d->yView; }, [this](const YView &view) { setYView(view); }, [this] { fitY(); }});
    connect(group, &ChartGroup::viewChanged, this, &Chart::dataChanged);
    connect(group, &ChartGroup::cursorMoved, this, [this] {
        if (isVisible() && !d->dirty)
            d->plot->layer(QStringLiteral("overlay"))->replot();
    });
    d->style();
}

Chart::~Chart() = default;

void Chart::Private::buildPlot()
{
    plot = new Canvas(stack);
    plot->legend->setVisible(false);
    x = plot->xAxis;
    y = plot->yAxis;
    right = plot->yAxis2;
    plot->axisRect()->setAutoMargins(QCP::msNone);
    const auto ticker = [](QCPAxis *axis, std::function<TickSet(double, double)> make) {
        auto shared = QSharedPointer<FunctionTicker>::create();
        shared->make = std::move(make);
        axis->setTicker(shared);
    };
    ticker(x, [this](double lo, double hi) {
        const int most = std::max(2, plot->axisRect()->width() / Theme::instance().scaled(72));
        if (group->logX())
            return decadeTicks(lo, hi, most);
        return linearTicks(lo, hi, group->xUnit(), most);
    });
    const auto vertical = [this](const AxisSpec &spec, double lo, double hi) {
        const int most = verticalTicks();
        switch (spec.scale) {
        case AxisSpec::Scale::Log10:
            return decadeTicks(lo, hi, most);
        case AxisSpec::Scale::Log2:
            return powerTicks(lo, hi, most);
        case AxisSpec::Scale::Linear:
            break;
        }
        return linearTicks(lo, hi, spec.unit, most);
    };
    ticker(y, [this, vertical](double lo, double hi) { return vertical(left, lo, hi); });
    ticker(right, [this, vertical](double lo, double hi) {
        return vertical(rightSpec.value_or(AxisSpec{}), lo, hi);
    });
    for (QCPAxis *axis : {x, y, right}) {
        axis->setTickLength(0, 0);
        axis->setNumberFormat(QStringLiteral("g")); // labels are ours: no powers of ten made of them
        axis->setSubTicks(false);
        axis->setTickPen(Qt::NoPen);
        axis->setBasePen(Qt::NoPen);
        axis->setTickLabelPadding(5);
        axis->setLabelPadding(0);
        axis->grid()->setSubGridVisible(false);
    }
    x->grid()->setVisible(false);
    right->grid()->setVisible(false);
    // QCustomPlot's own top layer has a buffer of its own: a cursor that moves does not draw the lines again.
    new Painting(
        plot, QStringLiteral("grid"), [this](QCPPainter *p) { paintBands(p); }, plot->axisRect());
    new Painting(plot, QStringLiteral("axes"), [this](QCPPainter *p) { paintMarks(p); });
    new Painting(plot, QStringLiteral("overlay"), [this](QCPPainter *p) { paintOverlay(p); });
    plot->handler = {
        [this](QMouseEvent *e) { press(e); },
        [this](QMouseEvent *e) { move(e); },
        [this](QMouseEvent *e) { release(e); },
        [this](QMouseEvent *) { group->fit(); },
        [this](QWheelEvent *e) { wheel(e); },
        [this] {
            if (!pressed && group->cursorSource() == q)
                group->setCursor(std::nullopt);
        },
        [this] {
            settled = false; // another height has room for other ticks
            dirty = true;
            schedule();
        },
    };
}

void Chart::restyle()
{
    Panel::restyle();
    if (d)
        d->style();
}

void Chart::Private::style()
{
    const Theme &theme = Theme::instance();
    const QColor surface = theme.color(Token::Surface);
    plot->setBackground(QBrush(surface));
    plot->axisRect()->setMargins(
        QMargins(theme.scaled(48), theme.scaled(8), rightSpec ? theme.scaled(40) : 14, theme.scaled(22)));
    for (QCPAxis *axis : {x, y, right}) {
        axis->setTickLabelFont(tickFont());
        axis->setTickLabelColor(theme.color(Token::Muted));
    }
    const QPen gridPen(mixed(surface, theme.color(Token::Border), 0.6), 1);
    y->grid()->setPen(gridPen);
    y->grid()->setZeroLinePen(gridPen);
    x->setBasePen(QPen(theme.color(Token::Border), 1));
    for (auto &each : series)
        styleSeries(*each);
    message->setFont(theme.font(FontRole::Body));
    dirty = true;
    schedule();
}

/// QCustomPlot draws a width of exactly 1 as one device pixel, which is fast, but half a pixel on a screen of scale 2. There the lines
/// that are not noisy get their true width.
double Chart::Private::lineWidth() const { return plot->devicePixelRatioF() > 1.25 ? 1.01 : 1; }

void Chart::Private::styleSeries(Series &each)
{
    if (!each.raw)
        return;
    const QColor color = Theme::instance().color(each.spec.ink);
    const bool under = smoothing(each);
    // Steps are few and level: drawn a little wider they cost nothing and do not fade between two pixels.
    const bool level = each.spec.draw == SeriesSpec::Draw::Step;
    QPen pen(under ? faded(color, rawAlpha) : color, under ? 1 : level ? 1.4 : lineWidth());
    if (each.spec.dashed)
        pen.setDashPattern({5, 3});
    each.raw->setPen(pen);
    each.raw->setAdaptiveSampling(false);
    each.raw->setSelectable(QCP::stNone);
    each.raw->setLineStyle(each.spec.draw == SeriesSpec::Draw::Step ? QCPGraph::lsStepLeft
                               : each.spec.draw == SeriesSpec::Draw::Points && each.model.size() == 1
                               ? QCPGraph::lsNone
                               : QCPGraph::lsLine);
    if (each.spec.draw == SeriesSpec::Draw::Points) {
        QCPScatterStyle dots(QCPScatterStyle::ssDisc, each.model.size() > 24 ? 3 : 4.5);
        dots.setPen(QPen(color, 1));
        dots.setBrush(color);
        each.raw->setScatterStyle(dots);
    }
    each.raw->setVisible(each.shown);
    if (each.smooth) {
        QPen top(color, lineWidth());
        if (each.spec.dashed)
            top.setDashPattern({5, 3});
        each.smooth->setPen(top);
        each.smooth->setAdaptiveSampling(false);
        each.smooth->setSelectable(QCP::stNone);
        each.smooth->setVisible(each.shown && under);
    }
}

int Chart::addSeries(const SeriesSpec &spec)
{
    auto fresh = std::make_unique<Private::Series>();
    fresh->spec = spec;
    if (spec.smooth)
        fresh->model.setSmoothing(d->smoothingWeight);
    if (spec.draw != SeriesSpec::Draw::Area) {
        QCPAxis *value = spec.right ? d->right : d->y;
        fresh->raw = d->plot->addGraph(d->x, value);
        if (spec.smooth)
            fresh->smooth = d->plot->addGraph(d->x, value);
    }
    fresh->legend = d->legend->add(spec.name, spec.ink,
                                   spec.dashed ? LegendItem::Mark::Dash : LegendItem::Mark::Dot, true);
    if (!spec.tip.isEmpty())
        fresh->legend->setToolTip(spec.tip);
    d->styleSeries(*fresh);
    const int index = seriesCount();
    connect(fresh->legend, &QAbstractButton::toggled, this, [this, index](bool on) { setShown(index, on); });
    d->series.push_back(std::move(fresh));
    return index;
}

void Chart::clearSeries()
{
    for (auto &each : d->series) {
        if (each->raw)
            d->plot->removeGraph(each->raw);
        if (each->smooth)
            d->plot->removeGraph(each->smooth);
    }
    d->series.clear();
    d->notes.clear();
    d->legend->clear();
    d->referenceItem = nullptr;
    d->reference.reset();
    d->total.clear();
    d->bands.clear();
    d->bandSeries.clear();
    d->settled = false;
    dataChanged();
}

int Chart::seriesCount() const { return static_cast<int>(d->series.size()); }
const SeriesSpec &Chart::spec(int series) const { return d->series[static_cast<std::size_t>(series)]->spec; }
SeriesModel &Chart::model(int series) { return d->series[static_cast<std::size_t>(series)]->model; }
const SeriesModel &Chart::model(int series) const
{
    return d->series[static_cast<std::size_t>(series)]->model;
}
bool Chart::isShown(int series) const { return d->series[static_cast<std::size_t>(series)]->shown; }

void Chart::setShown(int series, bool shown)
{
    if (series < 0 || series >= seriesCount())
        return;
    Private::Series &each = *d->series[static_cast<std::size_t>(series)];
    if (each.shown == shown)
        return;
    each.shown = shown;
    each.legend->setChecked(shown);
    d->styleSeries(each);
    d->total.clear();
    dataChanged();
}

void Chart::setLegendValue(int series, const QString &value)
{
    Private::Series &each = *d->series[static_cast<std::size_t>(series)];
    each.ownValue = false;
    each.legend->setValue(value);
}

QString Chart::legendValue(int series) const
{
    return d->series[static_cast<std::size_t>(series)]->legend->value();
}

void Chart::setNote(const QString &name, const QString &value)
{
    for (Private::Note &note : d->notes) {
        if (note.name == name) {
            note.item->setValue(value);
            return;
        }
    }
    LegendItem *item = d->legend->add(name, Ink::of(Token::Muted), LegendItem::Mark::None, false);
    item->setValue(value);
    d->notes.push_back({name, item});
}

void Chart::setLeftAxis(const AxisSpec &axis)
{
    d->left = axis;
    d->y->setScaleType(axis.scale == AxisSpec::Scale::Linear ? QCPAxis::stLinear : QCPAxis::stLogarithmic);
    d->settled = false;
    dataChanged();
}

void Chart::setRightAxis(const std::optional<AxisSpec> &axis)
{
    d->rightSpec = axis;
    d->right->setVisible(axis.has_value());
    d->right->setTickLabels(axis.has_value());
    if (axis)
        d->right->setScaleType(axis->scale == AxisSpec::Scale::Linear ? QCPAxis::stLinear
                                                                      : QCPAxis::stLogarithmic);
    d->settled = false;
    d->style();
}

const AxisSpec &Chart::leftAxis() const { return d->left; }

void Chart::setMarks(std::vector<ChartMark> marks)
{
    d->marks = std::move(marks);
    dataChanged();
}

const std::vector<ChartMark> &Chart::marks() const { return d->marks; }

void Chart::setReference(const QString &name, std::optional<double> y)
{
    d->reference = y;
    if (y && !d->referenceItem)
        d->referenceItem = d->legend->add(name, Ink::of(Token::Text), LegendItem::Mark::Dash, false);
    if (d->referenceItem) {
        if (y)
            d->referenceItem->setValue(formatShort(*y, d->left.unit));
        else {
            d->legend->remove(d->referenceItem);
            d->referenceItem = nullptr;
        }
    }
    dataChanged();
}

std::optional<double> Chart::reference() const { return d->reference; }

void Chart::setMessage(const QString &message)
{
    d->message->setText(message);
    d->legend->setVisible(message.isEmpty());
    d->stack->setCurrentWidget(message.isEmpty() ? static_cast<QWidget *>(d->plot) : d->message);
}

QString Chart::message() const { return d->message->text(); }

bool Chart::setSmoothing(double weight)
{
    if (!(weight >= 0 && weight < 1))
        return false;
    d->smoothingWeight = weight;
    for (auto &each : d->series) {
        if (each->spec.smooth)
            each->model.setSmoothing(weight);
        d->styleSeries(*each);
    }
    dataChanged();
    return true;
}

void Chart::dataChanged()
{
    d->dirty = true;
    d->schedule();
}

void Chart::Private::schedule()
{
    if (scheduled || !q->isVisible())
        return;
    scheduled = true;
    QTimer::singleShot(0, q, [this] {
        scheduled = false;
        if (dirty && q->isVisible())
            q->drawNow();
    });
}

void Chart::drawNow()
{
    d->rebuild();
    d->plot->replot(QCustomPlot::rpQueuedRefresh);
    emit drawnAgain();
}

int Chart::Private::verticalTicks() const
{
    // Of the widget, not of QCustomPlot's last layout, which is one drawing behind.
    const Theme &theme = Theme::instance();
    return std::clamp((plot->height() - theme.scaled(30)) / theme.scaled(30), 3, 6);
}

ColumnMap Chart::Private::columns() const
{
    return {group->lo(), group->hi(), group->logX(), std::max(16, plot->axisRect()->width())};
}

void Chart::Private::rebuild()
{
    dirty = false;
    refreshLegend();
    const ColumnMap map = columns();
    for (auto &each : series) {
        if (each->spec.draw == SeriesSpec::Draw::Area)
            continue;
        const AxisSpec &axis = each->spec.right ? rightSpec.value_or(AxisSpec{}) : left;
        const bool positive = axis.scale != AxisSpec::Scale::Linear;
        const auto hand = [&](QCPGraph *graph, SeriesModel::Which which, std::vector<Sample> &samples) {
            each->model.decimate(map, which, positive, samples);
            QVector<QCPGraphData> data;
            data.reserve(static_cast<qsizetype>(samples.size()));
            for (const Sample &sample : samples)
                data.append({sample.x, sample.y});
            graph->data()->set(data, true);
        };
        hand(each->raw, SeriesModel::Which::Raw, each->drawnRaw);
        if (each->smooth && smoothing(*each))
            hand(each->smooth, SeriesModel::Which::Smooth, each->drawnSmooth);
        else
            each->drawnSmooth.clear();
        styleSeries(*each);
    }
    restack();
    settleY(false);
    if (rightSpec)
        settleY(true);
    settled = true;
    applyRanges();
}

void Chart::Private::restack()
{
    bands.clear();
    bandSeries.clear();
    std::size_t count = 0;
    for (std::size_t i = 0; i < series.size(); ++i) {
        if (series[i]->spec.draw != SeriesSpec::Draw::Area || !series[i]->shown)
            continue;
        count = bandSeries.empty() ? series[i]->model.size() : std::min(count, series[i]->model.size());
        bandSeries.push_back(static_cast<int>(i));
    }
    if (bandSeries.empty())
        return;
    const auto &xs = series[static_cast<std::size_t>(bandSeries[0])]->model.x();
    if (total.size() > count || (!total.empty() && total.x().front() != xs.front()))
        total.clear();
    for (std::size_t at = total.size(); at < count; ++at) {
        double sum = 0;
        for (int i : bandSeries)
            sum += series[static_cast<std::size_t>(i)]->model.y()[at];
        total.append(xs[at], sum);
    }
    std::vector<std::size_t> at;
    total.peaks(columns(), at);
    std::vector<double> sum(at.size(), 0.0);
    for (int i : bandSeries) {
        std::vector<Sample> top(at.size());
        const auto &model = series[static_cast<std::size_t>(i)]->model;
        for (std::size_t k = 0; k < at.size(); ++k) {
            sum[k] += model.y()[at[k]];
            top[k] = {xs[at[k]], sum[k]};
        }
        series[static_cast<std::size_t>(i)]->drawnRaw = top;
        bands.push_back(std::move(top));
    }
}

NiceRange Chart::Private::autoRange(bool onRight, bool &any)
{
    const AxisSpec spec = onRight ? rightSpec.value_or(AxisSpec{}) : left;
    const bool positive = spec.scale != AxisSpec::Scale::Linear;
    double lo = 0;
    double hi = 0;
    any = false;
    const auto take = [&](double value) {
        lo = any ? std::min(lo, value) : value;
        hi = any ? std::max(hi, value) : value;
        any = true;
    };
    std::vector<double> drawnValues;
    const auto takeAll = [&](const std::vector<Sample> &samples) {
        for (const Sample &sample : samples) {
            if (sample.x < group->lo() || sample.x > group->hi() || !std::isfinite(sample.y)
                || (positive && sample.y <= 0))
                continue;
            take(sample.y);
            drawnValues.push_back(sample.y);
        }
    };
    for (const auto &each : series) {
        if (each->shown && each->spec.right == onRight && each->spec.draw != SeriesSpec::Draw::Area)
            takeAll(each->drawnRaw);
    }
    if (!onRight && !bands.empty()) {
        takeAll(bands.back());
        if (any)
            take(0);
    }
    above = onRight ? above : 0;
    if (spec.clipOutliers && clip && drawnValues.size() >= 8) {
        const auto rank = static_cast<std::ptrdiff_t>(static_cast<double>(drawnValues.size() - 1) * 0.97);
        std::nth_element(drawnValues.begin(), drawnValues.begin() + rank, drawnValues.end());
        const double usual = drawnValues[static_cast<std::size_t>(rank)];
        if (usual > 0 && hi > 1.6 * usual) {
            hi = usual * 1.15;
            above = static_cast<int>(
                std::count_if(drawnValues.begin(), drawnValues.end(), [hi](double v) { return v > hi; }));
        }
    }
    if (!onRight && reference && any)
        take(*reference);
    if (!any)
        return {0, 1};
    const int most = verticalTicks();
    switch (spec.scale) {
    case AxisSpec::Scale::Log10:
        return niceLogRange(lo, hi, 10);
    case AxisSpec::Scale::Log2:
        return niceLogRange(lo, hi, 2);
    case AxisSpec::Scale::Linear:
        break;
    }
    return niceRange(lo, hi, spec.unit, most, spec.zeroBased || (!onRight && !bands.empty()));
}

void Chart::Private::settleY(bool onRight)
{
    if (yView.moved)
        return;
    bool any = false;
    const NiceRange wanted = autoRange(onRight, any);
    double &lo = onRight ? yView.rightLo : yView.lo;
    double &hi = onRight ? yView.rightHi : yView.hi;
    // While it follows, the axis keeps its place until the data leave it or use less than half of it.
    const bool holds =
        settled && any && wanted.lo >= lo && wanted.hi <= hi && wanted.hi - wanted.lo > 0.55 * (hi - lo);
    if (holds)
        return;
    lo = wanted.lo;
    hi = wanted.hi;
}

void Chart::Private::applyRanges()
{
    x->setScaleType(group->logX() ? QCPAxis::stLogarithmic : QCPAxis::stLinear);
    x->setRange(group->lo(), group->hi());
    y->setRange(yView.lo, yView.hi);
    right->setRange(yView.rightLo, yView.rightHi);
}

void Chart::Private::refreshLegend()
{
    for (auto &each : series) {
        if (!each->ownValue || each->model.empty())
            continue;
        const auto &values = each->model.y();
        each->legend->setValue(formatShort(values.back(), each->spec.unit));
    }
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
    if (reference && *reference >= yView.lo && *reference <= yView.hi) {
        QPen pen(theme.color(Token::Text), 1);
        pen.setDashPattern({5, 4});
        painter->setPen(pen);
        const double py = std::floor(y->coordToPixel(*reference)) + 0.5;
        painter->drawLine(QPointF(area.left(), py), QPointF(area.right(), py));
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

YView Chart::yView() const { return d->yView; }

void Chart::setYView(const YView &view)
{
    d->yView = view;
    d->settled = view.moved;
    dataChanged();
}

void Chart::fitY()
{
    d->yView.moved = false;
    d->settled = false;
    dataChanged();
}

bool Chart::clipsOutliers() const { return d->clip; }

std::vector<Sample> Chart::drawn(int series, SeriesModel::Which which) const
{
    const auto &each = *d->series[static_cast<std::size_t>(series)];
    return which == SeriesModel::Which::Raw ? each.drawnRaw : each.drawnSmooth;
}

QPointF Chart::pixelOf(double x, double y) const { return {d->x->coordToPixel(x), d->y->coordToPixel(y)}; }
QWidget *Chart::canvas() const { return d->plot; }
QSize Chart::plotSize() const { return d->plot->axisRect()->size(); }

void Chart::zoomAt(const QPointF &pixel, double factor, bool zoomX, bool zoomY)
{
    // A run of wheel notches is one step of the zoom stack.
    d->group->remember(d->lastWheel.isValid() && d->lastWheel.elapsed() < 400);
    d->lastWheel.start();
    if (zoomY) {
        d->y->scaleRange(factor, d->y->pixelToCoord(pixel.y()));
        d->right->scaleRange(factor, d->right->pixelToCoord(pixel.y()));
    }
    d->yView = {true, d->y->range().lower, d->y->range().upper, d->right->range().lower,
                d->right->range().upper};
    d->group->markMoved();
    if (zoomX) {
        d->x->scaleRange(factor, d->x->pixelToCoord(pixel.x()));
        d->group->zoomX(d->x->range().lower, d->x->range().upper);
    }
    dataChanged();
}

void Chart::zoomToBox(const QRectF &pixels)
{
    d->group->remember();
    const QRectF box = pixels.normalized();
    const bool byX = box.width() >= 8;
    const bool byY = box.height() >= 8;
    d->yView.moved = true;
    if (byY) {
        d->yView.lo = d->y->pixelToCoord(box.bottom());
        d->yView.hi = d->y->pixelToCoord(box.top());
        d->yView.rightLo = d->right->pixelToCoord(box.bottom());
        d->yView.rightHi = d->right->pixelToCoord(box.top());
    }
    d->group->markMoved();
    if (byX)
        d->group->zoomX(d->x->pixelToCoord(box.left()), d->x->pixelToCoord(box.right()));
    dataChanged();
}

void Chart::Private::press(QMouseEvent *event)
{
    q->setFocus(Qt::MouseFocusReason);
    const QPoint at = event->position().toPoint();
    if (event->button() == Qt::MiddleButton
        || (event->button() == Qt::LeftButton && event->modifiers() & Qt::ControlModifier)) {
        panning = true;
        panLast = at;
        group->remember();
    } else if (event->button() == Qt::LeftButton) {
        pressed = at;
    }
}

void Chart::Private::move(QMouseEvent *event)
{
    const QPoint at = event->position().toPoint();
    const QRect area = plot->axisRect()->rect();
    if (panning) {
        const double dx = x->pixelToCoord(panLast.x()) - x->pixelToCoord(at.x());
        const double dy = y->pixelToCoord(panLast.y()) - y->pixelToCoord(at.y());
        panLast = at;
        if (left.scale == AxisSpec::Scale::Linear) {
            yView.lo += dy;
            yView.hi += dy;
        }
        yView.moved = true;
        group->markMoved();
        group->zoomX(group->lo() + dx, group->hi() + dx);
        return;
    }
    if (pressed && (at - *pressed).manhattanLength() >= dragThreshold) {
        QRect drag = QRect(*pressed, at).normalized() & area;
        // Nearly straight drags zoom one axis only.
        if (std::abs(at.y() - pressed->y()) < 8)
            drag = QRect(drag.left(), area.top(), drag.width(), area.height());
        else if (std::abs(at.x() - pressed->x()) < 8)
            drag = QRect(area.left(), drag.top(), area.width(), drag.height());
        box = drag;
    }
    if (area.contains(at) && group->hasData())
        group->setCursor(x->pixelToCoord(at.x()), q, at.y());
    else if (group->cursorSource() == q)
        group->setCursor(std::nullopt);
}

void Chart::Private::release(QMouseEvent *)
{
    panning = false;
    if (pressed && !box.isNull()) {
        const QRect zoom = box;
        const QRect area = plot->axisRect()->rect();
        box = {};
        pressed.reset();
        // A full-height or full-width box zooms the other axis only.
        QRectF wanted = zoom;
        if (zoom.height() >= area.height())
            wanted.setHeight(0);
        if (zoom.width() >= area.width())
            wanted.setWidth(0);
        if (wanted.width() >= 8 || wanted.height() >= 8)
            q->zoomToBox(wanted);
    }
    pressed.reset();
    box = {};
    plot->layer(QStringLiteral("overlay"))->replot();
}

void Chart::Private::wheel(QWheelEvent *event)
{
    const QPoint delta = event->angleDelta();
    const int notches = delta.y() != 0 ? delta.y() : delta.x();
    const Qt::KeyboardModifiers keys = event->modifiers();
    if (notches == 0 || !group->hasData()
        || !plot->axisRect()->rect().contains(event->position().toPoint())) {
        event->ignore();
        return;
    }
    q->zoomAt(event->position(), std::pow(0.85, notches / 120.0), !(keys & Qt::ControlModifier),
              !(keys & Qt::ShiftModifier));
    event->accept();
}

const Chart::Private::Series *Chart::Private::guide() const
{
    const Series *best = nullptr;
    for (const auto &each : series) {
        if (each->shown && (!best || each->model.size() > best->model.size()))
            best = each.get();
    }
    return best && !best->model.empty() ? best : nullptr;
}

void Chart::Private::moveCursor(int samples)
{
    const Series *along = guide();
    if (!along)
        return;
    const auto last = static_cast<std::ptrdiff_t>(along->model.size()) - 1;
    // Without a cursor the keys begin at the newest sample; Home and End mean what they say.
    std::ptrdiff_t at =
        group->cursor() ? static_cast<std::ptrdiff_t>(along->model.nearest(*group->cursor())) : last;
    if (group->cursor() || samples < -1'000'000)
        at += samples;
    at = std::clamp<std::ptrdiff_t>(at, 0, last);
    group->setCursor(along->model.x()[static_cast<std::size_t>(at)], q, -1);
}

void Chart::keyPressEvent(QKeyEvent *event)
{
    const int stride = event->modifiers() & Qt::ShiftModifier ? 10 : 1;
    const QRect area = d->plot->axisRect()->rect();
    const auto centre = [&] {
        return QPointF(d->group->cursor() ? d->x->coordToPixel(*d->group->cursor()) : area.center().x(),
                       area.center().y());
    };
    switch (event->key()) {
    case Qt::Key_Left:
        d->moveCursor(-stride);
        return;
    case Qt::Key_Right:
        d->moveCursor(stride);
        return;
    case Qt::Key_Home:
        d->moveCursor(-1'000'000'000);
        return;
    case Qt::Key_End:
        d->moveCursor(1'000'000'000);
        return;
    case Qt::Key_Plus:
    case Qt::Key_Equal:
        zoomAt(centre(), 0.8, true, false);
        return;
    case Qt::Key_Minus:
        zoomAt(centre(), 1.25, true, false);
        return;
    case Qt::Key_Escape:
        if (d->group->cursor()) {
            d->group->setCursor(std::nullopt);
            return;
        }
        break;
    case Qt::Key_Menu:
        menuButton()->showMenu();
        return;
    default:
        break;
    }
    Panel::keyPressEvent(event);
}

void Chart::focusInEvent(QFocusEvent *event)
{
    Panel::focusInEvent(event);
    d->plot->layer(QStringLiteral("overlay"))->replot();
}

void Chart::focusOutEvent(QFocusEvent *event)
{
    Panel::focusOutEvent(event);
    d->plot->layer(QStringLiteral("overlay"))->replot();
}

void Chart::showEvent(QShowEvent *event)
{
    Panel::showEvent(event);
    if (d->dirty)
        d->schedule();
}

void Chart::contextMenuEvent(QContextMenuEvent *event) { d->menu->popup(event->globalPos()); }

std::vector<Chart::Reading> Chart::readings(double x) const
{
    std::vector<Reading> out;
    if (!d->message->text().isEmpty())
        return out;
    const bool here = isPointed();
    double stacked = 0;
    for (const auto &each : d->series) {
        if (!each->shown || each->model.empty())
            continue;
        // What held at that moment: a series of states or rare values shows its last one.
        const bool rare =
            each->spec.draw == SeriesSpec::Draw::Step || each->spec.draw == SeriesSpec::Draw::Points;
        const std::size_t at = rare ? each->model.atOrBefore(x) : each->model.nearest(x);
        if (at >= each->model.size())
            continue;
        Reading reading;
        reading.series = each->spec.longName.isEmpty() ? each->spec.name : each->spec.longName;
        reading.ink = each->spec.ink;
        reading.area = each->spec.draw == SeriesSpec::Draw::Area;
        const double value = each->model.y()[at];
        reading.value = value;
        const bool rate = each->spec.unit == Unit::TokensPerSecond; // the name says the unit
        const auto say = [&](double v) {
            return rate ? formatShort(v, Unit::Count) : formatValue(v, each->spec.unit);
        };
        reading.raw = say(value);
        if (d->smoothing(*each))
            reading.smooth = say(each->model.smooth()[at]);
        double level = value;
        if (reading.area) {
            stacked += value;
            level = stacked - value / 2;
        }
        const double py =
            std::isfinite(level) ? (each->spec.right ? d->right : d->y)->coordToPixel(level) : 1e9;
        reading.distance = here ? std::fabs(py - d->group->cursorY()) : 1e9;
        out.push_back(std::move(reading));
    }
    if (here)
        std::stable_sort(out.begin(), out.end(),
                         [](const Reading &a, const Reading &b) { return a.distance < b.distance; });
    return out;
}

bool Chart::isPointed() const { return d->group->cursorSource() == this && d->group->cursorY() >= 0; }

} // namespace rankyard::ui
