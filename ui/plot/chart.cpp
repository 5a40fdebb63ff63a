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
    ticker(y, [this](double lo, double hi) { return verticalTicks(left, lo, hi); });
    ticker(right,
           [this](double lo, double hi) { return verticalTicks(rightSpec.value_or(AxisSpec{}), lo, hi); });
    for (QCPAxis *axis : {x, y, right}) {
        axis->setTickLength(0, 0);
        axis->setNumberFormat(QStringLiteral("g")); // labels are ours: no powers of ten made of them
        axis->setSubTicks(false);
        axis->setTickPen(Qt::NoPen);
        axis->setBasePen(Qt::NoPen);
        axis->setTickLabelPadding(labelPadding);
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
    settleMargins();
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

QString Chart::legendValue(int series) const
{
    return d->series[static_cast<std::size_t>(series)]->legend->value();
}

void Chart::setNote(const QString &name, const QString &value, bool saysItself)
{
    for (Private::Note &note : d->notes) {
        if (note.name == name) {
            note.item->setValue(value);
            return;
        }
    }
    LegendItem *item = d->legend->add(name, Ink::of(Token::Muted), LegendItem::Mark::None, false);
    item->setSaysItself(saysItself);
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
