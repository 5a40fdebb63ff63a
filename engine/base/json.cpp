// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/base/json.h"

#include <charconv>
#include <set>
#include <vector>

namespace rankyard {

namespace {

constexpr int maxDepth = 200;

std::string position(std::string_view text, std::size_t byte, const std::string &name)
{
    std::size_t line = 1;
    std::size_t column = 1;
    for (std::size_t i = 0; i + 1 < byte && i < text.size(); ++i) {
        if (text[i] == '\n') {
            ++line;
            column = 1;
        } else {
            ++column;
        }
    }
    return name + ":" + std::to_string(line) + ":" + std::to_string(column);
}

} // namespace

Result<Json> parseJson(std::string_view text, const std::string &name, Code code)
{
    struct Object {
        std::set<std::string> keys;
        std::string key; // that is being read
    };
    std::vector<Object> around;
    std::string duplicate;
    bool tooDeep = false;
    const Json::parser_callback_t watch = [&](int depth, Json::parse_event_t event, Json &parsed) {
        if (event == Json::parse_event_t::object_start) {
            around.emplace_back();
        } else if (event == Json::parse_event_t::object_end) {
            around.pop_back();
        } else if (event == Json::parse_event_t::key && duplicate.empty()) {
            const auto &key = parsed.get_ref<const std::string &>();
            around.back().key = key;
            if (!around.back().keys.insert(key).second) {
                for (const Object &object : around)
                    duplicate += (duplicate.empty() ? "" : ".") + object.key;
            }
        }
        tooDeep = tooDeep || depth > maxDepth;
        return true;
    };
    try {
        Json json = Json::parse(text.begin(), text.end(), watch);
        if (!duplicate.empty())
            return Error::make(code, "the key \"" + duplicate + "\" stands twice", name);
        if (tooDeep)
            return Error::make(code, "nested deeper than 200 levels", name);
        return json;
    } catch (const Json::parse_error &error) {
        return Error::make(code, "not valid JSON", position(text, error.byte, name));
    } catch (const Json::out_of_range &error) {
        // "… number overflow parsing '1e400'"
        const std::string what = error.what();
        const std::size_t begin = what.find('\'');
        const std::string number =
            begin == std::string::npos ? "" : what.substr(begin, what.rfind('\'') - begin + 1);
        return Error::make(code, "a number is larger than 64 bits hold", name).withFound(number);
    } catch (const Json::exception &error) {
        return Error::make(code, std::string("not valid JSON: ") + error.what(), name);
    }
}

Status checkSchema(const Json &document, std::string_view family, int version, const std::string &name,
                   Code code)
{
    const std::string expected = std::string(family) + "/" + std::to_string(version);
    const auto at = document.is_object() ? document.find("schema") : document.end();
    if (at == document.end() || !at->is_string())
        return Error::make(code, "the document does not say its schema", name)
            .withExpected("\"schema\": \"" + expected + "\"");
    const auto &found = at->get_ref<const std::string &>();
    const std::size_t slash = found.rfind('/');
    int number = 0;
    const char *end = found.data() + found.size();
    const bool numbered = slash != std::string::npos
        && std::from_chars(found.data() + slash + 1, end, number).ptr == end && number > 0;
    if (!numbered || found.substr(0, slash) != family)
        return Error::make(code, "another kind of document", name + ": schema")
            .withFound(found)
            .withExpected(expected);
    if (number > version) {
        return Error::make(Code::Newer, "written by a newer version", name + ": schema")
            .withFound(found)
            .withExpected("at most " + expected)
            .withHint("Update Rankyard to read it");
    }
    return {};
}

std::string dumpJson(const Json &json, int indent)
{
    return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

std::string dumpJson(const OrderedJson &json, int indent)
{
    return json.dump(indent, ' ', false, OrderedJson::error_handler_t::replace);
}

} // namespace rankyard
