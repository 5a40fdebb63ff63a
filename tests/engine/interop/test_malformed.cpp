// SPDX-License-Identifier: GPL-3.0-or-later
// Whatever the file is: an answer or an error, never a crash and never a job in which a value is no value.
#include "tests/engine/interop/interop_test.h"
#include "tests/engine/long.h"

#include <random>

namespace rankyard::interop {
namespace {

void tryAll(const std::string &text)
{
    (void)engineOf(text);
    for (const Engine engine : {Engine::DeepSpeed, Engine::Megatron, Engine::Torchtitan}) {
        const auto in = tryImport(text, engine);
        if (in)
            (void)spec::readJob(in->job, "imported");
    }
    (void)tryImport(text, std::nullopt);
}

TEST(Malformed, Texts)
{
    std::string deep(5000, '[');
    std::string yaml;
    for (int i = 0; i < 300; ++i)
        yaml += std::string(static_cast<std::size_t>(i), ' ') + "a:\n";
    for (const std::string &text : {std::string(),
                                    std::string("\n\n"),
                                    std::string("{"),
                                    std::string("{}"),
                                    std::string("[]"),
                                    std::string("null"),
                                    std::string("{\"train_batch_size\": 1, \"train_batch_size\": 2}"),
                                    std::string("\xff\xfe\x00", 3),
                                    std::string("--"),
                                    std::string("-- -- --="),
                                    std::string("--num-layers"),
                                    std::string("--num-layers --bf16"),
                                    std::string("A=$A --num-layers $A"),
                                    std::string("A=( --x $A ${A[@]}"),
                                    std::string("--a \"unterminated"),
                                    std::string("--a '$("),
                                    std::string("${"),
                                    std::string("$"),
                                    std::string("a: *b"),
                                    std::string("a: &b [*b]"),
                                    std::string("{\"fp16\": 3}"),
                                    std::string("{\"zero_optimization\": [1]}"),
                                    std::string("x = "),
                                    std::string("[a"),
                                    std::string("[training]\nseq_len = 1e400\n"),
                                    std::string("--hidden-size 1e99 --num-layers -5"),
                                    std::string("{\"train_batch_size\": 1e300}"),
                                    std::string("{\"train_batch_size\": -4}"),
                                    deep,
                                    yaml})
        tryAll(text);
    EXPECT_EQ(tryImport("{\"a\": 1}", std::nullopt).error().code, Code::BadData);
    EXPECT_FALSE(tryImport("", std::nullopt));
    EXPECT_FALSE(engineOf("{\"schema\": \"rankyard/job/1\", \"fp16\": 1}"));
    EXPECT_FALSE(engineOf("{\"model_type\": \"gpt2\", \"fp16\": true}"));
}

// A self-reference grows no text without bound.
TEST(Malformed, ShellThatDoubles)
{
    std::string text = "A='--num-layers 4'\n";
    for (int i = 0; i < 60; ++i)
        text += "A=\"$A $A\"\n";
    tryAll(text + "run $A\n");
}

TEST(Malformed, ChangedBytes)
{
    const std::string sources[] = {exportConfig(jobsFor(Engine::DeepSpeed)[1], Engine::DeepSpeed).text,
                                   exportConfig(jobsFor(Engine::Megatron)[3], Engine::Megatron).text,
                                   exportConfig(jobsFor(Engine::Torchtitan)[2], Engine::Torchtitan).text};
    std::mt19937_64 random(5);
    const int count = isLong() ? 20000 : sanitized ? 60 : 300;
    for (int i = 0; i < count; ++i) {
        std::string text = sources[random() % 3];
        for (std::uint64_t changes = 1 + random() % 4; changes > 0; --changes) {
            const std::size_t where = random() % text.size();
            switch (random() % 4) {
            case 0:
                text[where] = static_cast<char>(random());
                break;
            case 1:
                text.erase(where, 1 + random() % 8);
                break;
            case 2:
                text.insert(where, text.substr(random() % text.size(), random() % 12));
                break;
            default:
                text[where] = "{}[]\"'$()-=,.:\n0e"[random() % 17];
                break;
            }
            if (text.empty())
                text = "-";
        }
        tryAll(text);
    }
}

} // namespace
} // namespace rankyard::interop
