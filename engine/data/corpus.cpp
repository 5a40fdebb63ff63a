// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/data/corpus.h"

#include "engine/base/digest.h"
#include "engine/base/file.h"

#include <cmath>

namespace rankyard::data {

namespace fs = std::filesystem;

namespace {

bool isThere(const fs::path &path)
{
    std::error_code error;
    return fs::exists(path, error);
}

/// The side file's document if it can be read and speaks of this .bin; null otherwise (it is an aid, never needed).
Json readSide(const IndexedDataset &dataset, const fs::path &prefix)
{
    const fs::path path = sidePath(prefix);
    const auto text = readFile(path);
    if (!text)
        return {};
    const auto json = parseJson(*text, path.string());
    if (!json || !checkSchema(*json, "rankyard/data", 1, path.string()))
        return {};
    const auto number = [&json](const char *key) {
        const auto at = json->find(key);
        return at != json->end() && at->is_number_integer() ? at->get<std::int64_t>() : -1;
    };
    const auto fingerprint = json->find("fingerprint");
    const bool same = number("bin_bytes") == dataset.binBytes() && number("tokens") == dataset.tokens()
        && number("max_token") >= 0 && fingerprint != json->end() && fingerprint->is_string();
    return same ? *json : Json();
}

/// One opened pair with its facts, checked against the vocabulary.
struct Opened {
    std::shared_ptr<const IndexedDataset> dataset;
    CorpusFacts facts;
};

Result<Opened> openChecked(const std::string &key, const std::string &name, const fs::path &jobDir,
                           std::int64_t vocab)
{
    auto prefix = resolveCorpus(name, jobDir);
    if (!prefix) {
        Error error = prefix.error();
        error.what = key + ": " + error.what;
        return error;
    }
    RY_ASSIGN(IndexedDataset dataset, IndexedDataset::open(*prefix));
    Opened opened;
    RY_ASSIGN(opened.facts, factsOf(dataset, *prefix));
    if (opened.facts.minToken < 0)
        return Error::make(Code::BadData, "negative tokens", binPath(*prefix).string())
            .withFound(std::to_string(opened.facts.minToken));
    if (opened.facts.maxToken >= vocab) {
        return Error::make(Code::BadJob, "smaller than the tokens of " + key + " (" + prefix->string() + ")",
                           "model.vocab")
            .withFound(std::to_string(vocab))
            .withExpected("at least " + std::to_string(opened.facts.maxToken + 1));
    }
    opened.dataset = std::make_shared<const IndexedDataset>(std::move(dataset));
    return opened;
}

Error tooShort(const std::string &key, const TokenStream &part, std::int64_t seq, const std::string &hint)
{
    return Error::make(Code::BadData, "too few tokens for one sample of model.seq + 1", key)
        .withFound(std::to_string(part.count))
        .withExpected("at least " + std::to_string(seq + 1))
        .withHint(hint);
}

} // namespace

fs::path sidePath(const fs::path &prefix) { return fs::path(withoutSuffix(prefix).string() + ".json"); }
fs::path modelPath(const fs::path &prefix) { return fs::path(withoutSuffix(prefix).string() + ".model"); }
fs::path registryPrefix(const std::string &name) { return dataDir() / "data" / name / name; }

Result<fs::path> resolveCorpus(const std::string &name, const fs::path &jobDir)
{
    const fs::path beside = withoutSuffix(jobDir / name); // an absolute name replaces jobDir
    if (isThere(idxPath(beside)) || isThere(binPath(beside)))
        return beside;
    const bool plain = !name.empty() && name.find('/') == std::string::npos && name != "." && name != "..";
    if (plain && isThere(idxPath(registryPrefix(name))))
        return registryPrefix(name);
    Error error = Error::make(Code::NotFound, "there is no such corpus", idxPath(beside).string());
    error.found = name;
    error.expected = plain ? "these files, or " + idxPath(registryPrefix(name)).string() : "";
    error.hint = "Prepare one with rankyardctl data prepare FILE --tokenizer byte --out " + beside.string();
    return error;
}

Result<CorpusFacts> factsOf(const IndexedDataset &dataset, const fs::path &prefix)
{
    CorpusFacts facts;
    facts.side = readSide(dataset, prefix);
    if (!facts.side.is_null()) {
        facts.fromSideFile = true;
        facts.maxToken = facts.side["max_token"].get<std::int64_t>();
        facts.fingerprint = facts.side["fingerprint"].get<std::string>();
        return facts;
    }
    const IndexedDataset::Scan scan = dataset.scan();
    facts.maxToken = scan.maxToken;
    facts.minToken = std::min<std::int64_t>(scan.minToken, 0);
    facts.fingerprint = scan.fingerprint;
    return facts;
}

Result<OrderedJson> describeDataset(const fs::path &prefix)
{
    RY_ASSIGN(const IndexedDataset dataset, IndexedDataset::open(prefix));
    RY_ASSIGN(const CorpusFacts facts, factsOf(dataset, prefix));
    OrderedJson json;
    json["prefix"] = withoutSuffix(prefix).string();
    json["tokens"] = dataset.tokens();
    json["documents"] = dataset.documents();
    json["sequences"] = dataset.sequences();
    json["type"] = nameOf(dataset.type());
    json["bin_bytes"] = dataset.binBytes();
    json["max_token"] = facts.maxToken;
    json["fingerprint"] = facts.fingerprint;
    for (const char *key : {"tokenizer", "empty_documents", "sources"}) {
        if (facts.fromSideFile && facts.side.contains(key))
            json[key] = facts.side[key];
    }
    json["warnings"] = dataset.warnings();
    return json;
}

Result<Corpus> Corpus::open(const spec::JobSpec &job, const fs::path &jobDir)
{
    const std::int64_t seq = job.model.seq;
    Corpus corpus;
    RY_ASSIGN(const Opened train, openChecked("data.train", job.data.train, jobDir, job.model.vocab));
    corpus.m_train = {train.dataset, 0, train.dataset->tokens()};
    corpus.m_maxToken = train.facts.maxToken;
    corpus.m_fingerprint = train.facts.fingerprint;
    if (job.data.valid) {
        RY_ASSIGN(const Opened valid, openChecked("data.valid", *job.data.valid, jobDir, job.model.vocab));
        corpus.m_valid = {valid.dataset, 0, valid.dataset->tokens()};
        corpus.m_maxToken = std::max(corpus.m_maxToken, valid.facts.maxToken);
        corpus.m_fingerprint = digestOf(train.facts.fingerprint + valid.facts.fingerprint);
    } else {
        const auto tail = static_cast<std::int64_t>(
            std::floor(static_cast<double>(corpus.m_train.count) * job.data.validFraction));
        corpus.m_train.count -= tail;
        corpus.m_valid = {train.dataset, corpus.m_train.count, tail};
    }
    if (corpus.m_train.samples(seq) < 1)
        return tooShort("data.train", corpus.m_train, seq, "Use a larger corpus or a smaller model.seq");
    if (job.run.evalEvery > 0 && corpus.m_valid.samples(seq) < 1) {
        return tooShort(job.data.valid ? "data.valid" : "data.valid_fraction", corpus.m_valid, seq,
                        "Use a larger data.valid_fraction, or set run.eval_every to 0");
    }
    return corpus;
}

} // namespace rankyard::data
