// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/data/tokenizer.h"

#include "engine/base/digest.h"
#include "engine/base/file.h"

#include <charconv>
#include <filesystem>

namespace rankyard::data {

namespace {

constexpr std::int64_t smallestBpe = 260; // 256 bytes, <unk>, </s> and room for something
constexpr std::int64_t largestBpe = 1 << 20;

class ByteTokenizer final : public Tokenizer
{
public:
    Status encode(std::string_view text, std::vector<std::int32_t> &tokens) const override
    {
        const std::size_t begin = tokens.size();
        tokens.resize(begin + text.size());
        for (std::size_t i = 0; i < text.size(); ++i)
            tokens[begin + i] = static_cast<unsigned char>(text[i]);
        return {};
    }

    Result<std::string> decode(std::span<const std::int32_t> tokens) const override
    {
        std::string text;
        text.reserve(tokens.size());
        for (const std::int32_t token : tokens) {
            if (token < 0 || token > endOfText()) {
                return Error::make(Code::BadData, "token outside the vocabulary", "byte tokenizer")
                    .withFound(std::to_string(token))
                    .withExpected("0 to 256");
            }
            if (token != endOfText())
                text += static_cast<char>(token);
        }
        return text;
    }

    std::int64_t vocabSize() const override { return 257; }
    std::int32_t endOfText() const override { return 256; }
    std::string name() const override { return "byte"; }
    std::string fingerprint() const override { return digestOf("byte/1"); }
};

} // namespace

std::unique_ptr<Tokenizer> byteTokenizer() { return std::make_unique<ByteTokenizer>(); }

Result<std::unique_ptr<Tokenizer>> openTokenizer(const std::string &spec)
{
    if (spec == "byte")
        return byteTokenizer();
    if (spec.starts_with("spm:") && spec.size() > 4) {
        const std::string file = spec.substr(4);
        RY_ASSIGN(std::string model, readFile(file));
        return sentencePieceTokenizer(std::move(model),
                                      "spm:" + std::filesystem::path(file).filename().string());
    }
    return Error::make(Code::Usage, "unknown tokenizer", "--tokenizer")
        .withFound(spec)
        .withExpected("byte, bpe:N or spm:FILE");
}

Result<std::int64_t> bpeVocabulary(const std::string &spec)
{
    std::int64_t vocab = 0;
    const char *end = spec.data() + spec.size();
    const bool number = spec.starts_with("bpe:") && std::from_chars(spec.data() + 4, end, vocab).ptr == end
        && spec.size() > 4;
    if (!number || vocab < smallestBpe || vocab > largestBpe) {
        return Error::make(Code::Usage, "not the size of a vocabulary", "--tokenizer")
            .withFound(spec)
            .withExpected("bpe:N with N from " + std::to_string(smallestBpe) + " to "
                          + std::to_string(largestBpe));
    }
    return vocab;
}

std::size_t cutPoint(std::string_view text)
{
    if (const std::size_t newline = text.rfind('\n'); newline != std::string_view::npos)
        return newline + 1;
    // The last lead byte within four bytes: keep the sequence whole unless it is complete.
    for (std::size_t back = 1; back <= 4 && back <= text.size(); ++back) {
        const auto byte = static_cast<unsigned char>(text[text.size() - back]);
        if ((byte & 0xC0) == 0x80)
            continue;
        const std::size_t length = byte < 0x80 ? 1 : byte >= 0xF0 ? 4 : byte >= 0xE0 ? 3 : 2;
        const std::size_t cut = length > back ? text.size() - back : text.size();
        return cut > 0 ? cut : text.size();
    }
    return text.size();
}

} // namespace rankyard::data
