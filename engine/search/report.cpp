// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/search/search.h"

namespace rankyard::search {

OrderedJson reportOf(const Candidate &candidate)
{
    const Choice &c = candidate.choice;
    const predict::StepTime &t = candidate.time;
    const auto ms = [](double seconds) { return seconds * 1e3; };
    OrderedJson json = OrderedJson::object();
    for (const auto &[path, value] : keysOf(c)) {
        const std::string_view key = path;
        const std::size_t dot = key.find('.');
        json[std::string(key.substr(0, dot))][std::string(key.substr(dot + 1))] = value;
    }
    json["batch"]["micro_batches"] = c.microBatches;
    json.update(OrderedJson{{"step_ms", ms(t.seconds)},
                            {"step_ms_80", {ms(t.low), ms(t.high)}},
                            {"mfu", candidate.mfu},
                            {"memory_peak", candidate.bytes},
                            {"memory_host", candidate.hostBytes},
                            {"margin", candidate.margin},
                            {"stage", candidate.stage},
                            {"priced", candidate.priced},
                            {"parts_ms",
                             {{"compute", ms(t.compute)},
                              {"bubble", ms(t.bubble)},
                              {"tensor", ms(t.tensor)},
                              {"pipeline", ms(t.pipeline)},
                              {"data", ms(t.data)},
                              {"optimizer", ms(t.optimizer)},
                              {"overhead", ms(t.overhead)}}},
                            {"text", textOf(c)},
                            {"why", candidate.why}});
    return json;
}

OrderedJson reportOf(const Outcome &outcome)
{
    const auto list = [&](const std::vector<Candidate> &candidates) {
        OrderedJson json = OrderedJson::array();
        for (const Candidate &candidate : candidates) {
            json.push_back(reportOf(candidate));
            OrderedJson &changes = json.back()["changes"] = OrderedJson::array();
            for (const Change &change : changesOf(outcome.job, candidate.choice))
                changes.push_back({{"path", change.path}, {"from", change.from}, {"to", change.to}});
        }
        return json;
    };
    OrderedJson rejected = OrderedJson::object();
    for (const auto &[rule, count] : outcome.rejected)
        rejected[rule] = count;
    OrderedJson json = {{"evaluated", outcome.evaluated},
                        {"seconds", outcome.seconds},
                        {"pricing_seconds", outcome.pricingSeconds},
                        {"cancelled", outcome.cancelled},
                        {"usable_bytes", outcome.capacity.usable()}};
    json["current"] = outcome.current.time.seconds > 0 ? reportOf(outcome.current) : OrderedJson(nullptr);
    json["best"] = list(outcome.best);
    json["pareto"] = list(outcome.pareto);
    json["near"] = list(outcome.near);
    json["rejected"] = std::move(rejected);
    json["notes"] = outcome.notes;
    return json;
}

} // namespace rankyard::search
