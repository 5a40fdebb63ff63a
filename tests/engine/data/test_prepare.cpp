// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/base/digest.h"
#include "engine/data/corpus.h"
#include "engine/data/prepare.h"
#include "engine/data/tokenizer.h"
#include "scratch.h"

#include <csignal>
#include <sys/resource.h>
#include <zlib.h>

using namespace rankyard;
using namespace rankyard::data;
using rankyard::data::test::Scratch;
using rankyard::data::test::slurp;

namespace {

std::string gzipped(const Scratch &dir, const std::string &name, const std::string &content)
{
    const std::string path = (dir / name).string();
    gzFile file = ::gzopen(path.c_str(), "wb");
    ::gzwrite(file, content.data(), static_cast<unsigned>(content.size()));
    ::gzclose(file);
    return path;
}

Result<OrderedJson> run(const Scratch &dir, std::vector<std::string> inputs,
                        const std::string &tokenizer = "byte")
{
    return prepare({.inputs = std::move(inputs), .tokenizer = tokenizer, .out = dir / "out", .progress = {}});
}

std::string textOf(const std::filesystem::path &prefix)
{
    const auto dataset = IndexedDataset::open(prefix);
    EXPECT_TRUE(dataset) << dataset.error().text();
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(dataset->tokens()));
    dataset->read(0, dataset->tokens(), tokens.data());
    std::string text;
    for (const auto token : tokens)
        text += token == 256 ? '|' : static_cast<char>(token);
    return text;
}

} // namespace

TEST(Prepare, TextJsonLinesAndGzipByContent)
{
    const Scratch dir;
    const std::string lines =
        "{\"text\": \"one\"}\n\n{\"id\": 2, \"text\": \"\"}\r\n  {\"text\": \"t\\u00e4\"}";
    const std::vector<std::string> inputs = {
        dir.write("a.txt", "first\n"),   dir.write("b.dat", lines), // JSON lines by content
        gzipped(dir, "c.txt", "zipped"),                            // gzip by content
        gzipped(dir, "d.gz", lines),     dir.write("e.txt", "\xef\xbb\xbf{ not json"),
        dir.write("empty.txt", ""),
    };
    const auto side = run(dir, inputs);
    ASSERT_TRUE(side) << side.error().text();
    EXPECT_EQ(textOf(dir / "out"), "first\n|one|t\xc3\xa4|zipped|one|t\xc3\xa4|{ not json|");
    EXPECT_EQ((*side)["schema"], "rankyard/data/1");
    EXPECT_EQ((*side)["documents"], 7);
    EXPECT_EQ((*side)["empty_documents"], 3);
    EXPECT_EQ((*side)["tokenizer"]["vocab"], 257);
    EXPECT_EQ((*side)["max_token"], 256);
    EXPECT_EQ((*side)["fingerprint"], digestOf(slurp(dir / "out.bin")));
    EXPECT_EQ((*side)["sources"][1]["kind"], "jsonl");
    EXPECT_EQ((*side)["sources"][2]["kind"], "text");
    EXPECT_EQ(OrderedJson::parse(slurp(dir / "out.json")), *side);
    const auto shown = describeDataset(dir / "out");
    ASSERT_TRUE(shown);
    EXPECT_EQ((*shown)["tokens"], (*side)["tokens"]);
    EXPECT_EQ((*shown)["tokenizer"]["name"], "byte");
}

TEST(Prepare, LargeInputsCrossEveryBlock)
{
    const Scratch dir;
    std::string text;
    for (std::int64_t i = 0; text.size() < (5u << 20); ++i)
        text += "line " + std::to_string(i * 7919) + (i % 1000 == 0 ? "\n" : " ");
    std::string noNewline(3u << 20, 'x');
    const std::string json = "{\"text\": \"" + noNewline + "\"}\n{\"text\": \"end\"}\n";
    const auto side = run(dir, {dir.write("a", text), dir.write("b", noNewline), gzipped(dir, "c.gz", json)});
    ASSERT_TRUE(side) << side.error().text();
    EXPECT_TRUE(textOf(dir / "out") == text + "|" + noNewline + "|" + noNewline + "|end|");
    EXPECT_EQ((*side)["documents"], 4);
}

TEST(Prepare, TrainsAndStoresABpeModel)
{
    const Scratch dir;
    std::string text;
    for (int i = 0; i < 400; ++i)
        text += "the quick brown fox jumps over the lazy dog " + std::to_string(i) + "\n";
    const auto side = run(dir, {dir.write("a.txt", text)}, "bpe:320");
    ASSERT_TRUE(side) << side.error().text();
    EXPECT_EQ((*side)["tokenizer"]["vocab"], 320);
    EXPECT_EQ((*side)["tokenizer"]["model"], "out.model");
    const auto tokenizer = openTokenizer("spm:" + (dir / "out.model").string());
    ASSERT_TRUE(tokenizer) << tokenizer.error().text();
    EXPECT_EQ((*tokenizer)->fingerprint(), (*side)["tokenizer"]["fingerprint"]);
    const auto dataset = IndexedDataset::open(dir / "out");
    ASSERT_TRUE(dataset);
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(dataset->tokens()));
    dataset->read(0, dataset->tokens(), tokens.data());
    EXPECT_EQ(tokens.back(), (*tokenizer)->endOfText());
    EXPECT_EQ((*tokenizer)->decode(tokens).value(), text);
    EXPECT_LT(tokens.size(), text.size() / 2);
    const std::string first = slurp(dir / "out.bin");
    ASSERT_TRUE(run(dir, {(dir / "a.txt").string()}, "spm:" + (dir / "out.model").string()));
    EXPECT_EQ(slurp(dir / "out.bin"), first);
}

TEST(Prepare, BadInputIsNamedAndLeavesNothing)
{
    const Scratch dir;
    const std::string good = dir.write("good.txt", "good");
    std::string numbers;
    for (int i = 0; i < 20000; ++i)
        numbers += std::to_string(i * 7919) + " ";
    const std::string zipped = slurp(gzipped(dir, "z.gz", numbers));
    struct Case {
        std::string path;
        Code code;
        std::string part;
    };
    std::string damaged = zipped;
    damaged[damaged.size() / 2] = static_cast<char>(damaged[damaged.size() / 2] ^ 0x55);
    std::filesystem::create_directory(dir / "folder");
    const std::vector<Case> cases = {
        {(dir / "none.txt").string(), Code::NotFound, "none.txt"},
        {(dir / "folder").string(), Code::Usage, "folder"},
        {dir.write("cut.gz", zipped.substr(0, zipped.size() - 20)), Code::BadData, "truncated"},
        {dir.write("bad.gz", damaged), Code::BadData, "damaged"},
        {dir.write("a.jsonl", "{\"text\": \"x\"}\n{\"text\": 3}\n"), Code::BadData, "a.jsonl:2"},
        {dir.write("b.jsonl", "\n{\"text\": \"x\"}\n[]\n"), Code::BadData, "b.jsonl:3"},
        {dir.write("c.jsonl", "{\"text\": \"x\"\n"), Code::BadData, "c.jsonl:1"},
        {dir.write("d.jsonl", "{\"text\": \"\xff\"}\n"), Code::BadData, "d.jsonl:1"},
        {dir.write("e.jsonl", std::string(100000, '[')), Code::BadData, "e.jsonl:1"},
        {dir.write("f", "{\"text\": \"x\"}\nplain\n"), Code::BadData, "f:2"},
    };
    const auto before = dir.names();
    for (const Case &c : cases) {
        const auto side = run(dir, {good, c.path});
        ASSERT_FALSE(side) << c.path;
        EXPECT_EQ(side.error().code, c.code) << side.error().text();
        EXPECT_NE(side.error().text().find(c.part), std::string::npos) << side.error().text();
        EXPECT_EQ(dir.names(), before);
    }
    EXPECT_EQ(run(dir, {}).error().code, Code::Usage);
    EXPECT_EQ(run(dir, {good}, "bpe:100000").error().code, Code::BadData);
    EXPECT_EQ(run(dir, {good}, "words").error().code, Code::Usage);
    EXPECT_EQ(run(dir, {dir.write("good.txt", "")}).error().code, Code::BadData);
    EXPECT_EQ(dir.names(), before);
}

TEST(Prepare, CancelLeavesNothingAndTheOldDataset)
{
    const Scratch dir;
    const std::string input = dir.write("a.txt", std::string(8u << 20, 'a'));
    ASSERT_TRUE(run(dir, {dir.write("old.txt", "old")}));
    const auto before = dir.names();
    int calls = 0;
    std::int64_t lastRead = 0;
    const auto side = prepare({.inputs = {input},
                               .tokenizer = "byte",
                               .out = dir / "out",
                               .progress = [&](const PrepareProgress &p) {
                                   EXPECT_GE(p.bytesRead, lastRead);
                                   EXPECT_EQ(p.bytesTotal, 8 << 20);
                                   lastRead = p.bytesRead;
                                   return ++calls < 3;
                               }});
    ASSERT_FALSE(side);
    EXPECT_EQ(side.error().code, Code::Stopped);
    EXPECT_EQ(calls, 3);
    EXPECT_EQ(dir.names(), before);
    EXPECT_EQ(textOf(dir / "out"), "old|");
    const auto training = prepare({.inputs = {input},
                                   .tokenizer = "bpe:300",
                                   .out = dir / "new",
                                   .progress = [](const PrepareProgress &) { return false; }});
    ASSERT_FALSE(training);
    EXPECT_EQ(training.error().code, Code::Stopped);
    EXPECT_EQ(dir.names(), before);
}

TEST(Prepare, AFullDiskLeavesNothing)
{
    const Scratch dir;
    const std::string input = dir.write("a.txt", std::string(300000, 'a'));
    const auto before = dir.names();
    const auto previous = std::signal(SIGXFSZ, SIG_IGN);
    rlimit old{};
    ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old), 0);
    for (const rlim_t limit : {0, 1000, 599999}) {
        const rlimit small{limit, old.rlim_max};
        ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
        const auto side = run(dir, {input});
        ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &old), 0);
        ASSERT_FALSE(side);
        EXPECT_EQ(side.error().code, Code::Io);
        EXPECT_EQ(dir.names(), before);
    }
    std::signal(SIGXFSZ, previous);
}
