// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/data/corpus.h"
#include "scratch.h"

#include <cstdlib>

using namespace rankyard;
using namespace rankyard::data;
using rankyard::data::test::Scratch;
using rankyard::data::test::slurp;

namespace {

void make(const std::filesystem::path &prefix, std::int32_t tokens, std::int64_t vocab = 512)
{
    auto writer = IndexedDatasetWriter::create(prefix, vocab);
    ASSERT_TRUE(writer) << writer.error().text();
    std::vector<std::int32_t> values;
    for (std::int32_t i = 0; i < tokens; ++i)
        values.push_back(static_cast<std::int32_t>(i % vocab));
    ASSERT_TRUE(writer->add(values));
    ASSERT_TRUE(writer->finish());
}

spec::JobSpec jobFor(const std::string &train)
{
    spec::JobSpec job;
    job.data.train = train;
    job.model.seq = 16;
    return job;
}

} // namespace

TEST(Corpus, SplitsTheTail)
{
    const Scratch dir;
    make(dir / "c", 2001);
    const auto corpus = Corpus::open(jobFor("c"), dir.path());
    ASSERT_TRUE(corpus) << corpus.error().text();
    EXPECT_EQ(corpus->train().count, 2001 - 100);
    EXPECT_EQ(corpus->valid().begin, 2001 - 100);
    EXPECT_EQ(corpus->valid().count, 100);
    EXPECT_EQ(corpus->train().samples(16), 1900 / 16);
    EXPECT_EQ(corpus->maxToken(), 511);
    EXPECT_EQ(corpus->fingerprint(), digestOf(slurp(dir / "c.bin")));

    spec::JobSpec none = jobFor("c.bin");
    none.data.validFraction = 0;
    none.run.evalEvery = 0;
    EXPECT_EQ(Corpus::open(none, dir.path())->train().count, 2001);
}

TEST(Corpus, ASeparateValidationCorpus)
{
    const Scratch dir;
    make(dir / "c", 2000);
    make(dir / "v", 300);
    spec::JobSpec job = jobFor("c");
    job.data.valid = "v";
    const auto corpus = Corpus::open(job, dir.path());
    ASSERT_TRUE(corpus) << corpus.error().text();
    EXPECT_EQ(corpus->train().count, 2000);
    EXPECT_EQ(corpus->valid().count, 300);
    EXPECT_NE(corpus->fingerprint(), digestOf(slurp(dir / "c.bin")));
    job.data.valid = "none";
    EXPECT_EQ(Corpus::open(job, dir.path()).error().code, Code::NotFound);
}

TEST(Corpus, ErrorsNameTheWayOut)
{
    const Scratch dir;
    auto error = Corpus::open(jobFor("none"), dir.path()).error();
    EXPECT_EQ(error.code, Code::NotFound);
    EXPECT_NE(error.hint.find("data prepare"), std::string::npos);
    EXPECT_NE(error.expected.find("rankyard/data/none/none.idx"), std::string::npos);

    make(dir / "c", 2000);
    spec::JobSpec job = jobFor("c");
    job.model.vocab = 511;
    error = Corpus::open(job, dir.path()).error();
    EXPECT_EQ(error.code, Code::BadJob);
    EXPECT_EQ(error.where, "model.vocab");
    EXPECT_EQ(error.expected, "at least 512");

    job = jobFor("c");
    job.model.seq = 1999;
    EXPECT_EQ(Corpus::open(job, dir.path()).error().where, "data.train");
    job.model.seq = 200;
    EXPECT_EQ(Corpus::open(job, dir.path()).error().where, "data.valid_fraction");
    job.run.evalEvery = 0;
    EXPECT_TRUE(Corpus::open(job, dir.path()));

    dir.write("c.bin", slurp(dir / "c.bin").substr(0, 1000));
    error = Corpus::open(jobFor("c"), dir.path()).error();
    EXPECT_EQ(error.code, Code::BadData);
    EXPECT_NE(error.what.find("truncated"), std::string::npos);
    std::filesystem::remove(dir / "c.bin");
    error = Corpus::open(jobFor("c"), dir.path()).error();
    EXPECT_EQ(error.code, Code::NotFound);
    EXPECT_NE(error.where.find("c.bin"), std::string::npos);
}

TEST(Corpus, TheSideFileIsAnAidThatIsNotTrustedBlindly)
{
    const Scratch dir;
    make(dir / "c", 2000);
    const auto side = [&](const Json &json) { dir.write("c.json", json.dump()); };
    Json good = {{"schema", "rankyard/data/1"},
                 {"bin_bytes", 4000},
                 {"tokens", 2000},
                 {"max_token", 700},
                 {"fingerprint", "f"}};
    side(good);
    EXPECT_EQ(Corpus::open(jobFor("c"), dir.path()).error().where, "model.vocab");
    for (const auto &[key, value] : std::vector<std::pair<std::string, Json>>{{"schema", "rankyard/data/2"},
                                                                              {"bin_bytes", 4001},
                                                                              {"tokens", "x"},
                                                                              {"max_token", -1},
                                                                              {"max_token", nullptr},
                                                                              {"fingerprint", 1}}) {
        Json bad = good;
        bad[key] = value;
        side(bad);
        const auto corpus = Corpus::open(jobFor("c"), dir.path());
        ASSERT_TRUE(corpus) << corpus.error().text();
        EXPECT_EQ(corpus->maxToken(), 511);
    }
    dir.write("c.json", "not json");
    EXPECT_TRUE(Corpus::open(jobFor("c"), dir.path()));
}

TEST(Corpus, NamesOfTheRegistry)
{
    const Scratch dir;
    const char *old = std::getenv("XDG_DATA_HOME");
    const std::string saved = old ? old : "";
    ::setenv("XDG_DATA_HOME", dir.path().c_str(), 1);
    make(registryPrefix("bible"), 2000);
    EXPECT_TRUE(Corpus::open(jobFor("bible"), dir / "jobs"));
    EXPECT_EQ(resolveCorpus("bible", dir / "jobs").value(), registryPrefix("bible"));
    for (const char *name : {"", ".", "..", "../data/bible/bible2", "bible/bible"})
        EXPECT_FALSE(resolveCorpus(name, dir / "jobs")) << name;
    make(dir / "bible", 1000); // beside the job file comes first
    EXPECT_EQ(resolveCorpus("bible", dir.path()).value(), dir / "bible");
    EXPECT_EQ(resolveCorpus((dir / "bible").string(), "/").value(), dir / "bible");
    if (old)
        ::setenv("XDG_DATA_HOME", saved.c_str(), 1);
    else
        ::unsetenv("XDG_DATA_HOME");
}
