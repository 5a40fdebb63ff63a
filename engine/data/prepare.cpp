// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/data/prepare.h"

#include "engine/data/corpus.h"
#include "engine/data/indexed_dataset.h"
#include "engine/data/text_source.h"
#include "engine/data/tokenizer.h"

#include <optional>

namespace rankyard::data {

namespace fs = std::filesystem;

namespace {

Error cancelled(const fs::path &out)
{
    return Error::make(Code::Stopped, "preparing the data was cancelled", out.string());
}

Result<std::int64_t> totalBytes(const std::vector<std::string> &inputs)
{
    if (inputs.empty())
        return Error::make(Code::Usage, "no input file was given", "data prepare")
            .withExpected("at least one file");
    std::int64_t total = 0;
    for (const std::string &input : inputs) {
        RY_TRY(TextSource::open(input)); // all of them, before any work
        std::error_code error;
        const auto size = fs::file_size(input, error);
        total += error ? 0 : static_cast<std::int64_t>(size);
    }
    return total;
}

/// Lines of all inputs, one after the other, until enough were given.
class TrainingText
{
public:
    TrainingText(const PrepareOptions &options, std::int64_t total) : m_options(options), m_total(total) {}

    bool next(std::string &sentence)
    {
        while (m_line.empty()) {
            if (m_given >= m_options.trainingBytes || !more())
                return false;
        }
        const std::size_t newline = m_line.find('\n');
        sentence = m_line.substr(0, newline);
        m_line.remove_prefix(newline == std::string_view::npos ? m_line.size() : newline + 1);
        m_given += static_cast<std::int64_t>(sentence.size()) + 1;
        return true;
    }

    const Status &status() const { return m_status; }

private:
    /// The next piece of text; false at the end or after an error.
    bool more()
    {
        for (;;) {
            if (!m_source) {
                if (m_input == m_options.inputs.size())
                    return false;
                auto source = TextSource::open(m_options.inputs[m_input++]);
                if (!source)
                    return fail(source.error());
                m_source.emplace(std::move(source).value());
            }
            bool last = false;
            const auto found = m_source->next(m_line, last);
            if (!found)
                return fail(found.error());
            if (*found)
                break;
            m_read += m_source->bytesRead();
            m_source.reset();
        }
        const PrepareProgress progress{"training", m_read + m_source->bytesRead(), m_total, 0, 0};
        if (m_options.progress && !m_options.progress(progress))
            return fail(cancelled(m_options.out));
        return true;
    }

    bool fail(Error error)
    {
        m_status = std::move(error);
        m_line = {};
        return false;
    }

    const PrepareOptions &m_options;
    std::int64_t m_total;
    std::size_t m_input = 0;
    std::optional<TextSource> m_source;
    std::string_view m_line; ///< what is left of the current piece
    std::int64_t m_given = 0;
    std::int64_t m_read = 0;
    Status m_status;
};

Result<std::unique_ptr<Tokenizer>> makeTokenizer(const PrepareOptions &options, std::int64_t total)
{
    if (!options.tokenizer.starts_with("bpe:"))
        return openTokenizer(options.tokenizer);
    RY_ASSIGN(const std::int64_t vocab, bpeVocabulary(options.tokenizer));
    TrainingText text(options, total);
    auto model = trainBpe(vocab, [&text](std::string &sentence) { return text.next(sentence); });
    RY_TRY(text.status()); // the first cause: an input that broke off
    RY_ASSIGN(std::string trained, std::move(model));
    return sentencePieceTokenizer(std::move(trained), options.tokenizer);
}

class Preparation
{
public:
    Preparation(const PrepareOptions &options, std::int64_t total, const Tokenizer &tokenizer,
                IndexedDatasetWriter &writer)
        : m_options(options),
          m_tokenizer(tokenizer),
          m_writer(writer)
    {
        m_progress.stage = "encoding";
        m_progress.bytesTotal = total;
    }

    Status encodeFile(const std::string &input)
    {
        RY_ASSIGN(TextSource source, TextSource::open(input));
        std::int64_t documents = 0;
        const std::int64_t before = m_progress.bytesRead;
        std::int64_t tokensOfDocument = 0;
        std::int64_t sinceReport = 0;
        for (;;) {
            std::string_view piece;
            bool last = false;
            RY_ASSIGN(const bool found, source.next(piece, last));
            if (!found)
                break;
            m_tokens.clear();
            RY_TRY(m_tokenizer.encode(piece, m_tokens));
            tokensOfDocument += static_cast<std::int64_t>(m_tokens.size());
            const bool empty = last && tokensOfDocument == 0;
            if (last && !empty)
                m_tokens.push_back(m_tokenizer.endOfText());
            RY_TRY(m_writer.add(m_tokens));
            if (last) {
                RY_TRY(m_writer.endDocument());
                documents += !empty;
                m_empty += empty;
                tokensOfDocument = 0;
            }
            sinceReport += static_cast<std::int64_t>(piece.size()) + 64;
            if (sinceReport >= 1 << 20) {
                sinceReport = 0;
                m_progress.bytesRead = before + source.bytesRead();
                RY_TRY(report());
            }
        }
        m_progress.bytesRead = before + source.bytesRead();
        RY_TRY(report());
        m_sources.push_back({{"file", fs::path(input).filename().string()},
                             {"kind", source.kind() == TextSource::Kind::Text ? "text" : "jsonl"},
                             {"bytes", source.bytesRead()},
                             {"documents", documents}});
        return {};
    }

    OrderedJson side() const
    {
        OrderedJson side;
        side["schema"] = dataSchema;
        side["tokenizer"] = {{"name", m_tokenizer.name()},
                             {"fingerprint", m_tokenizer.fingerprint()},
                             {"vocab", m_tokenizer.vocabSize()},
                             {"end_of_text", m_tokenizer.endOfText()}};
        if (!m_tokenizer.model().empty())
            side["tokenizer"]["model"] = modelPath(m_options.out).filename().string();
        side["type"] = nameOf(m_writer.type());
        side["tokens"] = m_writer.tokens();
        side["documents"] = m_writer.documents();
        side["empty_documents"] = m_empty;
        side["sequences"] = m_writer.sequences();
        side["max_token"] = m_writer.maxToken();
        side["bin_bytes"] = m_writer.tokens() * bytesOf(m_writer.type());
        side["fingerprint"] = m_writer.fingerprint();
        side["sources"] = m_sources;
        return side;
    }

private:
    Status report()
    {
        m_progress.documents = m_writer.documents();
        m_progress.tokens = m_writer.tokens();
        if (m_options.progress && !m_options.progress(m_progress))
            return cancelled(m_options.out);
        return {};
    }

    const PrepareOptions &m_options;
    const Tokenizer &m_tokenizer;
    IndexedDatasetWriter &m_writer;
    PrepareProgress m_progress;
    std::vector<std::int32_t> m_tokens;
    std::int64_t m_empty = 0;
    OrderedJson m_sources = OrderedJson::array();
};

} // namespace

Result<OrderedJson> prepare(const PrepareOptions &options)
{
    RY_ASSIGN(const std::int64_t total, totalBytes(options.inputs));
    RY_ASSIGN(const std::unique_ptr<Tokenizer> tokenizer, makeTokenizer(options, total));
    RY_ASSIGN(IndexedDatasetWriter writer, IndexedDatasetWriter::create(options.out, tokenizer->vocabSize()));
    Preparation preparation(options, total, *tokenizer, writer);
    for (const std::string &input : options.inputs)
        RY_TRY(preparation.encodeFile(input));
    if (writer.tokens() == 0)
        return Error::make(Code::BadData, "there is no text in the input", options.inputs.front());
    OrderedJson side;
    RY_TRY(writer.finish([&]() -> std::vector<Companion> {
        side = preparation.side();
        std::vector<Companion> files = {{sidePath(options.out), dumpJson(side, 1) + "\n"}};
        if (!tokenizer->model().empty())
            files.push_back({modelPath(options.out), std::string(tokenizer->model())});
        return files;
    }));
    return side;
}

} // namespace rankyard::data
