// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/base/result.h"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rankyard::predict {

/// Comma-separated values with one header line (RFC 4180): quoted cells with doubled quotes and line breaks, LF, CRLF or CR, a byte order
/// mark. Columns are found by name, in any order; short lines end in empty cells.
class Csv
{
public:
    /// BadData for no header or a quote that never closes, with its line.
    static Result<Csv> read(std::string_view text, const std::string &name);

    std::size_t rows() const { return m_rows.size(); }
    bool has(std::string_view column) const;
    /// Without blanks around it; empty for a column that is not there.
    std::string cell(std::size_t row, std::string_view column) const;

private:
    std::vector<std::string> m_columns;
    std::vector<std::vector<std::string>> m_rows;
};

/// The number that the whole text is, finite; nothing else. Decimal point, no thousands.
std::optional<double> numberFrom(std::string_view text);
/// Why numberFrom has none of a cell: "layers twelve: not a number", "layers nan: must be finite", "layers is missing".
std::string faultOf(std::string_view column, std::string_view text);

} // namespace rankyard::predict
