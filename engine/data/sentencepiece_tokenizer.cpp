// SPDX-License-Identifier: GPL-3.0-or-later
// The only file that includes sentencepiece.
#include "engine/base/digest.h"
#include "engine/data/tokenizer.h"

#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include <algorithm>
#include <exception>
#include <unordered_map>

namespace rankyard::data {

namespace {

namespace spm = sentencepiece;

constexpr std::size_t shortText = 4096;
constexpr std::size_t longestSentence = 4000; // sentencepiece drops longer ones than 4192 bytes silently

Error libraryError(const spm::util::Status &status, const std::string &what, const std::string &where)
{
    return Error::make(Code::BadData, what, where).withFound(status.ToString());
}

class SentencePieceTokenizer final : public Tokenizer
{
public:
    SentencePieceTokenizer(std::string model, std::string name)
        : m_model(std::move(model)),
          m_name(std::move(name))
    {}

    Status load()
    {
        try {
            if (const auto status = m_processor.LoadFromSerializedProto(m_model); !status.ok())
                return libraryError(status, "not a sentencepiece model", m_name);
            m_pieces = m_processor.GetPieceSize();
            m_eos = m_processor.eos_id();
        } catch (const std::exception &error) {
            return Error::make(Code::BadData, "not a sentencepiece model", m_name).withFound(error.what());
        }
        if (m_pieces <= 0)
            return Error::make(Code::BadData, "the sentencepiece model has no pieces", m_name);
        m_linesAreApart = linesAreApart();
        return {};
    }

    Status encode(std::string_view text, std::vector<std::int32_t> &tokens) const override
    {
        // The library's time and memory a byte grow with the length of what it is given.
        while (m_linesAreApart && text.size() > shortText) {
            const std::size_t newline = text.find('\n', shortText);
            if (newline == std::string_view::npos)
                break;
            RY_TRY(encodeWhole(text.substr(0, newline + 1), tokens));
            text.remove_prefix(newline + 1);
        }
        return encodeWhole(text, tokens);
    }

    Result<std::string> decode(std::span<const std::int32_t> tokens) const override
    {
        std::vector<int> ids;
        for (const std::int32_t token : tokens) {
            if (token < 0 || token >= vocabSize()) {
                return Error::make(Code::BadData, "token outside the vocabulary", m_name)
                    .withFound(std::to_string(token))
                    .withExpected("0 to " + std::to_string(vocabSize() - 1));
            }
            if (token != endOfText())
                ids.push_back(token);
        }
        try {
            std::string text;
            if (const auto status = m_processor.Decode(ids, &text); !status.ok())
                return libraryError(status, "cannot decode the tokens", m_name);
            return text;
        } catch (const std::exception &error) {
            return Error::make(Code::BadData, "cannot decode the tokens", m_name).withFound(error.what());
        }
    }

    std::int64_t vocabSize() const override { return m_pieces + (m_eos < 0 ? 1 : 0); }
    std::int32_t endOfText() const override { return m_eos < 0 ? m_pieces : m_eos; }
    std::string name() const override { return m_name; }
    std::string fingerprint() const override { return digestOf(m_model); }
    std::string_view model() const override { return m_model; }

private:
    Status encodeWhole(std::string_view text, std::vector<std::int32_t> &tokens) const
    {
        try {
            std::vector<int> ids;
            if (const auto status = m_processor.Encode({text.data(), text.size()}, &ids); !status.ok())
                return libraryError(status, "cannot encode the text", m_name);
            tokens.insert(tokens.end(), ids.begin(), ids.end());
            return {};
        } catch (const std::exception &error) {
            return Error::make(Code::BadData, "cannot encode the text", m_name).withFound(error.what());
        }
    }

    /// Whether text may be cut after any newline without changing its tokens: no piece holds a newline, and the normaliser
    /// neither adds, nor strips, nor replaces anything at the ends. True for the models of trainBpe.
    bool linesAreApart() const
    {
        for (int id = 0; id < m_pieces; ++id) {
            if (!m_processor.IsByte(id) && m_processor.IdToPiece(id).find('\n') != std::string::npos)
                return false;
        }
        for (const std::string &first : {std::string("x\n"), std::string("x \n"), std::string("\n")}) {
            for (const std::string &second : {std::string("x"), std::string(" x"), std::string("\nx")}) {
                std::vector<std::int32_t> whole;
                std::vector<std::int32_t> parts;
                if (!encodeWhole(first + second, whole) || !encodeWhole(first, parts)
                    || !encodeWhole(second, parts) || whole != parts)
                    return false;
            }
        }
        return true;
    }

    std::string m_model;
    std::string m_name;
    bool m_linesAreApart = false;
    spm::SentencePieceProcessor m_processor;
    int m_pieces = 0;
    int m_eos = -1;
};

class Sentences final : public spm::SentenceIterator
{
public:
    explicit Sentences(const NextSentence &next) : m_next(next) { Next(); }
    bool done() const override { return m_done; }
    void Next() override
    {
        m_done = m_done || !m_next(m_value);
        if (m_value.size() > longestSentence)
            m_value.resize(cutPoint(std::string_view(m_value).substr(0, longestSentence)));
        // An embedded zero byte makes the trainer skip the line with a message; a space keeps the rest of it.
        std::replace(m_value.begin(), m_value.end(), '\0', ' ');
    }
    const std::string &value() const override { return m_value; }
    spm::util::Status status() const override { return {}; }

private:
    const NextSentence &m_next;
    std::string m_value;
    bool m_done = false;
};

/// The limit in sentencepiece's "Vocabulary size too high (…). Please set it to a value <= N." and in its "Vocabulary size is
/// smaller than required_chars. M vs N."
std::string limitOfVocabulary(const std::string &message)
{
    const auto numberAfter = [&message](std::string_view mark) -> std::string {
        const std::size_t at = message.rfind(mark);
        if (at == std::string::npos)
            return {};
        return message.substr(at + mark.size(),
                              message.find_first_not_of("0123456789", at + mark.size()) - at - mark.size());
    };
    if (const std::string least = numberAfter(" vs "); !least.empty())
        return "at least " + least;
    const std::string most = numberAfter("to a value <= ");
    return most.empty() ? most : "at most " + most;
}

} // namespace

Result<std::unique_ptr<Tokenizer>> sentencePieceTokenizer(std::string model, std::string name)
{
    auto tokenizer = std::make_unique<SentencePieceTokenizer>(std::move(model), std::move(name));
    RY_TRY(tokenizer->load());
    return std::unique_ptr<Tokenizer>(std::move(tokenizer));
}

Result<std::string> trainBpe(std::int64_t vocab, const NextSentence &next)
{
    const std::unordered_map<std::string, std::string> options = {
        {"model_type", "bpe"},
        {"vocab_size", std::to_string(vocab)},
        {"character_coverage", "0.9995"}, // rarer characters become bytes
        {"byte_fallback", "true"},
        {"normalization_rule_name", "identity"},
        {"add_dummy_prefix", "false"},
        {"remove_extra_whitespaces", "false"},
        {"split_digits", "true"},
        {"unk_id", "0"},
        {"eos_id", "1"},
        {"bos_id", "-1"},
        {"pad_id", "-1"},
        {"num_threads", "1"},
        {"minloglevel", "2"},
    };
    const std::string where = "bpe:" + std::to_string(vocab);
    try {
        Sentences sentences(next);
        if (sentences.done())
            return Error::make(Code::BadData, "there is no text to train the tokenizer on", where);
        std::string model;
        if (const auto status = spm::SentencePieceTrainer::Train(options, &sentences, &model); !status.ok()) {
            return libraryError(status, "cannot train a vocabulary of this size on this text", where)
                .withExpected(limitOfVocabulary(status.ToString()));
        }
        return model;
    } catch (const std::exception &error) {
        return Error::make(Code::BadData, "cannot train the tokenizer", where).withFound(error.what());
    }
}

} // namespace rankyard::data
