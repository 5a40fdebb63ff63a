// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/base/json.h"
#include "engine/base/result.h"
#include "engine/data/indexed_dataset.h"
#include "engine/spec/job.h"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

namespace rankyard::data {

/// Schema of the side file that `data prepare` writes.
inline constexpr const char *dataSchema = "rankyard/data/1";

std::filesystem::path sidePath(const std::filesystem::path &prefix);  ///< PREFIX.json
std::filesystem::path modelPath(const std::filesystem::path &prefix); ///< PREFIX.model, sentencepiece
/// Where a corpus of the registry lies: dataDir()/data/<name>/<name>.
std::filesystem::path registryPrefix(const std::string &name);

/// What `data.train` means: a prefix relative to `jobDir` if such files are there (".bin" or ".idx" may be appended), else a
/// name in the registry. NotFound names both places.
Result<std::filesystem::path> resolveCorpus(const std::string &name, const std::filesystem::path &jobDir);

/// What is known about an opened pair: from the side file when it describes this .bin, else by a scan of all tokens.
struct CorpusFacts {
    std::int64_t maxToken = -1;
    std::int64_t minToken = 0;
    std::string fingerprint; ///< of the .bin
    bool fromSideFile = false;
    Json side; ///< the side document, or null
};
Result<CorpusFacts> factsOf(const IndexedDataset &dataset, const std::filesystem::path &prefix);

/// `data show`: counts, types, token range, fingerprint and the side file's tokenizer and sources.
Result<OrderedJson> describeDataset(const std::filesystem::path &prefix);

/// A contiguous part of a dataset's tokens, laid end to end.
struct TokenStream {
    std::shared_ptr<const IndexedDataset> dataset;
    std::int64_t begin = 0;
    std::int64_t count = 0;

    /// Samples of seq + 1 tokens with stride seq: (count − 1) ÷ seq, or 0.
    std::int64_t samples(std::int64_t seq) const { return count > 0 && seq > 0 ? (count - 1) / seq : 0; }
};

/// A job's training and validation tokens, checked against the job: every token is smaller than model.vocab, and each part that the
/// job uses holds at least one sample. Cheap to copy; immutable: any thread.
class Corpus
{
public:
    /// `jobDir` is the folder of the job file. Validation is data.valid, else the last valid_fraction of the training tokens.
    /// Errors: NotFound (with the command that prepares a corpus), BadData (truncated or damaged files, too few tokens), BadJob
    /// (vocabulary too small, with the smallest one that works).
    static Result<Corpus> open(const spec::JobSpec &job, const std::filesystem::path &jobDir);

    const TokenStream &train() const { return m_train; }
    const TokenStream &valid() const { return m_valid; } ///< count 0 when the job has none
    /// Digest of the tokens that the job sees: what a checkpoint remembers and a resume compares.
    const std::string &fingerprint() const { return m_fingerprint; }
    std::int64_t maxToken() const { return m_maxToken; }

private:
    TokenStream m_train;
    TokenStream m_valid;
    std::string m_fingerprint;
    std::int64_t m_maxToken = -1;
};

} // namespace rankyard::data
