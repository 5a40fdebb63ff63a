// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/base/json.h"
#include "engine/base/result.h"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

/// Text to an indexed dataset: `rankyardctl data prepare`. Part of rankyard_prepare.
namespace rankyard::data {

struct PrepareProgress {
    const char *stage = ""; ///< "training" (the tokenizer) or "encoding"
    std::int64_t bytesRead =
        0; ///< of the input files as they lie on disk, so compressed ones count compressed
    std::int64_t bytesTotal = 0;
    std::int64_t documents = 0;
    std::int64_t tokens = 0;
};

struct PrepareOptions {
    /// Files of text (one document each) or JSON lines (one document a line, its "text"), either of them gzipped. The kind
    /// is told by the content; a name ending in .jsonl or .jsonl.gz is JSON lines in any case.
    std::vector<std::string> inputs;
    std::string tokenizer = "byte"; ///< byte, bpe:N, spm:FILE
    std::filesystem::path
        out; ///< prefix; the pair, <out>.json and, for sentencepiece, <out>.model are written
    /// Called about every MiB from the calling thread; false cancels.
    std::function<bool(const PrepareProgress &)> progress;
    /// Text that a bpe:N tokenizer is trained on at most, in bytes.
    std::int64_t trainingBytes = 64 << 20;
};

/// Reads every input in order, writes each document with an end-of-text token after it, and publishes the files by rename at the
/// end. Returns the side document `rankyard/data/1`:
/// {schema, tokenizer: {name, fingerprint, vocab, end_of_text, model?}, type, tokens, documents, empty_documents, sequences, max_token,
///  bin_bytes, fingerprint, sources: [{file, kind, bytes, documents}]}.
/// Errors: Usage, NotFound, BadData (file:line for JSON lines; truncated gzip; no text at all), Io, Stopped when cancelled. Nothing
/// is left behind after an error, and an older dataset of that name is untouched.
Result<OrderedJson> prepare(const PrepareOptions &options);

} // namespace rankyard::data
