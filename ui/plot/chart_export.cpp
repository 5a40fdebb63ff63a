// SPDX-License-Identifier: GPL-3.0-or-later
#include "ui/plot/chart.h"

#include "ui/common/icons.h"
#include "ui/plot/chart_p.h"

#include <QActionGroup>
#include <QClipboard>
#include <QFileDialog>
#include <QGuiApplication>
#include <QSaveFile>
#include <QSvgGenerator>
#include <QToolButton>

#include <algorithm>
#include <charconv>
#include <map>

namespace rankyard::ui {

namespace {

/// The shortest text that reads back as the same double, always with a decimal point.
QByteArray exact(double value)
{
    if (std::isnan(value))
        return "nan";
    if (std::isinf(value))
        return value > 0 ? "inf" : "-inf";
    char text[40];
    const auto end = std::to_chars(text, text + sizeof text, value);
    return QByteArray(text, static_cast<qsizetype>(end.ptr - text));
}

QByteArray quoted(const QString &name)
{
    QByteArray text = name.toUtf8();
    if (text.contains(',') || text.contains('"') || text.contains('\n'))
        text = '"' + text.replace("\"", "\"\"") + '"';
    return text;
}

} // namespace

void Chart::Private::buildMenu()
{
    menu = new QMenu(q);
    QToolButton *button = q->menuButton();
    button->setMenu(menu);
    // Filled when it opens: it shows the state of that moment.
    connect(menu, &QMenu::aboutToShow, q, [this] {
        menu->clear();
        menu->addAction(icon(QStringLiteral("fit")), Chart::tr("Fit view\tF"), q, [this] { group->fit(); });
        QAction *back = menu->addAction(icon(QStringLiteral("back")), Chart::tr("Back\tBackspace"), q,
                                        [this] { group->back(); });
        back->setEnabled(group->canGoBack());
        menu->addAction(icon(QStringLiteral("columns")), Chart::tr("Enlarge or restore\tEnter"), q,
                        [this] { emit q->enlargeRequested(); });
        menu->addSeparator();
        if (left.scale != AxisSpec::Scale::Log2) {
            QAction *log = menu->addAction(Chart::tr("Logarithmic y axis"));
            log->setCheckable(true);
            log->setChecked(left.scale == AxisSpec::Scale::Log10);
            log->setEnabled(bandSeries.empty());
            connect(log, &QAction::toggled, q, [this](bool on) {
                AxisSpec axis = left;
                axis.scale = on ? AxisSpec::Scale::Log10 : AxisSpec::Scale::Linear;
                yView.moved = false;
                q->setLeftAxis(axis);
            });
            QAction *zero = menu->addAction(Chart::tr("Start y at zero"));
            zero->setCheckable(true);
            zero->setChecked(left.zeroBased);
            zero->setEnabled(left.scale == AxisSpec::Scale::Linear && bandSeries.empty());
            connect(zero, &QAction::toggled, q, [this](bool on) {
                AxisSpec axis = left;
                axis.zeroBased = on;
                yView.moved = false;
                q->setLeftAxis(axis);
            });
        }
        QAction *logX = menu->addAction(Chart::tr("Logarithmic x axis, all charts"));
        logX->setCheckable(true);
        logX->setChecked(group->logX());
        connect(logX, &QAction::toggled, q, [this](bool on) { group->setLogX(on); });
        if (left.clipOutliers) {
            QAction *outliers = menu->addAction(Chart::tr("Leave rare peaks out of the range"));
            outliers->setCheckable(true);
            outliers->setChecked(clip);
            connect(outliers, &QAction::toggled, q, [this](bool on) {
                clip = on;
                q->fitY();
            });
        }
        menu->addSeparator();
        menu->addAction(icon(QStringLiteral("copy")), Chart::tr("Copy picture"), q,
                        [this] { q->copyPicture(); });
        menu->addAction(Chart::tr("Copy values"), q,
                        [this] { QGuiApplication::clipboard()->setText(QString::fromUtf8(q->csv())); });
        QMenu *exports = menu->addMenu(icon(QStringLiteral("export")), Chart::tr("Export"));
        const auto ask = [this](const QString &suffix) {
            QString name =
                q->title().toLower().replace(QLatin1Char(' '), QLatin1Char('-')).remove(QLatin1Char(','));
            return QFileDialog::getSaveFileName(q, Chart::tr("Export %1").arg(q->title()), name + suffix);
        };
        for (int scale : {1, 2, 3}) {
            exports->addAction(Chart::tr("PNG, %1×…").arg(scale), q, [this, ask, scale] {
                if (const QString file = ask(QStringLiteral(".png")); !file.isEmpty())
                    q->exportPicture(file, scale);
            });
        }
        exports->addAction(Chart::tr("SVG…"), q, [this, ask] {
            if (const QString file = ask(QStringLiteral(".svg")); !file.isEmpty())
                q->exportSvg(file);
        });
        exports->addAction(Chart::tr("PDF…"), q, [this, ask] {
            if (const QString file = ask(QStringLiteral(".pdf")); !file.isEmpty())
                q->exportPdf(file);
        });
        exports->addAction(Chart::tr("CSV…"), q, [this, ask] {
            if (const QString file = ask(QStringLiteral(".csv")); !file.isEmpty())
                q->exportCsv(file);
        });
    });
}

QImage Chart::Private::picture(double scale)
{
    q->drawNow();
    QImage image(q->size() * scale, QImage::Format_ARGB32_Premultiplied);
    image.setDevicePixelRatio(scale);
    image.fill(Theme::instance().color(Token::Surface));
    QPainter painter(&image);
    // The head as it stands, the plot drawn again for the scale.
    q->render(&painter, {}, {}, QWidget::DrawChildren);
    const QPixmap sharp = plot->toPixmap(plot->width(), plot->height(), scale);
    if (message->text().isEmpty())
        painter.drawPixmap(QRect(plot->mapTo(q, QPoint()), plot->size()), sharp);
    return image;
}

bool Chart::exportPicture(const QString &file, double scale) { return d->picture(scale).save(file, "PNG"); }

void Chart::copyPicture() { QGuiApplication::clipboard()->setImage(d->picture(2)); }

bool Chart::exportSvg(const QString &file)
{
    drawNow();
    QSvgGenerator generator;
    const int head = Theme::instance().scaled(28);
    const QSize size(d->plot->width(), d->plot->height() + head);
    generator.setFileName(file);
    generator.setSize(size);
    generator.setViewBox(QRect(QPoint(), size));
    generator.setTitle(title());
    QCPPainter painter;
    if (!painter.begin(&generator))
        return false;
    const Theme &theme = Theme::instance();
    painter.fillRect(QRect(QPoint(), size), theme.color(Token::Surface));
    painter.setFont(theme.font(FontRole::Strong));
    painter.setPen(theme.color(Token::Text));
    painter.drawText(QRectF(12, 0, size.width(), head), Qt::AlignVCenter | Qt::AlignLeft, title());
    double left = 12 + QFontMetrics(theme.font(FontRole::Strong)).horizontalAdvance(title()) + 12;
    painter.setFont(theme.font(FontRole::Small));
    const QFontMetrics metrics(theme.font(FontRole::Small));
    for (const auto &series : d->series) {
        if (!series->shown)
            continue;
        painter.setPen(Qt::NoPen);
        painter.setBrush(theme.color(series->spec.ink));
        painter.drawEllipse(QPointF(left + 4, head / 2.0), 4, 4);
        const QString text = series->spec.name + QLatin1Char(' ') + series->legend->value();
        painter.setPen(theme.color(Token::Muted));
        painter.drawText(QRectF(left + 14, 0, size.width(), head), Qt::AlignVCenter | Qt::AlignLeft, text);
        left += 14 + metrics.horizontalAdvance(text) + 12;
    }
    painter.translate(0, head);
    painter.setMode(QCPPainter::pmVectorized);
    painter.setMode(QCPPainter::pmNoCaching);
    d->plot->toPainter(&painter, d->plot->width(), d->plot->height());
    return painter.end();
}

bool Chart::exportPdf(const QString &file)
{
    drawNow();
    return d->plot->savePdf(file, d->plot->width(), d->plot->height(), QCP::epNoCosmetic,
                            QStringLiteral("Rankyard"), title());
}

QByteArray Chart::csv() const
{
    QByteArray out = quoted(d->group->xName());
    // Series may stand at different xs (validation every 50 steps): one row per x that any has.
    std::map<double, std::vector<QByteArray>> rows;
    std::size_t width = 0;
    for (const auto &series : d->series) {
        const bool smoothed = d->smoothing(*series);
        out += ',' + quoted(series->spec.name);
        if (smoothed)
            out += ',' + quoted(series->spec.name + QStringLiteral(" smoothed"));
        const std::size_t next = width + (smoothed ? 2 : 1);
        for (std::size_t at = 0; at < series->model.size(); ++at) {
            auto &row = rows[series->model.x()[at]];
            row.resize(std::max(row.size(), next));
            row[width] = exact(series->model.y()[at]);
            if (smoothed)
                row[width + 1] = exact(series->model.smooth()[at]);
        }
        width = next;
    }
    out += '\n';
    for (auto &[x, row] : rows) {
        row.resize(width);
        out += exact(x);
        for (const QByteArray &cell : row)
            out += ',' + cell;
        out += '\n';
    }
    return out;
}

bool Chart::exportCsv(const QString &file) const
{
    QSaveFile out(file);
    return out.open(QIODevice::WriteOnly) && out.write(csv()) >= 0 && out.commit();
}

} // namespace rankyard::ui
