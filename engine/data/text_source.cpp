// SPDX-License-Identifier: GPL-3.0-or-later
// The only file that includes zlib.
#include "engine/data/text_source.h"

#include "engine/base/json.h"
#include "engine/data/tokenizer.h"

#include <cerrno>
#include <filesystem>
#include <sys/stat.h>
#include <zlib.h>

namespace rankyard::data {

namespace {

constexpr std::size_t pieceBytes = 1 << 20;
constexpr std::size_t longestLine = 1 << 28;
constexpr std::string_view byteOrderMark = "\xef\xbb\xbf";

bool isBlank(std::string_view line) { return line.find_first_not_of(" \t\r\n") == std::string_view::npos; }

} // namespace

/// Plain files pass through zlib unchanged, so there is one way to read.
struct TextSource::Gz {
    gzFile file = nullptr;
    ~Gz()
    {
        if (file)
            ::gzclose(file);
    }
};

TextSource::TextSource() : m_gz(std::make_unique<Gz>()) {}
TextSource::TextSource(TextSource &&) noexcept = default;
TextSource::~TextSource() = default;

std::int64_t TextSource::bytesRead() const
{
    const auto offset = ::gzoffset(m_gz->file);
    return offset < 0 ? 0 : static_cast<std::int64_t>(offset);
}

std::string TextSource::where() const { return m_path + ":" + std::to_string(m_line); }

Result<TextSource> TextSource::open(const std::string &path)
{
    struct stat status {};
    if (::stat(path.c_str(), &status) != 0) {
        if (errno == ENOENT)
            return Error::make(Code::NotFound, "there is no such file", path);
        return Error::fromErrno(errno, "cannot open the file", path);
    }
    if (S_ISDIR(status.st_mode))
        return Error::make(Code::Usage, "a folder where a file is expected", path)
            .withHint("Name the files in it");
    TextSource source;
    source.m_path = path;
    source.m_gz->file = ::gzopen(path.c_str(), "rbe");
    if (!source.m_gz->file)
        return Error::fromErrno(errno, "cannot open the file", path);
    ::gzbuffer(source.m_gz->file, 1 << 18);
    RY_TRY(source.detectKind(path));
    return source;
}

Status TextSource::fill(std::size_t wanted)
{
    if (m_begin > 0 && m_buffer.size() - m_begin < wanted) {
        m_buffer.erase(0, m_begin);
        m_begin = 0;
    }
    while (!m_ended && m_buffer.size() - m_begin < wanted) {
        const std::size_t old = m_buffer.size();
        m_buffer.resize(old + pieceBytes);
        const int n = ::gzread(m_gz->file, m_buffer.data() + old, pieceBytes);
        m_buffer.resize(old + static_cast<std::size_t>(std::max(n, 0)));
        int code = Z_OK;
        const std::string message = ::gzerror(m_gz->file, &code);
        if (code == Z_ERRNO)
            return Error::fromErrno(errno, "cannot read the file", m_path);
        if (code == Z_BUF_ERROR)
            return Error::make(Code::BadData, "the gzip file is truncated", m_path);
        if (n < 0 || (code != Z_OK && code != Z_STREAM_END))
            return Error::make(Code::BadData, "the gzip file is damaged", m_path).withFound(message);
        m_ended = n == 0;
    }
    return {};
}

Status TextSource::detectKind(const std::string &path)
{
    RY_TRY(fill(byteOrderMark.size()));
    if (std::string_view(m_buffer).starts_with(byteOrderMark))
        m_begin = byteOrderMark.size();
    std::string name = std::filesystem::path(path).filename().string();
    if (name.ends_with(".gz"))
        name.resize(name.size() - 3);
    if (name.ends_with(".jsonl") || name.ends_with(".ndjson")) {
        m_kind = Kind::JsonLines;
        return {};
    }
    // By content: the first line that is not blank is an object with a "text". Other objects may be prose about JSON.
    RY_TRY(fill(pieceBytes));
    std::string_view head = std::string_view(m_buffer).substr(m_begin);
    const std::size_t first = head.find_first_not_of(" \t\r\n");
    if (first == std::string_view::npos || head[first] != '{')
        return {};
    head.remove_prefix(first);
    while (head.find('\n') == std::string_view::npos && !m_ended && head.size() < longestLine) {
        RY_TRY(fill(m_buffer.size() - m_begin + 1));
        head = std::string_view(m_buffer).substr(m_begin + first);
    }
    const Json line = Json::parse(head.substr(0, head.find('\n')), nullptr, false);
    if (line.is_object() && line.contains("text"))
        m_kind = Kind::JsonLines;
    return {};
}

Result<bool> TextSource::nextText(std::string_view &piece, bool &last)
{
    if (m_given)
        return false;
    RY_TRY(fill(pieceBytes + 1));
    const std::string_view rest = std::string_view(m_buffer).substr(m_begin);
    last = m_ended && rest.size() <= pieceBytes;
    piece = last ? rest : rest.substr(0, cutPoint(rest.substr(0, pieceBytes)));
    m_begin += piece.size();
    m_given = last;
    return true;
}

/// Puts the text of the next line that is not blank into m_document.
Result<bool> TextSource::nextLine()
{
    for (;;) {
        std::size_t searched = 0;
        std::size_t newline = std::string::npos;
        for (;;) {
            newline = m_buffer.find('\n', m_begin + searched);
            if (newline != std::string::npos || m_ended)
                break;
            searched = m_buffer.size() - m_begin;
            if (searched > longestLine)
                return Error::make(Code::BadData, "a line longer than 256 MiB",
                                   m_path + ":" + std::to_string(m_line + 1));
            RY_TRY(fill(searched + 1));
        }
        const std::size_t end = newline == std::string::npos ? m_buffer.size() : newline;
        const std::string_view line = std::string_view(m_buffer).substr(m_begin, end - m_begin);
        if (line.empty() && newline == std::string::npos)
            return false;
        ++m_line;
        m_begin = newline == std::string::npos ? end : end + 1;
        if (isBlank(line))
            continue;
        const Json json = Json::parse(line, nullptr, false);
        if (json.is_discarded() || !json.is_object()) {
            return Error::make(Code::BadData, json.is_discarded() ? "not valid JSON" : "not a JSON object",
                               where())
                .withExpected("one object a line, as {\"text\": \"…\"}");
        }
        const auto text = json.find("text");
        if (text == json.end() || !text->is_string())
            return Error::make(Code::BadData, "no \"text\" that is a string", where())
                .withExpected("{\"text\": \"…\"}");
        m_document = text->get<std::string>();
        return true;
    }
}

Result<bool> TextSource::next(std::string_view &piece, bool &last)
{
    if (m_kind == Kind::Text)
        return nextText(piece, last);
    if (!m_open) {
        RY_ASSIGN(m_open, nextLine());
        if (!m_open)
            return false;
        m_offset = 0;
    }
    const std::string_view rest = std::string_view(m_document).substr(m_offset);
    last = rest.size() <= pieceBytes;
    piece = last ? rest : rest.substr(0, cutPoint(rest.substr(0, pieceBytes)));
    m_offset += piece.size();
    m_open = !last;
    return true;
}

} // namespace rankyard::data
