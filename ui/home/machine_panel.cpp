// SPDX-License-Identifier: GPL-3.0-or-later
#include "ui/home/machine_panel.h"

#include "ui/common/format.h"

#include <QFile>
#include <QHBoxLayout>
#include <QPainter>
#include <QTimer>
#include <QVBoxLayout>

#include <algorithm>

namespace rankyard::ui {

namespace {

QStringList linesOf(const char *path)
{
    QFile file(QString::fromLatin1(path));
    if (!file.open(QIODevice::ReadOnly))
        return {};
    return QString::fromUtf8(file.readAll()).split(QLatin1Char('\n'));
}

} // namespace

MachineState readMachine()
{
    MachineState state;
    for (const QString &line : linesOf("/proc/cpuinfo")) {
        if (line.startsWith(QLatin1String("model name"))) {
            state.processor = line.section(QLatin1Char(':'), 1).simplified();
            break;
        }
    }
    for (const QString &line : linesOf("/proc/meminfo")) {
        const QStringList words = line.simplified().split(QLatin1Char(' '));
        if (words.value(0) == QLatin1String("MemTotal:"))
            state.memoryTotal = words.value(1).toLongLong() * 1024;
        else if (words.value(0) == QLatin1String("MemAvailable:"))
            state.memoryAvailable = words.value(1).toLongLong() * 1024;
    }
    for (const QString &line : linesOf("/proc/stat")) {
        if (!line.startsWith(QLatin1String("cpu")) || line.startsWith(QLatin1String("cpu ")))
            continue;
        const QStringList words = line.simplified().split(QLatin1Char(' '));
        std::int64_t all = 0;
        for (int i = 1; i < words.size() && i <= 8; ++i)
            all += words[i].toLongLong();
        state.all.push_back(all);
        state.busy.push_back(all - words.value(4).toLongLong() - words.value(5).toLongLong());
    }
    state.cores = static_cast<int>(state.all.size());
    state.load = linesOf("/proc/loadavg").value(0).section(QLatin1Char(' '), 0, 0).toDouble();
    return state;
}

class MachinePanel::Area : public QWidget
{
public:
    using QWidget::QWidget;
    MachineState state;
    std::vector<double> use;

    QSize sizeHint() const override { return {240, Theme::instance().scaled(138) + 12}; }

protected:
    void paintEvent(QPaintEvent *) override
    {
        const Theme &theme = Theme::instance();
        QPainter painter(this);
        painter.setRenderHint(QPainter::Antialiasing);
        const QFont small = theme.font(FontRole::Small);
        const QFont mono = theme.font(FontRole::Mono);
        const int line = theme.scaled(22);
        int top = theme.scaled(4);
        painter.setFont(small);
        painter.setPen(theme.color(Token::Muted));
        painter.drawText(QRect(12, top, width() - 24, line), Qt::AlignVCenter | Qt::AlignLeft,
                         QFontMetrics(small).elidedText(state.processor, Qt::ElideRight, width() - 24));
        top += line + 6;
        const auto row = [&](const QString &name, const QString &value) {
            painter.setFont(small);
            painter.setPen(theme.color(Token::Muted));
            painter.drawText(QRect(12, top, width() - 24, line), Qt::AlignVCenter | Qt::AlignLeft, name);
            painter.setFont(mono);
            painter.setPen(theme.color(Token::Text));
            painter.drawText(QRect(12, top, width() - 24, line), Qt::AlignVCenter | Qt::AlignRight, value);
            top += line;
        };
        const auto bar = [&](const QRectF &track, double t, Token tone) {
            painter.setPen(Qt::NoPen);
            painter.setBrush(theme.color(Token::Border));
            painter.drawRoundedRect(track, 2, 2);
            painter.setBrush(theme.color(tone));
            painter.drawRoundedRect(QRectF(track.left(), track.top(),
                                           std::max(3.0, track.width() * std::clamp(t, 0.0, 1.0)),
                                           track.height()),
                                    2, 2);
        };
        double mean = 0;
        for (double each : use)
            mean += each / static_cast<double>(use.size());
        row(tr("%n cores", nullptr, state.cores), tr("%1 busy").arg(formatShort(mean * 100, Unit::Percent)));
        const int shown = std::clamp<int>(static_cast<int>(use.size()), 1, 32);
        const double gap = 3;
        const double each = (width() - 24 - gap * (shown - 1)) / shown;
        for (int core = 0; core < shown && core < static_cast<int>(use.size()); ++core) {
            const double t = use[static_cast<std::size_t>(core)];
            bar(QRectF(12 + core * (each + gap), top + 3, each, 5), t, t > 0.9 ? Token::Warn : Token::Accent);
        }
        top += 20;
        const double used = static_cast<double>(state.memoryTotal - state.memoryAvailable);
        const double total = static_cast<double>(state.memoryTotal);
        row(tr("Memory"),
            tr("%1 of %2").arg(formatValue(used, Unit::Bytes), formatValue(total, Unit::Bytes)));
        const double part = total > 0 ? used / total : 0;
        bar(QRectF(12, top + 3, width() - 24, 5), part,
            part > 0.9        ? Token::Bad
                : part > 0.75 ? Token::Warn
                              : Token::Accent);
        top += 20;
        row(tr("Load, one minute"), QString::number(state.load, 'f', 2));
    }
};

MachinePanel::MachinePanel(QWidget *parent)
    : Panel(tr("This machine"), parent),
      m_area(new Area(this)),
      m_timer(new QTimer(this))
{
    headLayout()->addStretch(1);
    body()->addWidget(m_area);
    m_area->setAccessibleName(tr("Processor and memory of this machine"));
    connect(m_timer, &QTimer::timeout, this, [this] {
        if (isVisible())
            refresh();
    });
    m_timer->start(2000);
    refresh();
}

void MachinePanel::refresh()
{
    const MachineState now = readMachine();
    std::vector<double> use(now.all.size(), 0);
    for (std::size_t core = 0; core < use.size(); ++core) {
        const bool known = core < m_before.all.size();
        const double all = static_cast<double>(now.all[core] - (known ? m_before.all[core] : 0));
        const double busy = static_cast<double>(now.busy[core] - (known ? m_before.busy[core] : 0));
        use[core] = all > 0 ? busy / all : 0;
    }
    m_before = now;
    m_area->state = now;
    m_area->use = use;
    m_area->update();
}

} // namespace rankyard::ui
