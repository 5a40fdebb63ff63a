// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/checkpoint/manifest.h"

#include <gtest/gtest.h>

#include <functional>

using namespace rankyard;
using namespace rankyard::checkpoint;

namespace {

Manifest example()
{
    Manifest m;
    m.run = "r-20250101T000000-abcdef";
    m.epoch = 1;
    m.build = "0.1.0-abc";
    m.wallNs = 1735689600000000000;
    m.step = 12;
    m.skippedSteps = 2;
    m.consumedSamples = 192;
    m.scaler = {65536, 12, 2};
    m.dataSeed = ~0ULL;
    m.dataFingerprint = "xxh3-128:00";
    m.layout = {2, 1, 1, 1, 1, 1};
    m.job = {{"name", "sample"}, {"lr", 3e-4}};
    m.aliases = {{"head.weight", "wte.weight"}};
    m.files = {{"r0000-00.safetensors", 100, "xxh3-128:11"}, {"r0001-00.safetensors", 90, "xxh3-128:22"}};
    m.tensors = {
        {"wte.weight",
         Role::Param,
         DType::F32,
         {4, 3},
         {{"r0001-00.safetensors", "p", 7, 12}, {"r0000-00.safetensors", "p", 0, 7}}},
        {"wte.weight", Role::ExpAvgSq, DType::F32, {4, 3}, {{"r0000-00.safetensors", "v", 0, 12}}},
        {"norm.bias", Role::Master, DType::BF16, {0}, {}},
    };
    return m;
}

std::string text(const Manifest &m) { return dumpJson(writeManifest(m), 1); }

/// A document changed after its digest was made anew: what a forger or a careless editor writes.
std::string forged(const std::function<void(Json &)> &change)
{
    Json json = Json::parse(text(example()));
    change(json);
    json.erase("digest");
    json["digest"] = digestOf(dumpJson(json));
    return json.dump();
}

} // namespace

TEST(Manifest, RoundTrips)
{
    const Manifest m = example();
    ASSERT_TRUE(checkManifest(m));
    const auto back = readManifest(text(m), "m");
    ASSERT_TRUE(back) << back.error().text();
    EXPECT_EQ(text(*back), text(m));
    EXPECT_EQ(back->dataSeed, ~0ULL);
    EXPECT_EQ(back->layout, m.layout);
    EXPECT_EQ(back->scaler, m.scaler);
    EXPECT_EQ(back->skippedSteps, 2);
    EXPECT_EQ(back->files, m.files);
    EXPECT_EQ(back->job, m.job);
    EXPECT_EQ(back->find("wte.weight", Role::ExpAvgSq)->shards.size(), 1u);
    EXPECT_EQ(back->find("wte.weight", Role::ExpAvg), nullptr);
    EXPECT_EQ(manifestDigest(writeManifest(*back)), manifestDigest(writeManifest(m)));
    Manifest unseeded = m;
    unseeded.dataSeed.reset();
    EXPECT_FALSE(readManifest(text(unseeded), "m")->dataSeed);
    EXPECT_TRUE(readManifest(text(Manifest()), "m"));
    Manifest spent = m;
    spent.scaler.hysteresis = -6;
    EXPECT_EQ(readManifest(text(spent), "m")->scaler, spent.scaler);
}

TEST(Manifest, TheRulesOfShardsAndFiles)
{
    const auto refuse = [](const std::string &part, const std::function<void(Manifest &)> &change) {
        Manifest m = example();
        change(m);
        const auto status = checkManifest(m);
        ASSERT_FALSE(status) << part;
        EXPECT_EQ(status.error().code, Code::BadData);
        EXPECT_NE(status.error().text().find(part), std::string::npos) << status.error().text();
        EXPECT_FALSE(readManifest(text(m), "m")) << part;
    };
    refuse("more steps skipped", [](Manifest &m) { m.skippedSteps = m.step + 1; });
    refuse("in no shard", [](Manifest &m) { m.tensors[0].shards[1].end = 6; });
    refuse("in two shards", [](Manifest &m) { m.tensors[0].shards[1].end = 8; });
    refuse("in no shard", [](Manifest &m) { m.tensors[0].shards[0].end = 11; });
    refuse("in no shard", [](Manifest &m) { m.tensors[1].shards.clear(); });
    refuse("outside", [](Manifest &m) { m.tensors[0].shards[0].end = 13; });
    refuse("outside",
           [](Manifest &m) { std::swap(m.tensors[0].shards[0].begin, m.tensors[0].shards[0].end); });
    refuse("not listed", [](Manifest &m) { m.tensors[0].shards[0].file = "other"; });
    refuse("twice", [](Manifest &m) { m.tensors.push_back(m.tensors[0]); });
    refuse("twice", [](Manifest &m) { m.files.push_back(m.files[0]); });
    refuse("without a name", [](Manifest &m) { m.tensors[0].name.clear(); });
    refuse("63 bits", [](Manifest &m) { m.tensors[0].shape = {1LL << 40, 1LL << 40}; });
    refuse("63 bits", [](Manifest &m) { m.tensors[0].shape = {1LL << 62}; });
    refuse("alias", [](Manifest &m) { m.aliases[0].second = "none"; });
    for (const char *name : {"", ".", "..", "../x", "a/b", "/etc/passwd", ".hidden", "MANIFEST.json"})
        refuse("plain file name", [name](Manifest &m) { m.files[0].name = name; });
    refuse("plain file name", [](Manifest &m) { m.files[0].name = std::string("a\0b", 3); });
    refuse("plain file name", [](Manifest &m) { m.files[0].name = std::string(300, 'a'); });
    Manifest m = example();
    m.tensors[0].shards[0].begin = -1;
    EXPECT_FALSE(checkManifest(m));
}

TEST(Manifest, ForgedDocuments)
{
    ASSERT_TRUE(readManifest(forged([](Json &) {}), "m"));
    for (const char *key : {"schema", "run", "epoch", "build", "wall_ns", "step", "consumed_samples",
                            "scaler", "data", "layout", "job", "aliases", "tensors", "files"}) {
        EXPECT_FALSE(readManifest(forged([key](Json &json) { json.erase(key); }), "m")) << key;
        for (const Json &value : {Json(nullptr), Json(-1), Json(1.5), Json("x"), Json::array({1}),
                                  Json{{"a", 1}}, Json(~0ULL), Json(true)}) {
            const auto read = readManifest(forged([&](Json &json) { json[key] = value; }), "m");
            const bool anything = std::string(key) == "job";
            const bool word = value.is_string() && (std::string(key) == "run" || std::string(key) == "build");
            EXPECT_EQ(read.ok(), anything || word) << key << value;
        }
    }
    for (const char *key : {"name", "role", "dtype", "shape", "shards"}) {
        for (const Json &value : {Json(nullptr), Json(-1), Json::array({-1}), Json::array({nullptr}),
                                  Json("?"), Json::object()}) {
            const auto read = readManifest(forged([&](Json &json) { json["tensors"][1][key] = value; }), "m");
            EXPECT_EQ(read.ok(), std::string(key) == "name" && value.is_string()) << key << value;
        }
    }
    EXPECT_EQ(
        readManifest(forged([](Json &json) { json["schema"] = "rankyard/checkpoint/2"; }), "m").error().code,
        Code::Newer);
    const auto where =
        readManifest(forged([](Json &json) { json["tensors"][1]["shards"][0]["begin"] = 1.5; }), "m")
            .error()
            .where;
    EXPECT_NE(where.find("tensors[1].shards.begin"), std::string::npos) << where;
}

/// The digest finds every single changed byte that JSON itself lets through.
TEST(Manifest, DamageAtEveryByteIsFound)
{
    const std::string good = dumpJson(writeManifest(example()));
    ASSERT_TRUE(readManifest(good, "m"));
    for (std::size_t size = 0; size < good.size(); ++size)
        ASSERT_FALSE(readManifest(std::string_view(good).substr(0, size), "m")) << size;
    for (std::size_t at = 0; at < good.size(); ++at) {
        for (const int flip : {1, 2, 8, 32, 128}) {
            std::string damaged = good;
            damaged[at] = static_cast<char>(damaged[at] ^ flip);
            ASSERT_FALSE(readManifest(damaged, "m"))
                << at << ' ' << damaged.substr(at > 20 ? at - 20 : 0, 40);
        }
    }
}
