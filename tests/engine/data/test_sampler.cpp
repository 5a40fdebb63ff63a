// SPDX-License-Identifier: GPL-3.0-or-later
#include "count_allocations.h"
#include "engine/data/sampler.h"
#include "scratch.h"

#include <algorithm>
#include <numeric>

using namespace rankyard;
using namespace rankyard::data;
using rankyard::data::test::allocations;
using rankyard::data::test::Scratch;

namespace {

constexpr std::int64_t seq = 8;
constexpr std::int32_t tokenCount = 8 * 211 + 5;

class SamplerTest : public ::testing::Test
{
protected:
    void SetUp() override
    {
        auto writer = IndexedDatasetWriter::create(m_dir / "c", 20000);
        ASSERT_TRUE(writer);
        std::vector<std::int32_t> values(tokenCount);
        std::iota(values.begin(), values.end(), 0); // token t stands at position t
        ASSERT_TRUE(writer->add(values));
        ASSERT_TRUE(writer->finish());
    }

    static spec::JobSpec job(std::int64_t dp, std::int64_t micro, std::int64_t m)
    {
        spec::JobSpec job;
        job.data.train = "c";
        job.model.seq = seq;
        job.model.vocab = 20000;
        job.layout.dp = dp;
        job.batch = {dp * micro * m, micro};
        job.run.evalBatches = 2;
        return job;
    }

    Sampler sampler(const spec::JobSpec &job) const
    {
        const auto corpus = Corpus::open(job, m_dir.path());
        EXPECT_TRUE(corpus) << corpus.error().text();
        return Sampler(*corpus, job);
    }

    Scratch m_dir;
};

/// The global batch in the order of replica, micro-batch, sample.
std::vector<std::int64_t> globalBatch(const Sampler &sampler, const spec::JobSpec &job, std::int64_t step)
{
    std::vector<std::int64_t> ids;
    for (std::int64_t replica = 0; replica < job.layout.dp; ++replica) {
        for (std::int64_t micro = 0; micro < job.microBatches(); ++micro) {
            const auto part = sampler.sampleIds(step, replica, micro);
            ids.insert(ids.end(), part.begin(), part.end());
        }
    }
    return ids;
}

} // namespace

TEST_F(SamplerTest, TheOrderDoesNotDependOnTheLayout)
{
    // Global batch 30 in every layout.
    const spec::JobSpec one = job(1, 30, 1);
    const Sampler reference = sampler(one);
    for (const std::int64_t dp : {1, 2, 3, 5}) {
        for (std::int64_t micro = 1; micro <= 30 / dp; ++micro) {
            if (30 / dp % micro != 0)
                continue;
            const spec::JobSpec layout = job(dp, micro, 30 / dp / micro);
            const Sampler split = sampler(layout);
            for (const std::int64_t step : {0, 1, 6, 7, 1000}) {
                const auto expected = reference.sampleIds(step, 0, 0);
                const auto found = globalBatch(split, layout, step);
                EXPECT_EQ(found, expected) << dp << ' ' << micro;
            }
        }
    }
}

TEST_F(SamplerTest, ReplicasAreDisjointAndAnEpochIsEveryWindowOnce)
{
    for (const std::int64_t dp : {1, 2, 3, 5}) {
        const spec::JobSpec layout = job(dp, 1, 2);
        const Sampler split = sampler(layout);
        const std::int64_t samples = split.trainSamples();
        EXPECT_EQ(samples, (tokenCount - tokenCount / 20 - 1) / seq);
        std::vector<int> seen(static_cast<std::size_t>(samples));
        const std::int64_t global = layout.batch.global;
        std::int64_t index = 0;
        for (std::int64_t step = 0; index + global <= samples; ++step, index += global) {
            for (const auto id : globalBatch(split, layout, step))
                ++seen[static_cast<std::size_t>(id)];
        }
        EXPECT_EQ(*std::max_element(seen.begin(), seen.end()), 1);
        EXPECT_EQ(std::accumulate(seen.begin(), seen.end(), std::int64_t(0)), index);
    }
}

TEST_F(SamplerTest, EveryEpochHasItsOwnOrderAndItsOwnEveryWindowOnce)
{
    const spec::JobSpec layout = job(1, 1, 1);
    const Sampler split = sampler(layout);
    const std::int64_t samples = split.trainSamples();
    std::vector<std::vector<std::int64_t>> epochs(3);
    for (std::int64_t index = 0; index < 3 * samples; ++index)
        epochs[static_cast<std::size_t>(index / samples)].push_back(split.sampleIds(index, 0, 0).front());
    EXPECT_NE(epochs[0], epochs[1]);
    for (auto &epoch : epochs) {
        std::sort(epoch.begin(), epoch.end());
        for (std::int64_t i = 0; i < samples; ++i)
            EXPECT_EQ(epoch[static_cast<std::size_t>(i)], i);
    }
}

TEST_F(SamplerTest, WithoutASeedFileOrderWrapsAround)
{
    spec::JobSpec layout = job(1, 4, 1);
    layout.data.seed.reset();
    const Sampler split = sampler(layout);
    const std::int64_t samples = split.trainSamples();
    EXPECT_EQ(split.sampleIds(0, 0, 0), (std::vector<std::int64_t>{0, 1, 2, 3}));
    for (std::int64_t step = 0; step < 150; ++step) {
        const auto ids = split.sampleIds(step, 0, 0);
        for (std::int64_t k = 0; k < 4; ++k)
            EXPECT_EQ(ids[static_cast<std::size_t>(k)], (step * 4 + k) % samples);
    }
}

TEST_F(SamplerTest, FillsWindowsAndTheTokensAfterThemWithoutAllocating)
{
    const spec::JobSpec layout = job(2, 3, 2);
    const Sampler split = sampler(layout);
    std::vector<std::int32_t> tokens(3 * seq, -7);
    std::vector<std::int32_t> labels(3 * seq, -7);
    for (const std::int64_t step : {0, 5, 100}) {
        for (std::int64_t replica = 0; replica < 2; ++replica) {
            for (std::int64_t micro = 0; micro < 2; ++micro) {
                const auto ids = split.sampleIds(step, replica, micro);
                EXPECT_EQ(split.firstIndex(step, replica, micro), step * 12 + replica * 6 + micro * 3);
                const std::int64_t before = allocations;
                const bool filled = split.fill(step, replica, micro, tokens.data(), labels.data()).ok();
                EXPECT_EQ(allocations, before);
                ASSERT_TRUE(filled);
                for (std::int64_t k = 0; k < 3; ++k) {
                    for (std::int64_t t = 0; t < seq; ++t) {
                        const auto at = static_cast<std::size_t>(k * seq + t);
                        EXPECT_EQ(tokens[at], ids[static_cast<std::size_t>(k)] * seq + t);
                        EXPECT_EQ(labels[at], tokens[at] + 1);
                    }
                }
            }
        }
    }
}

TEST_F(SamplerTest, ValidationIsAFixedSetOfTheTail)
{
    const spec::JobSpec one = job(1, 4, 1);
    const Sampler split = sampler(one);
    const std::int64_t tail = tokenCount / 20;
    EXPECT_EQ(split.validSamples(), (tail - 1) / seq);
    EXPECT_EQ(split.evalBatches(), std::min<std::int64_t>(2, split.validSamples() / 4));
    std::set<std::int64_t> seen;
    std::vector<std::int32_t> tokens(4 * seq);
    std::vector<std::int32_t> labels(4 * seq);
    for (std::int64_t batch = 0; batch < split.evalBatches(); ++batch) {
        for (const auto id : split.evalSampleIds(batch, 0, 0)) {
            EXPECT_LT(id, split.validSamples());
            EXPECT_TRUE(seen.insert(id).second);
        }
        ASSERT_TRUE(split.fillEval(batch, 0, 0, tokens.data(), labels.data()));
        EXPECT_GE(*std::min_element(tokens.begin(), tokens.end()), tokenCount - tail);
        EXPECT_LT(*std::max_element(labels.begin(), labels.end()), tokenCount);
    }
    const spec::JobSpec two = job(2, 1, 2);
    const Sampler other = sampler(two);
    std::vector<std::int64_t> ids;
    for (std::int64_t replica = 0; replica < 2; ++replica) {
        for (std::int64_t micro = 0; micro < 2; ++micro)
            ids.push_back(other.evalSampleIds(0, replica, micro).front());
    }
    EXPECT_EQ(ids, split.evalSampleIds(0, 0, 0));

    spec::JobSpec large = job(1, 64, 1); // larger than the validation set: one batch that repeats
    EXPECT_EQ(sampler(large).evalBatches(), 1);
    spec::JobSpec none = job(1, 1, 1);
    none.data.validFraction = 0;
    none.run.evalEvery = 0;
    const Sampler without = sampler(none);
    EXPECT_EQ(without.evalBatches(), 0);
    EXPECT_TRUE(without.evalSampleIds(0, 0, 0).empty());
    EXPECT_FALSE(without.fillEval(0, 0, 0, tokens.data(), labels.data()));
}

/// The side file lies about the largest token: fill() still never hands out one beyond the vocabulary.
TEST_F(SamplerTest, TokensBeyondTheVocabularyAreCaught)
{
    m_dir.write("c.json",
                Json({{"schema", "rankyard/data/1"},
                      {"bin_bytes", 2 * tokenCount},
                      {"tokens", tokenCount},
                      {"max_token", 99},
                      {"fingerprint", "f"}})
                    .dump());
    spec::JobSpec layout = job(1, 1, 1);
    layout.model.vocab = 100;
    layout.data.seed.reset();
    const Sampler split = sampler(layout);
    std::vector<std::int32_t> tokens(seq);
    std::vector<std::int32_t> labels(seq);
    EXPECT_TRUE(split.fill(0, 0, 0, tokens.data(), labels.data()));
    EXPECT_TRUE(split.fill(11, 0, 0, tokens.data(), labels.data())); // 88 … 96
    EXPECT_EQ(split.fill(12, 0, 0, tokens.data(), labels.data()).error().code, Code::BadData);
    EXPECT_EQ(split.fill(50, 0, 0, tokens.data(), labels.data()).error().code, Code::BadData);
}
