// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "ui/plot/canvas.h"
#include "ui/plot/chart.h"
#include "ui/plot/legend.h"

#include <QElapsedTimer>
#include <QMenu>
#include <QStackedWidget>

namespace rankyard::ui {

QFont tickFont(); ///< 11 px at 100 %
QColor faded(QColor color, double alpha);

struct Chart::Private {
    struct Tail {
        SeriesModel model;
        QCPGraph *graph = nullptr;
    };
    struct Series {
        SeriesSpec spec;
        SeriesModel model;
        QCPGraph *raw = nullptr;
        QCPGraph *smooth = nullptr;
        LegendItem *legend = nullptr;
        bool shown = true;
        bool ownValue = true;
        std::vector<std::unique_ptr<Tail>> tails;
        std::vector<Sample> drawnRaw;
        std::vector<Sample> drawnSmooth;
    };
    struct Note {
        QString name;
        LegendItem *item;
    };
    struct Band {
        std::vector<QPointF> low;
        std::vector<QPointF> high;
    };

    static constexpr int labelPadding = 5; ///< between a vertical axis and its labels

    Private(Chart *chart, ChartGroup *chartGroup);

    void buildMenu();
    void buildPlot();
    void style();
    void styleSeries(Series &each);
    double lineWidth() const;
    void refreshLegend();

    // Drawing, in chart.cpp.
    void schedule();
    void rebuild();
    void settleY(bool right);
    NiceRange autoRange(bool right, bool &any);
    void applyRanges();
    void restack();
    void paintBands(QCPPainter *painter);
    std::optional<double> referencePixel() const; ///< y of the reference line, when it is in view
    void paintMarks(QCPPainter *painter);
    void paintOverlay(QCPPainter *painter);
    ColumnMap columns() const;
    int mostVerticalTicks() const; ///< how many there is room for
    TickSet verticalTicks(const AxisSpec &spec, double lo, double hi) const;
    void settleMargins();
    bool smoothing(const Series &each) const { return each.spec.smooth && each.model.smoothing() > 0; }

    // Input.
    void press(QMouseEvent *event);
    void move(QMouseEvent *event);
    void release(QMouseEvent *event);
    void wheel(QWheelEvent *event);
    void moveCursor(int samples);
    const Series *guide() const; ///< whose samples the keys step through

    QImage picture(double scale);

    Chart *q;
    ChartGroup *group;
    Legend *legend = nullptr;
    QStackedWidget *stack = nullptr;
    QLabel *message = nullptr;
    Canvas *plot = nullptr;
    QCPAxis *x = nullptr;
    QCPAxis *y = nullptr;
    QCPAxis *right = nullptr;
    QMenu *menu = nullptr;
    AxisSpec left;
    std::optional<AxisSpec> rightSpec;
    std::vector<std::unique_ptr<Series>> series;
    QStringList hidden; ///< names
    std::vector<Note> notes;
    std::vector<ChartMark> marks;
    std::optional<double> reference;
    LegendItem *referenceItem = nullptr;
    SeriesModel total;                      ///< sum of the shown areas
    std::vector<Sample> sizes;              ///< of the bands at the drawn samples
    std::vector<std::vector<Sample>> bands; ///< per area series: cumulated tops at the drawn samples
    std::vector<int> bandSeries;
    YView yView;
    bool clip = true;
    int above = 0; ///< drawn samples beyond the automatic range
    bool dirty = true;
    bool scheduled = false;
    bool settled = false; ///< the automatic y range was set once
    double smoothingWeight = 0;

    std::optional<QPoint> pressed;
    QRect box;
    bool panning = false;
    QPoint panLast;
    QElapsedTimer lastWheel;
};

} // namespace rankyard::ui
