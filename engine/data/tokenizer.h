// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/base/result.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rankyard::data {

/// Text to tokens and back. Immutable after it was made: any thread may call it. Part of rankyard_prepare, which workers
/// do not link.
class Tokenizer
{
public:
    virtual ~Tokenizer() = default;

    /// Appends the tokens of `text`, all in [0, vocabSize()), without an end-of-text token. BadData when the library refuses.
    virtual Status encode(std::string_view text, std::vector<std::int32_t> &tokens) const = 0;
    /// The text of `tokens`; end-of-text tokens give nothing. BadData for a token outside the vocabulary.
    virtual Result<std::string> decode(std::span<const std::int32_t> tokens) const = 0;
    virtual std::int64_t vocabSize() const = 0;
    /// The token that closes a document.
    virtual std::int32_t endOfText() const = 0;
    /// "byte", "bpe:512", "spm:tokenizer.model".
    virtual std::string name() const = 0;
    /// Digest of what decides the tokens: equal for equal tokenizers only.
    virtual std::string fingerprint() const = 0;
    /// The serialised sentencepiece model; empty for the byte tokenizer.
    virtual std::string_view model() const { return {}; }
};

/// Bytes 0…255 and the end of text as 256: vocabulary 257, lossless for any input.
std::unique_ptr<Tokenizer> byteTokenizer();

/// A tokenizer from a serialised sentencepiece model. Its end of text is the model's </s>, or one id beyond the vocabulary when it has none.
/// Errors: BadData for what is no model.
Result<std::unique_ptr<Tokenizer>> sentencePieceTokenizer(std::string model, std::string name);

/// "byte" or "spm:FILE". Errors: Usage for another form ("bpe:N" has to be trained first), NotFound, BadData.
Result<std::unique_ptr<Tokenizer>> openTokenizer(const std::string &spec);

/// The N of "bpe:N"; Usage when the text has another form or N is not in [260, 65536 · 16].
Result<std::int64_t> bpeVocabulary(const std::string &spec);

/// Gives the next sentence of training text (at most 4000 bytes of it are used); false at the end.
using NextSentence = std::function<bool(std::string &)>;

/// Trains a byte-pair encoding of exactly `vocab` pieces with sentencepiece: 256 byte pieces as fall-back, no normalisation, no
/// dummy prefix, so that decode(encode(text)) == text for valid UTF-8 without U+2581. Deterministic. Returns the serialised
/// model. Errors: BadData when the text has too few or too many distinct pieces for `vocab` (the limit is named).
Result<std::string> trainBpe(std::int64_t vocab, const NextSentence &next);

/// Where to cut `text` so that the first part can be encoded alone: after the last newline, else before the last incomplete
/// UTF-8 sequence. At least 1 for text that is not empty.
std::size_t cutPoint(std::string_view text);

} // namespace rankyard::data
