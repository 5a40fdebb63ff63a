// SPDX-License-Identifier: GPL-3.0-or-later
// What happened in a run, on the lane and in the charts.
#include "ui/monitor/monitor_charts.h"

#include <QCoreApplication>

#include <algorithm>
#include <optional>

namespace rankyard::ui {

namespace {

/// A text of the event's detail; empty when it is absent or no text.
QString detailOf(const telemetry::EventRecord &event, const char *key)
{
    if (!event.detail.is_object())
        return {};
    const auto found = event.detail.find(key);
    return found != event.detail.end() && found->is_string()
        ? QString::fromStdString(found->get<std::string>())
        : QString();
}

struct EventLook {
    const char *text; ///< %1: the step
    Token tone;
    int shape;
    int weight;
};

std::optional<EventLook> lookOf(const telemetry::EventRecord &event)
{
    if (event.kind == "checkpoint" && event.detail.contains("error"))
        return EventLook{QT_TRANSLATE_NOOP("Events", "checkpoint %1 failed"), Token::Bad, 1, 6};
    if (event.kind == "checkpoint")
        return EventLook{QT_TRANSLATE_NOOP("Events", "checkpoint %1"), Token::Good, 1, 3};
    if (event.kind == "restart")
        return EventLook{QT_TRANSLATE_NOOP("Events", "restart %1"), Token::Warn, 3, 5};
    if (event.kind == "gap")
        return EventLook{QT_TRANSLATE_NOOP("Events", "records lost %1"), Token::Warn, 2, 4};
    if (event.kind == "error")
        return EventLook{QT_TRANSLATE_NOOP("Events", "error %1"), Token::Bad, 2, 8};
    if (event.kind == "note")
        return EventLook{QT_TRANSLATE_NOOP("Events", "note %1"), Token::Muted, 0, 2};
    if (event.kind != "state")
        return std::nullopt; // overflows come from the steps themselves
    // Start and a good end are said by the head; the lane has what happened between.
    const QString to = detailOf(event, "to");
    if (to == QLatin1String("paused"))
        return EventLook{QT_TRANSLATE_NOOP("Events", "paused %1"), Token::Warn, 3, 4};
    if (to == QLatin1String("degraded"))
        return EventLook{QT_TRANSLATE_NOOP("Events", "degraded %1"), Token::Warn, 3, 4};
    if (to == QLatin1String("failed") || to == QLatin1String("failed-resumable"))
        return EventLook{QT_TRANSLATE_NOOP("Events", "failed %1"), Token::Bad, 2, 8};
    if (to == QLatin1String("lost"))
        return EventLook{QT_TRANSLATE_NOOP("Events", "lost %1"), Token::Bad, 2, 8};
    return std::nullopt;
}

std::optional<EventLane::Event> markOf(const telemetry::EventRecord &event)
{
    const auto look = lookOf(event);
    if (!look)
        return std::nullopt;
    EventLane::Event mark;
    mark.text = QCoreApplication::translate("Events", look->text).arg(formatStep(event.step));
    if (event.kind == "note" && !detailOf(event, "text").isEmpty())
        mark.text = detailOf(event, "text");
    mark.detail = QString::fromStdString(dumpJson(event.detail));
    mark.ink = Ink::of(look->tone);
    mark.shape = look->shape;
    mark.weight = look->weight;
    return mark;
}

} // namespace

void MonitorCharts::updateEvals()
{
    const auto &evals = m_run->evals();
    if (evals.size() < m_evalsDone) {
        m_loss->model(1).clear();
        m_evalsDone = 0;
    }
    for (; m_evalsDone < evals.size(); ++m_evalsDone)
        put(m_loss, 1, xOf(evals[m_evalsDone].step, evals[m_evalsDone].wallNs), evals[m_evalsDone].loss);
}

void MonitorCharts::updateEvents()
{
    const std::size_t count = m_run->events().size() + m_run->evals().size() + m_overflows.size();
    if (count == m_eventsDone)
        return;
    m_eventsDone = count;
    std::vector<EventLane::Event> lane;
    std::vector<ChartMark> restarts;
    for (const telemetry::EventRecord &event : m_run->events()) {
        auto mark = markOf(event);
        if (!mark)
            continue;
        mark->x = xOf(event.step, event.wallNs);
        if (event.kind == "restart")
            restarts.push_back({mark->x, mark->ink, mark->text});
        lane.push_back(std::move(*mark));
    }
    const RankColumns *lead = m_run->lead();
    for (std::size_t at = 0; lead && at < lead->size(); ++at) {
        if (lead->overflow[at])
            lane.push_back({xOf(lead->step[at], lead->wallNs[at]),
                            tr("overflow %1").arg(formatStep(lead->step[at])),
                            {},
                            Ink::of(Token::Bad),
                            6,
                            2});
    }
    for (const telemetry::EvalRecord &eval : m_run->evals())
        lane.push_back({xOf(eval.step, eval.wallNs), tr("eval %1").arg(formatStep(eval.step)),
                        tr("loss %1").arg(formatLoss(eval.loss)), Ink::series(5), 1, 0});
    std::stable_sort(lane.begin(), lane.end(), [](const auto &a, const auto &b) { return a.x < b.x; });
    m_lane->setEvents(std::move(lane));
    m_scale->setMarks(m_overflows);
    m_scale->setNote(tr("overflow"), QString::number(m_overflows.size()));
    m_loss->setMarks(std::move(restarts));
}

} // namespace rankyard::ui
