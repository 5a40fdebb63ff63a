// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/base/json.h"
#include "engine/checkpoint/safetensors.h"
#include "scratch.h"

#include <cstring>

using namespace rankyard;
using namespace rankyard::checkpoint;
using rankyard::checkpoint::test::namesOf;
using rankyard::checkpoint::test::Scratch;
using rankyard::checkpoint::test::slurp;

namespace {

std::string fileOf(const std::string &header, const std::string &data)
{
    const std::uint64_t length = header.size();
    return std::string(reinterpret_cast<const char *>(&length), 8) + header + data;
}

template<typename T>
std::span<const std::byte> bytesOfVector(const std::vector<T> &values)
{
    return std::as_bytes(std::span<const T>(values));
}

Result<SafetensorsFile> openBytes(const Scratch &dir, const std::string &content)
{
    return SafetensorsFile::open(dir.write("x.safetensors", content));
}

} // namespace

TEST(Safetensors, WritesAndReadsEveryType)
{
    const Scratch dir;
    const std::vector<TensorSpec> specs = {
        {"double", DType::F64, {2}},  {"long", DType::I64, {1}},     {"float", DType::F32, {2, 2}},
        {"scalar", DType::F32, {}},   {"empty", DType::F32, {0, 7}}, {"bf16", DType::BF16, {3}},
        {"half", DType::F16, {1, 1}},
    };
    auto writer = SafetensorsWriter::create(dir / "a.safetensors", specs, {{"format", "pt"}, {"naïve", "ü"}});
    ASSERT_TRUE(writer) << writer.error().text();
    EXPECT_EQ(writer->dataBytes(), 16 + 8 + 16 + 4 + 0 + 6 + 2);
    ASSERT_TRUE(writer->write(bytesOfVector(std::vector<double>{1.5, -2.5})));
    ASSERT_TRUE(writer->write(bytesOfVector(std::vector<std::int64_t>{1LL << 40})));
    const std::vector<float> floats = {1, 2, 3, 4, 5};
    ASSERT_TRUE(writer->write(bytesOfVector(floats).first(7))); // pieces end anywhere
    ASSERT_TRUE(writer->write(bytesOfVector(floats).subspan(7)));
    ASSERT_TRUE(writer->write(bytesOfVector(std::vector<std::uint16_t>{0x3f80, 0x4000, 0x4040, 0x3c00})));
    EXPECT_EQ(namesOf(dir.path()), (std::set<std::string>{"a.safetensors.part"}));
    const auto entry = writer->finish();
    ASSERT_TRUE(entry) << entry.error().text();
    EXPECT_EQ(namesOf(dir.path()), (std::set<std::string>{"a.safetensors"}));
    const std::string content = slurp(dir / "a.safetensors");
    EXPECT_EQ(*entry,
              (FileEntry{"a.safetensors", static_cast<std::int64_t>(content.size()), digestOf(content)}));
    std::uint64_t header = 0;
    std::memcpy(&header, content.data(), 8);
    EXPECT_EQ(header % 8, 0u);
    EXPECT_EQ(content[8], '{');

    const auto file = SafetensorsFile::open(dir / "a.safetensors");
    ASSERT_TRUE(file) << file.error().text();
    ASSERT_EQ(file->tensors().size(), specs.size());
    for (const TensorSpec &spec : specs) {
        const StoredTensor *tensor = file->find(spec.name);
        ASSERT_NE(tensor, nullptr);
        EXPECT_EQ(tensor->dtype, spec.dtype);
        EXPECT_EQ(tensor->shape, spec.shape);
    }
    EXPECT_EQ(file->find("none"), nullptr);
    EXPECT_EQ(file->metadata().at("naïve"), "ü");
    EXPECT_EQ(file->find("float")->type, "F32");
    float values[4];
    std::memcpy(values, file->find("float")->data.data(), 16);
    EXPECT_EQ(values[3], 4);
    EXPECT_EQ(file->find("scalar")->elements, 1);
    EXPECT_EQ(file->find("empty")->data.size(), 0u);
}

TEST(Safetensors, AnUnfinishedFileIsRemoved)
{
    const Scratch dir;
    {
        auto writer = SafetensorsWriter::create(dir / "a", {{"x", DType::F32, {2}}});
        ASSERT_TRUE(writer);
        EXPECT_EQ(writer->finish().error().code, Code::Internal);
        EXPECT_EQ(writer->write(bytesOfVector(std::vector<float>{1, 2, 3})).error().code, Code::Internal);
    }
    EXPECT_TRUE(namesOf(dir.path()).empty());
    const std::int64_t huge = std::int64_t(1) << 40;
    EXPECT_FALSE(SafetensorsWriter::create(dir / "a", {{"x", DType::F32, {huge, huge}}}));
    EXPECT_FALSE(SafetensorsWriter::create(dir / "a", {{"x", DType::F64, {std::int64_t(1) << 61}}}));
    EXPECT_FALSE(SafetensorsWriter::create(dir / "a", {{"x", DType::F32, {-1}}}));
    EXPECT_FALSE(SafetensorsWriter::create(dir / "a", {{"x", DType::F32, {1}}, {"x", DType::F32, {1}}}));
    EXPECT_FALSE(SafetensorsWriter::create(dir / "a", {{"__metadata__", DType::F32, {1}}}));
    EXPECT_EQ(SafetensorsWriter::create(dir / "no/a", {}).error().code, Code::Io);
    EXPECT_TRUE(namesOf(dir.path()).empty());
    auto none = SafetensorsWriter::create(dir / "none", {});
    ASSERT_TRUE(none);
    ASSERT_TRUE(none->finish());
    EXPECT_TRUE(SafetensorsFile::open(dir / "none"));
}

TEST(Safetensors, EachRuleOfTheFormatIsChecked)
{
    const Scratch dir;
    const std::string four(4, 'x');
    const auto tensor = [](const std::string &rest) { return "{\"a\":" + rest + "}"; };
    struct Case {
        std::string content;
        std::string part;
    };
    const std::vector<Case> cases = {
        {"", "too short"},
        {"1234567", "too short"},
        {fileOf("", ""), "begin with {"},
        {fileOf(" {}", ""), "begin with {"},
        {fileOf("{}", "x"), "after the last"},
        {fileOf("{", ""), "JSON"},
        {fileOf("{\"\xff\": 1}", ""), "JSON"},
        {fileOf("{}x", ""), "JSON"},
        {fileOf("{\"a\": 1, \"a\": 2}", ""), "twice"},
        {fileOf("{\"__metadata__\": {\"a\": 1}}", ""), "__metadata__"},
        {fileOf("{\"__metadata__\": []}", ""), "__metadata__"},
        {fileOf(tensor("1"), ""), "description"},
        {fileOf(tensor("{\"dtype\":\"F32\",\"shape\":[1]}"), four), "description"},
        {fileOf(tensor("{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}"), four), "description"},
        {fileOf(tensor("{\"dtype\":\"F33\",\"shape\":[1],\"data_offsets\":[0,4]}"), four), "unknown type"},
        {fileOf(tensor("{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}"), four), "extent"},
        {fileOf(tensor("{\"dtype\":\"F32\",\"shape\":[1.0],\"data_offsets\":[0,4]}"), four), "extent"},
        {fileOf(tensor("{\"dtype\":\"F32\",\"shape\":[18446744073709551615],\"data_offsets\":[0,4]}"), four),
         "extent"},
        {fileOf(tensor("{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]}"), four), "range"},
        {fileOf(tensor("{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[-4,0]}"), four), "range"},
        {fileOf(tensor("{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}"), four), "disagree"},
        {fileOf(tensor("{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}"), "xxx"), "truncated"},
        {fileOf(tensor("{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}"), "xxxxx"),
         "after the last"},
        {fileOf(tensor("{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}"), four + four), "hole"},
        {fileOf(
             tensor(
                 "{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296,4294967296],\"data_offsets\":[0,4]}"),
             four),
         "63 bits"},
        {fileOf(tensor("{\"dtype\":\"F32\",\"shape\":[2305843009213693952],\"data_offsets\":[0,4]}"), four),
         "63 bits"},
        {fileOf(tensor("{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,2]}"), "xx"), "whole byte"},
        {fileOf(
             "{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[1,3]}}",
             "xxx"),
         "overlaps"},
        {fileOf(
             "{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}",
             "xx"),
         "overlaps"},
    };
    for (const Case &c : cases) {
        const auto file = openBytes(dir, c.content);
        ASSERT_FALSE(file) << c.content;
        EXPECT_EQ(file.error().code, Code::BadData);
        EXPECT_NE(file.error().text().find(c.part), std::string::npos) << file.error().text();
    }
    for (const std::uint64_t length :
         {100'000'001ULL, ~0ULL, 1ULL << 63, 0x7fffffffffffffffULL, 99'999'999ULL}) {
        std::string content = fileOf("{}", "");
        std::memcpy(content.data(), &length, 8);
        EXPECT_FALSE(openBytes(dir, content));
    }
    EXPECT_EQ(SafetensorsFile::open(dir / "none").error().code, Code::NotFound);
}

TEST(Safetensors, ForeignFilesAreRead)
{
    const Scratch dir;
    // Padded header, any order of keys, empty tensors, types that Rankyard does not compute with.
    const auto file = openBytes(
        dir,
        fileOf(
            "{\"z\":{\"shape\":[2,2],\"data_offsets\":[3,5],\"dtype\":\"F4\"},\"e\":{\"dtype\":\"F32\",\"shape\":[5,0],\"data_offsets\":[3,3]},"
            "\"a\":{\"dtype\":\"F8_E4M3\",\"shape\":[3],\"data_offsets\":[0,3]}}      ",
            "abcde"));
    ASSERT_TRUE(file) << file.error().text();
    EXPECT_EQ(file->tensors()[0].name, "a");
    EXPECT_FALSE(file->find("a")->dtype);
    EXPECT_EQ(static_cast<char>(file->find("z")->data[1]), 'e');
}

/// Each truncation is refused; each flipped bit gives an error or a file whose every byte can be read.
TEST(Safetensors, DamageAtEveryByteIsHarmless)
{
    const Scratch dir;
    auto writer = SafetensorsWriter::create(dir / "a", {{"w", DType::F32, {2, 3}}, {"b", DType::BF16, {3}}},
                                            {{"k", "v"}});
    ASSERT_TRUE(writer);
    ASSERT_TRUE(writer->write(bytesOfVector(std::vector<std::uint8_t>(30, 7))));
    ASSERT_TRUE(writer->finish());
    const std::string good = slurp(dir / "a");
    for (std::size_t size = 0; size < good.size(); ++size)
        EXPECT_FALSE(openBytes(dir, good.substr(0, size))) << size;
    std::size_t sum = 0;
    for (std::size_t at = 0; at < good.size(); ++at) {
        for (const int flip : {1, 2, 4, 8, 16, 32, 64, 128, 255}) {
            std::string damaged = good;
            damaged[at] = static_cast<char>(damaged[at] ^ flip);
            const auto file = openBytes(dir, damaged);
            if (!file)
                continue;
            for (const StoredTensor &tensor : file->tensors()) {
                for (const std::byte byte : tensor.data)
                    sum += static_cast<std::size_t>(byte);
            }
        }
    }
    EXPECT_GT(sum, 0u);
}
