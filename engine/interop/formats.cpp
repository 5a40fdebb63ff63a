// SPDX-License-Identifier: GPL-3.0-or-later
// TOML and YAML as JSON. The libraries' exceptions and events stop here.
#include "engine/interop/reading.h"

#include <stdexcept>

namespace {

constexpr void tomlHolds(bool holds)
{
    if (!holds)
        throw std::runtime_error("cannot be read as a key or a value");
}

} // namespace

// toml++ 3.3 asserts, and in release builds assumes, what broken text does not keep ("[a" followed by its end): here that is an error
// of the text in every build. No other file includes it.
#undef NDEBUG
#define TOML_ASSERT(expression) tomlHolds(static_cast<bool>(expression))
#include <toml++/toml.h>
#include <yaml.h>

#include <memory>

namespace rankyard::interop {

namespace {

constexpr int deepest = 100;

Json jsonOf(const toml::node &node)
{
    if (const auto *table = node.as_table()) {
        Json out = Json::object();
        for (const auto &[key, value] : *table)
            out[std::string(key.str())] = jsonOf(value);
        return out;
    }
    if (const auto *array = node.as_array()) {
        Json out = Json::array();
        for (const toml::node &value : *array)
            out.push_back(jsonOf(value));
        return out;
    }
    if (const auto *text = node.as_string())
        return text->get();
    if (const auto *whole = node.as_integer())
        return whole->get();
    if (const auto *number = node.as_floating_point())
        return number->get();
    if (const auto *flag = node.as_boolean())
        return flag->get();
    return nullptr; // dates: nothing here has one
}

/// Builds a document from libyaml's events; one object.
class YamlReader
{
public:
    YamlReader(std::string_view text, std::string name) : m_name(std::move(name))
    {
        yaml_parser_initialize(&m_parser);
        yaml_parser_set_input_string(&m_parser, reinterpret_cast<const unsigned char *>(text.data()),
                                     text.size());
    }
    YamlReader(const YamlReader &) = delete;
    YamlReader &operator=(const YamlReader &) = delete;
    ~YamlReader() { yaml_parser_delete(&m_parser); }

    Result<Json> read()
    {
        for (;;) {
            yaml_event_t event;
            RY_TRY(next(event));
            const auto type = event.type;
            if (type == YAML_STREAM_END_EVENT) {
                yaml_event_delete(&event);
                return Json();
            }
            if (type == YAML_STREAM_START_EVENT || type == YAML_DOCUMENT_START_EVENT) {
                yaml_event_delete(&event);
                continue;
            }
            return node(event, 0);
        }
    }

private:
    Error wrong(std::string what, std::size_t line) const
    {
        return Error::make(Code::BadData, std::move(what), m_name + ":" + std::to_string(line + 1));
    }

    Status next(yaml_event_t &event)
    {
        if (yaml_parser_parse(&m_parser, &event) != 0)
            return {};
        return wrong(std::string("no YAML: ") + (m_parser.problem ? m_parser.problem : "cannot be read"),
                     m_parser.problem_mark.line);
    }

    static Json scalar(const yaml_event_t &event)
    {
        std::string text(reinterpret_cast<const char *>(event.data.scalar.value), event.data.scalar.length);
        if (event.data.scalar.style != YAML_PLAIN_SCALAR_STYLE)
            return text;
        if (text.empty() || text == "~" || text == "null" || text == "None")
            return nullptr;
        if (text == "true" || text == "True" || text == "false" || text == "False")
            return text[0] == 't' || text[0] == 'T';
        const Json number = Json::parse(text, nullptr, false);
        return number.is_number() ? number : Json(text);
    }

    /// The node that `event` begins; takes the event.
    Result<Json> node(yaml_event_t &event, int depth)
    {
        const auto type = event.type;
        const std::size_t line = event.start_mark.line;
        const Json value = type == YAML_SCALAR_EVENT ? scalar(event) : Json();
        yaml_event_delete(&event);
        if (type == YAML_SCALAR_EVENT)
            return value;
        if (type == YAML_ALIAS_EVENT)
            return wrong("aliases are not read", line);
        if (depth > deepest)
            return wrong("is nested too deeply", line);
        if (type == YAML_SEQUENCE_START_EVENT)
            return sequence(depth);
        if (type == YAML_MAPPING_START_EVENT)
            return mapping(depth);
        return wrong("ends too early", line);
    }

    Result<Json> sequence(int depth)
    {
        Json out = Json::array();
        for (;;) {
            yaml_event_t event;
            RY_TRY(next(event));
            if (event.type == YAML_SEQUENCE_END_EVENT) {
                yaml_event_delete(&event);
                return out;
            }
            RY_ASSIGN(Json item, node(event, depth + 1));
            out.push_back(std::move(item));
        }
    }

    Result<Json> mapping(int depth)
    {
        Json out = Json::object();
        for (;;) {
            yaml_event_t event;
            RY_TRY(next(event));
            if (event.type == YAML_MAPPING_END_EVENT) {
                yaml_event_delete(&event);
                return out;
            }
            const std::size_t line = event.start_mark.line;
            RY_ASSIGN(const Json key, node(event, depth + 1));
            if (key.is_structured())
                return wrong("a key must be a word", line);
            yaml_event_t after;
            RY_TRY(next(after));
            RY_ASSIGN(Json value, node(after, depth + 1));
            out[key.is_string() ? key.get<std::string>() : dumpJson(key)] = std::move(value);
        }
    }

    yaml_parser_t m_parser{};
    std::string m_name;
};

} // namespace

Result<Json> parseToml(std::string_view text, const std::string &name)
{
    try {
        return jsonOf(toml::parse(text));
    } catch (const toml::parse_error &error) {
        return Error::make(Code::BadData, "no TOML: " + std::string(error.description()),
                           name + ":" + std::to_string(error.source().begin.line));
    } catch (const std::exception &error) {
        return Error::make(Code::BadData, std::string("no TOML: ") + error.what(), name);
    }
}

Result<Json> parseYaml(std::string_view text, const std::string &name)
{
    YamlReader reader(text, name);
    return reader.read();
}

} // namespace rankyard::interop
