// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/base/result.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace rankyard::data {

/// One input file of text or JSON lines, plain or gzipped, as a stream of pieces of documents. Internal to rankyard_prepare.
class TextSource
{
public:
    enum class Kind { Text, JsonLines };

    static Result<TextSource> open(const std::string &path);
    TextSource(TextSource &&) noexcept;
    ~TextSource();

    Kind kind() const { return m_kind; }
    /// Position in the file as it lies on disk.
    std::int64_t bytesRead() const;

    /// `piece` gets the next part of the current document (at most about 1 MiB, cut by cutPoint), until it ends it: `last`.
    /// An empty document is one last piece without text. False at the end of the file.
    Result<bool> next(std::string_view &piece, bool &last);

private:
    struct Gz;
    TextSource();
    /// Reads until the buffer holds `wanted` bytes or the file ends.
    Status fill(std::size_t wanted);
    Status detectKind(const std::string &path);
    Result<bool> nextText(std::string_view &piece, bool &last);
    Result<bool> nextLine();
    std::string where() const;

    std::string m_path;
    std::unique_ptr<Gz> m_gz;
    Kind m_kind = Kind::Text;
    std::string m_buffer; ///< bytes read, from m_begin on unused
    std::size_t m_begin = 0;
    bool m_ended = false;     ///< the file
    bool m_given = false;     ///< text: the document's last piece
    std::int64_t m_line = 0;  ///< JSON lines: the number of the current line
    std::string m_document;   ///< JSON lines: the current text
    std::size_t m_offset = 0; ///< in m_document
    bool m_open = false;      ///< a JSON document has pieces left
};

} // namespace rankyard::data
