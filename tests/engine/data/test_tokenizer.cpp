// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/data/tokenizer.h"
#include "scratch.h"

using namespace rankyard;
using namespace rankyard::data;
using rankyard::data::test::Scratch;

namespace {

const std::string prose =
    "In the beginning God created the heaven and the earth.\n"
    "And the earth was without form, and void; and darkness was upon the face of the deep.\n";

std::string trained(std::int64_t vocab, const std::string &text = prose)
{
    int lines = 0;
    const auto model = trainBpe(vocab, [&](std::string &sentence) {
        sentence = text;
        return lines++ < 20;
    });
    EXPECT_TRUE(model) << model.error().text();
    return model ? *model : std::string();
}

std::vector<std::int32_t> encoded(const Tokenizer &tokenizer, std::string_view text)
{
    std::vector<std::int32_t> tokens;
    EXPECT_TRUE(tokenizer.encode(text, tokens));
    return tokens;
}

} // namespace

TEST(Tokenizer, BytesAreLossless)
{
    const auto tokenizer = byteTokenizer();
    EXPECT_EQ(tokenizer->vocabSize(), 257);
    EXPECT_EQ(tokenizer->endOfText(), 256);
    std::string every;
    for (int i = 0; i < 256; ++i)
        every += static_cast<char>(i);
    auto tokens = encoded(*tokenizer, every);
    ASSERT_EQ(tokens.size(), 256u);
    EXPECT_EQ(tokens[255], 255);
    tokens.push_back(256);
    EXPECT_EQ(tokenizer->decode(tokens).value(), every);
    tokens.push_back(257);
    EXPECT_FALSE(tokenizer->decode(tokens));
    EXPECT_FALSE(tokenizer->decode(std::vector<std::int32_t>{-1}));
}

TEST(Tokenizer, BpeRoundTripsAndCompresses)
{
    const auto tokenizer = sentencePieceTokenizer(trained(300), "bpe:300");
    ASSERT_TRUE(tokenizer) << tokenizer.error().text();
    const Tokenizer &t = **tokenizer;
    EXPECT_EQ(t.vocabSize(), 300);
    EXPECT_EQ(t.endOfText(), 1);
    for (const std::string &text :
         {prose, std::string("  two  spaces\n\n\ttab\r\n"), std::string("\xe2\x82\xac und \xf0\x9f\x98\x80"),
          std::string("x"), std::string(), std::string("1234567890")}) {
        const auto tokens = encoded(t, text);
        for (const auto token : tokens)
            EXPECT_TRUE(token >= 0 && token < 300 && token != t.endOfText());
        EXPECT_EQ(t.decode(tokens).value(), text);
    }
    EXPECT_LT(encoded(t, prose).size(), prose.size() * 7 / 10);
    EXPECT_FALSE(t.decode(std::vector<std::int32_t>{300}));
    EXPECT_EQ(t.decode(std::vector<std::int32_t>{1, 1}).value(), "");
    // Deterministic, and the fingerprint tells models apart.
    EXPECT_EQ(trained(300), std::string(t.model()));
    EXPECT_NE(sentencePieceTokenizer(trained(295), "x").value()->fingerprint(), t.fingerprint());
}

TEST(Tokenizer, CuttingTextDoesNotChangeTheTokens)
{
    const auto tokenizer = sentencePieceTokenizer(trained(300), "bpe:300");
    ASSERT_TRUE(tokenizer);
    std::string text;
    for (int i = 0; i < 50; ++i)
        text += prose;
    const auto whole = encoded(**tokenizer, text);
    std::vector<std::int32_t> parts;
    for (std::string_view rest = text; !rest.empty();) {
        const std::size_t cut = cutPoint(rest.substr(0, 317));
        ASSERT_TRUE((*tokenizer)->encode(rest.substr(0, cut), parts));
        rest.remove_prefix(cut);
    }
    EXPECT_EQ(parts, whole);
}

TEST(Tokenizer, CutPoints)
{
    EXPECT_EQ(cutPoint("a\nbc\nd"), 5u);
    EXPECT_EQ(cutPoint("abc"), 3u);
    EXPECT_EQ(cutPoint("ab\xe2\x82"), 2u);
    EXPECT_EQ(cutPoint("ab\xe2\x82\xac"), 5u);
    EXPECT_EQ(cutPoint("\xf0\x9f"), 2u); // nothing before it: never 0
    EXPECT_EQ(cutPoint("\x80\x80\x80\x80\x80"), 5u);
    EXPECT_EQ(cutPoint(""), 0u);
}

TEST(Tokenizer, ErrorsAreNamed)
{
    const auto big = trainBpe(100000, [done = false](std::string &sentence) mutable {
        sentence = "too little text";
        return !std::exchange(done, true);
    });
    ASSERT_FALSE(big);
    EXPECT_EQ(big.error().code, Code::BadData);
    EXPECT_NE(big.error().expected.find("at most "), std::string::npos) << big.error().text();
    const auto small = trainBpe(260, [done = false](std::string &sentence) mutable {
        sentence = prose;
        return !std::exchange(done, true);
    });
    ASSERT_FALSE(small);
    EXPECT_NE(small.error().expected.find("at least "), std::string::npos) << small.error().text();
    EXPECT_FALSE(trainBpe(300, [](std::string &) { return false; }));
    EXPECT_FALSE(sentencePieceTokenizer("garbage", "x"));
    EXPECT_FALSE(sentencePieceTokenizer("", "x"));
    for (const char *spec : {"", "bytes", "spm:", "bpe", "bpe:", "bpe:300", "gpt2"})
        EXPECT_EQ(openTokenizer(spec).error().code, Code::Usage) << spec;
    EXPECT_EQ(openTokenizer("spm:/none.model").error().code, Code::NotFound);
    for (const char *spec :
         {"bpe:", "bpe:x", "bpe:3", "bpe:-300", "bpe:300x", "bpe:99999999999999999999", "byte"})
        EXPECT_EQ(bpeVocabulary(spec).error().code, Code::Usage) << spec;
    EXPECT_EQ(bpeVocabulary("bpe:300").value(), 300);
}

TEST(Tokenizer, DamagedModelsAreRefusedOrWork)
{
    const std::string model = trained(290);
    for (std::size_t size = 0; size < model.size(); size += 13) {
        const auto tokenizer = sentencePieceTokenizer(model.substr(0, size), "cut");
        if (tokenizer)
            encoded(**tokenizer, prose);
    }
}

TEST(Tokenizer, OpensAModelFile)
{
    const Scratch dir;
    const std::string file = dir.write("t.model", trained(300));
    const auto tokenizer = openTokenizer("spm:" + file);
    ASSERT_TRUE(tokenizer) << tokenizer.error().text();
    EXPECT_EQ((*tokenizer)->name(), "spm:t.model");
}
