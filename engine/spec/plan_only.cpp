// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/spec/plan_only.h"

#include "engine/spec/job_table.h"

namespace rankyard::spec {

namespace {

constexpr const char *section = "plan_only";

Rule number(double high, std::string doc, double low = 0)
{
    Rule rule;
    rule.doc = std::move(doc);
    rule.low = low;
    rule.high = high;
    return rule;
}

Rule word(std::vector<std::string> values, std::string doc)
{
    Rule rule;
    rule.doc = std::move(doc);
    rule.values = std::move(values);
    rule.mayBeEmpty = false;
    return rule;
}

std::vector<Field> fieldsOf(PlanOnly &p)
{
    constexpr double most = 1 << 20;
    std::vector<Field> fields = {
        {"model", &p.model, word({}, "A model of the planner's catalogue: its sizes in place of the job's")},
        {"experts", &p.experts, number(most, "Routed experts of an MLP")},
        {"top_k", &p.topK, number(most, "Experts that a token goes to")},
        {"shared_experts", &p.sharedExperts, number(most, "Experts that every token goes to")},
        {"expert_ffn", &p.expertFfn, number(1 << 22, "Inner width of an expert")},
        {"dense_layers", &p.denseLayers, number(10000, "First layers with an MLP of their own")},
        {"query_rank", &p.queryRank, number(most, "Latent attention: rank of the queries; 0: full")},
        {"key_rank", &p.keyRank, number(most, "Latent attention: rank of keys and values")},
        {"nope_dim", &p.nopeDim, number(most, "Latent attention: columns of a key without positions")},
        {"rope_dim", &p.ropeDim, number(most, "Latent attention: columns with positions that heads share")},
        {"value_dim", &p.valueDim, number(most, "Latent attention: columns of a value head")},
        {"activation", &p.activation, word({"gelu", "relu2", "swiglu"}, "Activation of the MLP")},
        {"compute", &p.compute, word({"fp8", "fp4"}, "Type of matrix products, weights in bf16")},
        {"ep", &p.ep, number(most, "Expert-parallel ranks, of the data-parallel ones", 1)},
    };
    for (Field &field : fields)
        field.path = std::string(section) + "." + field.path;
    return fields;
}

} // namespace

bool hasPlanOnly(const Json &document) { return document.is_object() && document.contains(section); }

Result<WideJob> readWideJob(Json document, const std::string &name)
{
    WideJob made;
    const Json asked = document.contains(section) ? document[section] : Json::object();
    if (!asked.is_object())
        return jobError(section, "wrong type", shown(asked), "an object");
    document.erase(section);
    RY_ASSIGN(made.job, readJob(std::move(document), name));
    const std::vector<Field> fields = fieldsOf(made.wide);
    std::vector<std::string> names;
    for (const Field &field : fields)
        names.push_back(field.path.substr(field.path.find('.') + 1));
    for (const auto &[key, value] : asked.items()) {
        const auto at = std::find(names.begin(), names.end(), key);
        if (at == names.end()) {
            const std::string meant = closest(key, names);
            return jobError(std::string(section) + "." + key, "unknown key", shown(Json(key)),
                            meant.empty() ? "" : std::string(section) + "." + meant);
        }
        const Field &field = fields[static_cast<std::size_t>(at - names.begin())];
        RY_TRY(storeSlot(field, value));
        RY_TRY(checkRule(field));
    }
    return made;
}

Json writePlanOnly(const PlanOnly &wide)
{
    PlanOnly copy = wide;
    PlanOnly defaults;
    Json written = Json::object();
    const std::vector<Field> fields = fieldsOf(copy);
    const std::vector<Field> standard = fieldsOf(defaults);
    for (std::size_t i = 0; i < fields.size(); ++i) {
        if (Json value = slotValue(fields[i].slot); value != slotValue(standard[i].slot))
            written[fields[i].path.substr(fields[i].path.find('.') + 1)] = std::move(value);
    }
    return written;
}

OrderedJson planOnlySchema()
{
    PlanOnly defaults;
    OrderedJson schema = {
        {"type", "object"},
        {"description", "What a job can only be planned with: rankyardctl plan reads it, nothing runs it"},
        {"additionalProperties", false},
        {"properties", OrderedJson::object()}};
    for (const Field &field : fieldsOf(defaults)) {
        OrderedJson one;
        one["type"] = schemaTypes(field.slot);
        if (!field.rule.values.empty()) {
            one["enum"] = field.rule.values;
            one["enum"].push_back(nullptr);
        }
        one["description"] = field.rule.doc;
        schema["properties"][field.path.substr(field.path.find('.') + 1)] = std::move(one);
    }
    return schema;
}

} // namespace rankyard::spec
