// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "ui/common/format.h"
#include "ui/common/panel.h"
#include "ui/plot/chart_group.h"
#include "ui/plot/series_model.h"

#include <QSize>

#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace rankyard::ui {

struct SeriesSpec {
    enum class Draw { Line, Step, Area, Points };

    QString name;
    Ink ink;
    Unit unit = Unit::Number;
    Draw draw = Draw::Line;
    bool smooth = false; ///< raw faint, the debiased average on top
    bool right = false;  ///< on the right axis
    bool dashed = false;
    QString tip{};
    QString longName{}; ///< in value tables, where the chart's title is not beside it; empty: name
};

struct AxisSpec {
    Unit unit = Unit::Number;
    enum class Scale { Linear, Log10, Log2 } scale = Scale::Linear;
    bool zeroBased = false;
    bool clipOutliers = false; ///< rare peaks leave the automatic range and are marked at the edge
};

/// A line at an x: overflow, restart, checkpoint.
struct ChartMark {
    double x = 0;
    Ink ink;
    QString text;
};

/// One chart: a head with title, legend with last values and a menu; below it the plot. Data live in SeriesModels and are
/// decimated to the pixels when drawn. All x ranges, the cursor and the zoom stack are the group's. GUI thread.
///
/// Wheel zooms at the cursor (Shift: x only, Ctrl: y only), a drag zooms to the box, Ctrl or middle drag pans, double click fits. Keys: left and
/// right move the cursor, + and − zoom; the page has the rest.
class Chart : public Panel
{
    Q_OBJECT
public:
    Chart(const QString &title, ChartGroup *group, QWidget *parent = nullptr);
    ~Chart() override;

    int addSeries(const SeriesSpec &spec);
    void clearSeries();
    int seriesCount() const;
    const SeriesSpec &spec(int series) const;
    SeriesModel &model(int series);
    const SeriesModel &model(int series) const;
    /// A line of the series that is void but worth seeing (steps that a restart ran again): faint, dashed, behind it, without a
    /// part in ranges, values and exports. The chart owns it until the series are cleared.
    SeriesModel &addTail(int series);
    int tailCount(int series) const;
    bool isShown(int series) const;
    void setShown(int series, bool shown);
    /// Names of series that are not shown. They outlive the series: one that comes again under its name stays hidden.
    QStringList hidden() const;
    void setHidden(const QStringList &names);
    /// Last value in the legend: the chart's own unless one is given.
    void setLegendValue(int series, const QString &value);
    QString legendValue(int series) const;
    /// A figure in the head that is no series: "hidden 86 %". Replaces the one of that name. `saysItself`: in a narrow head the
    /// value stands without the name.
    void setNote(const QString &name, const QString &value, bool saysItself = false);

    void setLeftAxis(const AxisSpec &axis);
    void setRightAxis(const std::optional<AxisSpec> &axis);
    const AxisSpec &leftAxis() const;
    void setMarks(std::vector<ChartMark> marks);
    const std::vector<ChartMark> &marks() const;
    /// A dashed horizontal line: prediction or capacity.
    void setReference(const QString &name, std::optional<double> y);
    std::optional<double> reference() const;
    /// Stands in place of the plot; empty: the plot.
    void setMessage(const QString &message);
    QString message() const;
    bool setSmoothing(double weight);

    /// After models or marks changed. Draws at the next turn of the event loop, only while visible.
    void dataChanged();
    void drawNow();

    /// What the last drawing holds, for tests: samples of a series after decimation.
    std::vector<Sample> drawn(int series, SeriesModel::Which which) const;
    YView yView() const;
    void setYView(const YView &view);
    void fitY();
    bool clipsOutliers() const;
    /// Pixel of a value, in the canvas.
    QPointF pixelOf(double x, double y) const;
    /// The widget that takes the mouse.
    QWidget *canvas() const;
    QSize plotSize() const;

    /// Zooms by `factor` (< 1: closer) at a place in the canvas.
    void zoomAt(const QPointF &pixel, double factor, bool x, bool y);
    void zoomToBox(const QRectF &pixels);

    bool exportPicture(const QString &file, double scale); ///< .png
    bool exportSvg(const QString &file);
    bool exportPdf(const QString &file);
    bool exportCsv(const QString &file) const;
    QByteArray csv() const; ///< step, then raw and smoothed of every series; decimal points
    void copyPicture();

    /// Values at x as they are stored: nearest sample, or the last one before for states and rare values. Nearest to the pointer
    /// first when it is in this chart.
    struct Reading {
        QString series;
        QString raw;
        QString smooth;
        Ink ink;
        bool area = false;
        double value = 0;
        double distance = 0;
    };
    std::vector<Reading> readings(double x) const;
    bool isPointed() const; ///< the pointer is in this chart

signals:
    void drawnAgain();
    void enlargeRequested();

protected:
    void keyPressEvent(QKeyEvent *event) override;
    void focusInEvent(QFocusEvent *event) override;
    void focusOutEvent(QFocusEvent *event) override;
    void showEvent(QShowEvent *event) override;
    void contextMenuEvent(QContextMenuEvent *event) override;
    void restyle() override;

private:
    struct Private;
    std::unique_ptr<Private> d;
};

} // namespace rankyard::ui
