// SPDX-License-Identifier: GPL-3.0-or-later
#include "ui/plot/heat_map.h"

#include "ui/plot/legend.h"
#include "ui/plot/ticks.h"

#include <QHBoxLayout>
#include <QMouseEvent>
#include <QPainter>
#include <QVBoxLayout>

#include <algorithm>
#include <cmath>

namespace rankyard::ui {

namespace {

constexpr int rampWidth = 32;

/// Colour of t in [0, 1].
QColor shade(double t)
{
    const Theme &theme = Theme::instance();
    return mixed(theme.color(Token::Surface), theme.color(Ink::series(0)), 0.14 + 0.82 * t);
}

} // namespace

/// What the shades mean: a ramp between its two values.
class HeatMap::Scale : public QWidget
{
public:
    Scale(Unit unit, QWidget *parent) : QWidget(parent), m_unit(unit)
    {
        setToolTip(HeatMap::tr("Values beyond the ends have the end's shade"));
    }

    void setRange(double lo, double hi)
    {
        if (lo == m_lo && hi == m_hi)
            return;
        m_lo = lo;
        m_hi = hi;
        updateGeometry();
        update();
    }

    QSize sizeHint() const override
    {
        const Theme &theme = Theme::instance();
        if (m_hi <= m_lo)
            return {0, theme.scaled(20)};
        const QFontMetrics metrics(theme.font(FontRole::MonoSmall));
        return {metrics.horizontalAdvance(low() + high()) + theme.scaled(rampWidth) + 12, theme.scaled(20)};
    }
    QSize minimumSizeHint() const override { return sizeHint(); }

protected:
    void paintEvent(QPaintEvent *) override
    {
        if (m_hi <= m_lo)
            return;
        const Theme &theme = Theme::instance();
        QPainter painter(this);
        painter.setFont(theme.font(FontRole::MonoSmall));
        painter.setPen(theme.color(Token::Muted));
        const int ramp = theme.scaled(rampWidth);
        const int left = QFontMetrics(painter.font()).horizontalAdvance(low()) + 6;
        painter.drawText(rect(), Qt::AlignLeft | Qt::AlignVCenter, low());
        painter.drawText(rect(), Qt::AlignRight | Qt::AlignVCenter, high());
        const int tall = theme.scaled(8);
        for (int x = 0; x < ramp; ++x)
            painter.fillRect(left + x, (height() - tall) / 2, 1, tall,
                             shade(static_cast<double>(x) / (ramp - 1)));
    }

private:
    /// Without the unit where it is that of the other end.
    QString low() const
    {
        const QString text = formatValue(m_lo, m_unit);
        const qsizetype blank = text.lastIndexOf(QLatin1Char(' '));
        return blank > 0 && high().endsWith(text.mid(blank)) ? text.left(blank) : text;
    }
    QString high() const { return formatValue(m_hi, m_unit); }

    Unit m_unit;
    double m_lo = 0;
    double m_hi = 0;
};

class HeatMap::Area : public QWidget
{
public:
    explicit Area(HeatMap *map) : QWidget(map), m_map(map)
    {
        setMouseTracking(true);
        setMinimumSize(60, 40);
    }

    QRect field() const
    {
        const Theme &theme = Theme::instance();
        return rect().adjusted(theme.scaled(48), theme.scaled(8), -14, -theme.scaled(22));
    }

    double toPixel(double x) const
    {
        const ChartGroup &group = *m_map->m_group;
        const QRect area = field();
        const double t = group.logX() ? std::log(x / group.lo()) / std::log(group.hi() / group.lo())
                                      : (x - group.lo()) / (group.hi() - group.lo());
        return area.left() + t * area.width();
    }

    double toX(double pixel) const
    {
        const ChartGroup &group = *m_map->m_group;
        const double t = (pixel - field().left()) / std::max(1, field().width());
        return group.logX() ? group.lo() * std::pow(group.hi() / group.lo(), t)
                            : group.lo() + t * (group.hi() - group.lo());
    }

protected:
    void paintEvent(QPaintEvent *) override
    {
        const Theme &theme = Theme::instance();
        QPainter painter(this);
        const QRect area = field();
        QFont font = theme.font(FontRole::Small);
        font.setPixelSize(theme.scaled(11));
        painter.setFont(font);
        const int ranks = m_map->ranks();
        if (ranks == 0 || area.width() < 4) {
            painter.setFont(theme.font(FontRole::Small));
            painter.setPen(theme.color(Token::Muted));
            painter.drawText(QRectF(area), Qt::AlignCenter, HeatMap::tr("no steps"));
            return;
        }
        paintCells(painter, area, ranks);
        painter.setPen(theme.color(Token::Muted));
        const double pitch = static_cast<double>(area.height()) / ranks;
        const int every = std::max(1, static_cast<int>(std::ceil(QFontMetrics(font).height() / pitch)));
        for (int rank = 0; rank < ranks; rank += every) {
            const QRectF row(0, area.top() + rank * pitch, area.left() - 6, pitch);
            painter.drawText(row, Qt::AlignRight | Qt::AlignVCenter, QString::number(rank));
        }
        const ChartGroup &group = *m_map->m_group;
        const int most = std::max(2, area.width() / theme.scaled(72));
        const TickSet ticks = group.logX() ? decadeTicks(group.lo(), group.hi(), most)
                                           : linearTicks(group.lo(), group.hi(), group.xUnit(), most);
        for (std::size_t i = 0; i < ticks.at.size(); ++i) {
            const double px = toPixel(ticks.at[i]);
            painter.drawText(QRectF(px - 60, area.bottom() + 6, 120, theme.scaled(14)),
                             Qt::AlignHCenter | Qt::AlignVCenter, ticks.label[i]);
        }
        if (const auto cursor = group.cursor(); cursor && *cursor >= group.lo() && *cursor <= group.hi()) {
            QColor line = theme.color(Token::Text);
            line.setAlphaF(0.55f);
            painter.setPen(QPen(line, 1));
            const double px = std::floor(toPixel(*cursor)) + 0.5;
            painter.drawLine(QPointF(px, area.top()), QPointF(px, area.bottom()));
        }
    }

    void paintCells(QPainter &painter, const QRect &area, int ranks)
    {
        const ChartGroup &group = *m_map->m_group;
        const Theme &theme = Theme::instance();
        const ColumnMap map{group.lo(), group.hi(), group.logX(), std::max(1, area.width() / 2)};
        std::vector<std::vector<std::size_t>> picks(static_cast<std::size_t>(ranks));
        std::vector<double> values;
        for (int rank = 0; rank < ranks; ++rank) {
            const SeriesModel &model = m_map->m_rows[static_cast<std::size_t>(rank)];
            auto &at = picks[static_cast<std::size_t>(rank)];
            model.peaks(map, at);
            for (std::size_t index : at) {
                if (std::isfinite(model.y()[index]))
                    values.push_back(model.y()[index]);
            }
        }
        if (values.empty())
            return;
        // The scale spans the usual values; what lies beyond has the end colour. It never spans less than a quarter of the
        // value, so that ranks that are alike look alike.
        const auto quantile = [&values](double q) {
            const auto at = static_cast<std::ptrdiff_t>(q * static_cast<double>(values.size() - 1));
            std::nth_element(values.begin(), values.begin() + at, values.end());
            return values[static_cast<std::size_t>(at)];
        };
        const double lo = quantile(0.02);
        const double hi = std::max(quantile(0.98), lo * 1.25 + 1e-12);
        m_map->m_scale->setRange(lo, hi);
        const double pitch = static_cast<double>(area.height()) / ranks;
        const double gap = pitch >= 8 ? std::min(4.0, pitch * 0.12) : 0;
        painter.setRenderHint(QPainter::Antialiasing, false);
        painter.setClipRect(area);
        for (int rank = 0; rank < ranks; ++rank) {
            const SeriesModel &model = m_map->m_rows[static_cast<std::size_t>(rank)];
            const auto &at = picks[static_cast<std::size_t>(rank)];
            const double top = area.top() + rank * pitch + gap / 2;
            for (std::size_t k = 0; k < at.size(); ++k) {
                const double value = model.y()[at[k]];
                const double left = std::floor(toPixel(model.x()[at[k]]));
                const double next = k + 1 < at.size() ? std::floor(toPixel(model.x()[at[k + 1]]))
                    : k > 0 ? left + (left - std::floor(toPixel(model.x()[at[k - 1]])))
                            : left + 4;
                const double t = std::isfinite(value) ? std::clamp((value - lo) / (hi - lo), 0.0, 1.0) : 0;
                const QColor color = std::isfinite(value) ? shade(t) : theme.color(Token::Bad);
                painter.fillRect(QRectF(left, top, std::max(1.0, next - left), pitch - gap), color);
            }
        }
        painter.setClipping(false);
    }

    void mouseMoveEvent(QMouseEvent *event) override
    {
        if (field().contains(event->position().toPoint()) && m_map->m_group->hasData())
            m_map->m_group->setCursor(toX(event->position().x()), m_map, -1);
        else if (m_map->m_group->cursorSource() == m_map)
            m_map->m_group->setCursor(std::nullopt);
    }

    void leaveEvent(QEvent *) override
    {
        if (m_map->m_group->cursorSource() == m_map)
            m_map->m_group->setCursor(std::nullopt);
    }

    void mouseDoubleClickEvent(QMouseEvent *) override { m_map->m_group->fit(); }

private:
    HeatMap *m_map;
};

HeatMap::HeatMap(const QString &title, Unit unit, ChartGroup *group, QWidget *parent)
    : Panel(title, parent),
      m_group(group),
      m_unit(unit),
      m_area(new Area(this)),
      m_legend(new Legend(this))
{
    headLayout()->addWidget(m_legend, 1);
    m_scale = new Scale(unit, this);
    headLayout()->addWidget(m_scale);
    m_note = m_legend->add(tr("step time"), Ink::of(Token::Muted), LegendItem::Mark::None, false);
    m_note->setSaysItself(true);
    body()->addWidget(m_area, 1);
    connect(group, &ChartGroup::viewChanged, this, &HeatMap::dataChanged);
    connect(group, &ChartGroup::cursorMoved, m_area, qOverload<>(&QWidget::update));
    group->join(this, {[] { return YView(); }, [](const YView &) {}, [] {}});
}

void HeatMap::clear()
{
    m_rows.clear();
    m_scale->setRange(0, 0); // of the run before
    dataChanged();
}

SeriesModel &HeatMap::model(int rank)
{
    if (rank >= ranks())
        m_rows.resize(static_cast<std::size_t>(rank) + 1);
    return m_rows[static_cast<std::size_t>(rank)];
}

void HeatMap::dataChanged()
{
    summarise();
    m_area->update();
}

void HeatMap::summarise()
{
    m_slowest = -1;
    std::vector<double> means;
    for (const SeriesModel &row : m_rows) {
        double sum = 0;
        int count = 0;
        // The recent past says who is slow now.
        const std::size_t from = row.size() > 200 ? row.size() - 200 : 0;
        for (std::size_t at = from; at < row.size(); ++at) {
            if (std::isfinite(row.y()[at])) {
                sum += row.y()[at];
                ++count;
            }
        }
        means.push_back(count > 0 ? sum / count : 0);
    }
    if (means.size() < 2) {
        m_note->setValue({});
        return;
    }
    const auto worst = std::max_element(means.begin(), means.end());
    std::vector<double> others(means);
    others.erase(others.begin() + (worst - means.begin()));
    std::nth_element(others.begin(), others.begin() + static_cast<std::ptrdiff_t>(others.size() / 2),
                     others.end());
    const double median = others[others.size() / 2];
    m_slowest = static_cast<int>(worst - means.begin());
    const double over = median > 0 ? (*worst / median - 1) * 100 : 0;
    m_note->setValue(over < 0.5 ? tr("all alike")
                                : tr("r%1 +%2 %").arg(m_slowest).arg(QString::number(over, 'f', 1)));
}

void HeatMap::restyle()
{
    Panel::restyle();
    if (m_area)
        m_area->update();
}

} // namespace rankyard::ui
