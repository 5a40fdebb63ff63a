// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/predict/csv.h"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace rankyard::predict {

namespace {

std::string trimmed(std::string_view text)
{
    constexpr std::string_view blanks = " \t\r\n\v\f";
    const std::size_t begin = text.find_first_not_of(blanks);
    if (begin == std::string_view::npos)
        return {};
    return std::string(text.substr(begin, text.find_last_not_of(blanks) - begin + 1));
}

} // namespace

Result<Csv> Csv::read(std::string_view text, const std::string &name)
{
    if (text.starts_with("\xEF\xBB\xBF"))
        text.remove_prefix(3);
    Csv csv;
    std::vector<std::string> line;
    std::string cell;
    bool quoted = false;
    int number = 1;
    int opened = 1;
    const auto endLine = [&] {
        line.push_back(std::move(cell));
        cell.clear();
        const bool blank = line.size() == 1 && trimmed(line[0]).empty();
        if (!blank && csv.m_columns.empty()) {
            for (const std::string &column : line)
                csv.m_columns.push_back(trimmed(column));
        } else if (!blank) {
            csv.m_rows.push_back(std::move(line));
        }
        line.clear();
    };
    for (std::size_t i = 0; i < text.size(); ++i) {
        const char c = text[i];
        number += c == '\n' || (c == '\r' && i + 1 < text.size() && text[i + 1] != '\n');
        if (quoted) {
            if (c != '"')
                cell += c;
            else if (i + 1 < text.size() && text[i + 1] == '"')
                cell += text[++i];
            else
                quoted = false;
            // A quote that was forgotten ends where the next cell's begins, and swallows the lines between.
            const bool ends = i + 1 == text.size() || std::string_view(", \t\r\n").find(text[i + 1]) < 5;
            if (!quoted && number > opened && !ends)
                return Error::make(Code::BadData, "a quote never closes", name + ":" + std::to_string(opened))
                    .withFound("the next quote, inside a cell of line " + std::to_string(number));
        } else if (c == '"' && trimmed(cell).empty()) {
            cell.clear();
            quoted = true;
            opened = number;
        } else if (c == ',') {
            line.push_back(std::move(cell));
            cell.clear();
        } else if (c == '\n' || (c == '\r' && (i + 1 == text.size() || text[i + 1] != '\n'))) {
            endLine(); // CR alone: files of old
        } else {
            cell += c;
        }
    }
    if (quoted)
        return Error::make(Code::BadData, "a quote never closes", name + ":" + std::to_string(opened));
    if (!cell.empty() || !line.empty())
        endLine();
    if (csv.m_columns.empty())
        return Error::make(Code::BadData, "no header line", name);
    return csv;
}

bool Csv::has(std::string_view column) const
{
    return std::find(m_columns.begin(), m_columns.end(), column) != m_columns.end();
}

std::string Csv::cell(std::size_t row, std::string_view column) const
{
    const auto found = std::find(m_columns.begin(), m_columns.end(), column);
    const auto at = static_cast<std::size_t>(found - m_columns.begin());
    return found != m_columns.end() && at < m_rows[row].size() ? trimmed(m_rows[row][at]) : std::string();
}

std::optional<double> numberFrom(std::string_view text)
{
    double value = 0;
    const char *end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, value);
    if (error != std::errc() || stop != end || !std::isfinite(value))
        return std::nullopt;
    return value;
}

std::string faultOf(std::string_view column, std::string_view text)
{
    constexpr std::size_t most = 40;
    if (text.empty())
        return std::string(column) + " is missing";
    double value = 0;
    const char *end = text.data() + text.size();
    const auto [stop, error] =
        std::from_chars(text.data(), end, value); // "nan" and "inf" are read, 1e999 is not
    const bool number = stop == end && error != std::errc::invalid_argument;
    return std::string(column) + " " + std::string(text.substr(0, most)) + (text.size() > most ? "…" : "")
        + (number ? ": must be finite" : ": not a number");
}

} // namespace rankyard::predict
