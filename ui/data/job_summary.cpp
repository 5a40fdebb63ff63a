// SPDX-License-Identifier: GPL-3.0-or-later
#include "ui/data/job_summary.h"

#include "engine/base/json.h"

#include <QStringList>

#include <algorithm>

namespace rankyard::ui {

namespace {

const Json *at(const Json &document, std::initializer_list<const char *> path)
{
    const Json *node = &document;
    for (const char *key : path) {
        if (!node->is_object())
            return nullptr;
        const auto found = node->find(key);
        if (found == node->end())
            return nullptr;
        node = &*found;
    }
    return node;
}

void read(const Json &document, std::initializer_list<const char *> path, std::int64_t &value)
{
    if (const Json *node = at(document, path); node && node->is_number_integer())
        value = node->get<std::int64_t>();
}

void read(const Json &document, std::initializer_list<const char *> path, QString &value)
{
    if (const Json *node = at(document, path); node && node->is_string())
        value = QString::fromStdString(node->get<std::string>());
}

} // namespace

QString JobSummary::layout() const
{
    QStringList parts;
    const auto axis = [&parts](const char *letter, std::int64_t size) {
        if (size > 1)
            parts << QLatin1String(letter) + QString::number(size);
    };
    axis("dp", dp);
    axis("tp", tp);
    axis("pp", pp);
    axis("cp", cp);
    if (parts.isEmpty())
        parts << QStringLiteral("dp1");
    if (zero > 0)
        parts << QStringLiteral("z%1").arg(zero);
    return parts.join(QStringLiteral("·"));
}

JobSummary summariseJob(const std::string &document)
{
    JobSummary job;
    const auto parsed = parseJson(document, "job");
    if (!parsed)
        return job;
    const Json &json = *parsed;
    read(json, {"name"}, job.name);
    read(json, {"layout", "dp"}, job.dp);
    read(json, {"layout", "tp"}, job.tp);
    read(json, {"layout", "pp"}, job.pp);
    read(json, {"layout", "cp"}, job.cp);
    read(json, {"zero", "stage"}, job.zero);
    read(json, {"batch", "global"}, job.globalBatch);
    read(json, {"batch", "micro"}, job.microBatch);
    read(json, {"model", "seq"}, job.seq);
    read(json, {"run", "steps"}, job.steps);
    read(json, {"precision", "compute"}, job.compute);
    return job;
}

std::map<std::string, std::string> flattenJob(const std::string &document)
{
    std::map<std::string, std::string> out;
    const auto parsed = parseJson(document, "job");
    if (!parsed || !parsed->is_structured())
        return out;
    const Json flat = parsed->flatten();
    for (const auto &item : flat.items()) {
        if (item.key().empty())
            continue; // an empty document
        std::string path = item.key().substr(1);
        std::replace(path.begin(), path.end(), '/', '.');
        out[path] = item.value().is_string() ? item.value().get<std::string>() : dumpJson(item.value());
    }
    return out;
}

} // namespace rankyard::ui
