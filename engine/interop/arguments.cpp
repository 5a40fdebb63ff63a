// SPDX-License-Identifier: GPL-3.0-or-later
// Arguments as people keep them: in shell scripts, on command lines, in YAML.
#include "engine/interop/reading.h"

#include <algorithm>
#include <cctype>
#include <optional>

namespace rankyard::interop {

namespace {

struct Word {
    std::string text;
    bool quoted = false; ///< some of it: `--x ""` is a value, and no assignment begins in quotes
    bool newCommand = false;
};

bool isName(std::string_view text)
{
    return !text.empty() && std::isdigit(static_cast<unsigned char>(text[0])) == 0
        && std::all_of(text.begin(), text.end(),
                       [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; });
}

/// Words of a script with its own variables put in. No command, arithmetic or condition is carried out.
class Shell
{
public:
    explicit Shell(std::string_view text) : m_text(text) {}

    std::vector<Word> words()
    {
        while (m_at < m_text.size() && m_out.size() < mostWords)
            step();
        end();
        return std::move(m_out);
    }

private:
    static constexpr std::size_t mostWords = 100'000;
    static constexpr std::size_t mostBytes = 1 << 20;

    char peek(std::size_t ahead = 0) const
    {
        return m_at + ahead < m_text.size() ? m_text[m_at + ahead] : '\0';
    }

    void step()
    {
        const char c = m_text[m_at];
        if (c == '\\' && (peek(1) == '\n' || (peek(1) == '\r' && peek(2) == '\n'))) {
            m_at += peek(1) == '\n' ? 2 : 3;
            end();
        } else if (c == '\\') {
            add(peek(1));
            m_at += 2;
        } else if (c == '\'') {
            single();
        } else if (c == '"') {
            twice();
        } else if (c == '$') {
            expand(false);
        } else if (c == '#' && !m_open) {
            m_at = std::min(m_text.find('\n', m_at), m_text.size());
        } else if (std::isspace(static_cast<unsigned char>(c)) != 0) {
            end();
            m_fresh = m_fresh || (c == '\n' && !m_array);
            ++m_at;
        } else if (c == ';' || c == '|' || c == '&') {
            end();
            m_fresh = true;
            ++m_at;
        } else if (c == '(' && m_open && !m_word.quoted && m_word.text.back() == '=') {
            begin();
        } else if (c == ')' && m_array) {
            end();
            m_variables[*m_array] = std::move(m_items);
            m_items.clear();
            m_array.reset();
            m_fresh = true;
            ++m_at;
        } else {
            add(c);
            ++m_at;
        }
    }

    /// NAME=( or NAME+=(
    void begin()
    {
        std::string name = m_word.text.substr(0, m_word.text.size() - 1);
        m_items.clear();
        if (!name.empty() && name.back() == '+') {
            name.pop_back();
            m_items = m_variables[name];
        }
        m_array = name;
        m_word = {};
        m_open = false;
        ++m_at;
    }

    void add(char c)
    {
        if (c == '\0' || m_bytes > mostBytes)
            return;
        ++m_bytes;
        m_word.text += c;
        m_open = true;
    }

    void single()
    {
        const std::size_t close = std::min(m_text.find('\'', m_at + 1), m_text.size());
        for (std::size_t i = m_at + 1; i < close; ++i)
            add(m_text[i]);
        m_word.quoted = m_open = true;
        m_at = close + 1;
    }

    void twice()
    {
        m_word.quoted = m_open = true;
        ++m_at;
        while (m_at < m_text.size() && m_text[m_at] != '"') {
            if (m_text[m_at] == '\\' && (peek(1) == '"' || peek(1) == '\\' || peek(1) == '$')) {
                add(peek(1));
                m_at += 2;
            } else if (m_text[m_at] == '\\' && peek(1) == '\n') {
                add(' ');
                m_at += 2;
            } else if (m_text[m_at] == '$') {
                expand(true);
            } else {
                add(m_text[m_at++]);
            }
        }
        ++m_at;
    }

    /// $NAME, ${NAME}, ${NAME:-standard}, ${NAME[@]}; what is not set by the script stays as it is written.
    void expand(bool quoted)
    {
        const std::size_t from = m_at++;
        std::string name;
        std::string standard;
        if (peek() == '{') {
            const std::size_t close = m_text.find('}', m_at);
            if (close == std::string_view::npos)
                return add('$');
            const std::string inner(m_text.substr(m_at + 1, close - m_at - 1));
            m_at = close + 1;
            const std::size_t end = inner.find_first_of(":[-");
            name = inner.substr(0, end);
            const std::size_t dash = inner.find(":-");
            if (dash != std::string::npos)
                standard = inner.substr(dash + 2);
        } else if (peek() == '(') { // a command or arithmetic: as it is written
            int depth = 0;
            do {
                depth += peek() == '(' ? 1 : peek() == ')' ? -1 : 0;
                ++m_at;
            } while (depth > 0 && m_at < m_text.size());
            return literal(from);
        } else {
            while (std::isalnum(static_cast<unsigned char>(peek())) != 0 || peek() == '_')
                name += m_text[m_at++];
        }
        const auto found = m_variables.find(name);
        if (found != m_variables.end())
            return put(found->second, quoted);
        standard.empty() ? literal(from) : put({standard}, quoted);
    }

    void literal(std::size_t from)
    {
        for (std::size_t i = from; i < m_at && i < m_text.size(); ++i)
            add(m_text[i]);
    }

    /// A value is split at white space unless it stands in quotes; items of an array are words of their own.
    void put(const std::vector<std::string> &items, bool quoted)
    {
        for (std::size_t i = 0; i < items.size(); ++i) {
            if (i > 0)
                end();
            for (const char c : items[i]) {
                if (!quoted && std::isspace(static_cast<unsigned char>(c)) != 0)
                    end();
                else
                    add(c);
            }
        }
    }

    void end()
    {
        if (!m_open)
            return;
        Word word = std::exchange(m_word, {});
        m_open = false;
        if (m_array) {
            m_items.push_back(std::move(word.text));
            return;
        }
        const std::size_t equals = word.text.find('=');
        if (equals != std::string::npos && isName(std::string_view(word.text).substr(0, equals))) {
            m_variables[word.text.substr(0, equals)] = {word.text.substr(equals + 1)};
            return;
        }
        word.newCommand = std::exchange(m_fresh, false);
        m_out.push_back(std::move(word));
    }

    std::string_view m_text;
    std::size_t m_at = 0;
    std::size_t m_bytes = 0;
    Word m_word;
    bool m_open = false;
    bool m_fresh = true;
    std::optional<std::string> m_array; ///< whose items are being read
    std::vector<std::string> m_items;
    std::map<std::string, std::vector<std::string>> m_variables;
    std::vector<Word> m_out;
};

std::string argumentName(std::string name)
{
    std::replace(name.begin(), name.end(), '_', '-');
    return name;
}

/// A number where it is one.
Json valueOf(const std::string &text)
{
    Json value = Json::parse(text, nullptr, false);
    return value.is_number() || value.is_boolean() ? value : Json(text);
}

} // namespace

Values shellArguments(std::string_view text)
{
    Values out;
    std::string name;
    const auto give = [&](Json value) {
        Json &there = out[name];
        if (there == true || there.is_null())
            there = std::move(value);
        else if (there.is_array())
            there.push_back(std::move(value));
        else
            there = Json::array({there, std::move(value)});
    };
    for (const Word &word : Shell(text).words()) {
        if (word.newCommand)
            name.clear();
        if (word.text.rfind("--", 0) == 0 && word.text.size() > 2) {
            const std::size_t equals = word.text.find('=');
            name = argumentName(word.text.substr(2, equals == std::string::npos ? equals : equals - 2));
            out[name] = true; // the last one counts
            if (equals != std::string::npos) {
                out[name] = valueOf(word.text.substr(equals + 1));
                name.clear();
            }
        } else if (!name.empty()) {
            // The program that a launcher starts is no value of its last option.
            const bool program =
                word.text.size() > 3 && word.text.compare(word.text.size() - 3, 3, ".py") == 0;
            if (program)
                name.clear();
            else
                give(valueOf(word.text));
        }
    }
    return out;
}

Values yamlArguments(const Json &document)
{
    Values out;
    for (const auto &[path, value] : flattened(document))
        out[argumentName(path.substr(path.rfind('.') == std::string::npos ? 0 : path.rfind('.') + 1))] =
            value;
    return out;
}

} // namespace rankyard::interop
