// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/base/result.h"

#include <filesystem>

namespace rankyard::checkpoint {

/// fsync of a folder, which makes the names in it durable.
Status syncFolder(const std::filesystem::path &folder);
/// Renames a folder onto a name that must not exist (InUse), then flushes the folder above.
Status renameFolder(const std::filesystem::path &from, const std::filesystem::path &to);

} // namespace rankyard::checkpoint
