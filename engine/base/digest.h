// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/base/result.h"

#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

namespace rankyard {

/// XXH3-128 of a stream of bytes, for finding damaged or different files. It is no defence against forgery.
class Digest
{
public:
    Digest();
    Digest(Digest &&) noexcept;
    Digest &operator=(Digest &&) noexcept;
    ~Digest();

    void update(const void *bytes, std::size_t count);
    /// "xxh3-128:<32 hex>" (canonical big-endian order, as `xxhsum -H2` prints it) of everything so far.
    std::string text() const;

private:
    struct State;
    std::unique_ptr<State> m_state;
};

/// Digest of a string.
std::string digestOf(std::string_view bytes);
/// Digest of a file's content, read in blocks; NotFound or Io.
Result<std::string> digestOfFile(const std::filesystem::path &path);

} // namespace rankyard
