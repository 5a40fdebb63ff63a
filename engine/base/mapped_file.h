// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/base/result.h"

#include <cstddef>
#include <filesystem>
#include <span>

namespace rankyard {

/// A whole file mapped for reading. Move-only; readers on any thread. A file that another process shortens while it is mapped
/// makes access fail with SIGBUS, so nothing of ours ever shortens a published file.
class MappedFile
{
public:
    MappedFile() = default;
    MappedFile(MappedFile &&other) noexcept;
    MappedFile &operator=(MappedFile &&other) noexcept;
    ~MappedFile();

    /// NotFound when it is absent, BadData when it is no regular file, Io otherwise. An empty file maps to an empty span.
    static Result<MappedFile> open(const std::filesystem::path &path);

    std::span<const std::byte> bytes() const { return {m_data, m_size}; }
    const std::byte *data() const { return m_data; }
    std::size_t size() const { return m_size; }

private:
    const std::byte *m_data = nullptr;
    std::size_t m_size = 0;
};

} // namespace rankyard
