// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/base/result.h"

#include <nlohmann/json.hpp>

#include <string>
#include <string_view>

namespace rankyard {

using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;

/// Parses UTF-8 text. Duplicate keys, nesting beyond 200 and trailing bytes are errors. `name` (a file) becomes `where`
/// with line and column.
Result<Json> parseJson(std::string_view text, const std::string &name, Code code = Code::BadData);

/// Checks `document.schema` against "family/N": another family is `code`; a larger N is Code::Newer with the version
/// named; a smaller one is accepted.
Status checkSchema(const Json &document, std::string_view family, int version, const std::string &name,
                   Code code = Code::BadData);

/// Text that never throws: invalid UTF-8 is replaced. NaN and infinities, which JSON cannot hold, become null.
std::string dumpJson(const Json &json, int indent = -1);
std::string dumpJson(const OrderedJson &json, int indent = -1);

} // namespace rankyard
