// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/data/indexed_dataset.h"
#include "scratch.h"

#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <sys/resource.h>

using namespace rankyard;
using namespace rankyard::data;
using rankyard::data::test::Scratch;
using rankyard::data::test::slurp;

namespace {

template<typename T>
void put(std::string &out, T value)
{
    out.append(reinterpret_cast<const char *>(&value), sizeof value);
}

struct Index {
    std::string magic = std::string("MMIDIDX\0\0", 9);
    std::uint64_t version = 1;
    std::uint8_t code = 8;
    std::vector<std::int32_t> lengths;
    std::vector<std::int64_t> pointers;
    std::vector<std::int64_t> documents;

    std::string bytes() const
    {
        std::string out = magic;
        put(out, version);
        put(out, code);
        put<std::uint64_t>(out, lengths.size());
        put<std::uint64_t>(out, documents.size());
        for (const auto length : lengths)
            put(out, length);
        for (const auto pointer : pointers)
            put(out, pointer);
        for (const auto document : documents)
            put(out, document);
        return out;
    }
};

template<typename T>
std::string packed(const std::vector<T> &values)
{
    return {reinterpret_cast<const char *>(values.data()), values.size() * sizeof(T)};
}

std::vector<std::int32_t> all(const IndexedDataset &dataset)
{
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(dataset.tokens()));
    dataset.read(0, dataset.tokens(), tokens.data());
    return tokens;
}

/// Two documents: {1, 2, 3} and {4, 5}.
Index twoDocuments() { return {.lengths = {3, 2}, .pointers = {0, 6}, .documents = {0, 1, 2}}; }

Result<IndexedDataset> openPair(const Scratch &dir, const std::string &idx, const std::string &bin)
{
    dir.write("x.idx", idx);
    dir.write("x.bin", bin);
    return IndexedDataset::open(dir / "x");
}

/// Everything that a caller can reach, so that sanitizers see a bad access.
void touch(const IndexedDataset &dataset)
{
    for (std::int64_t i = 0; i < dataset.sequences(); ++i)
        (void)dataset.sequenceLength(i);
    for (std::int64_t i = 0; i <= dataset.documents(); ++i)
        (void)dataset.documentBegin(i);
    ASSERT_LT(dataset.tokens(), 100000);
    all(dataset);
    dataset.scan();
}

} // namespace

TEST(IndexedDataset, WritesMegatronsBytes)
{
    const Scratch dir;
    auto writer = IndexedDatasetWriter::create(dir / "x", 512);
    ASSERT_TRUE(writer);
    ASSERT_TRUE(writer->add(std::vector<std::int32_t>{1, 2}));
    ASSERT_TRUE(writer->add(std::vector<std::int32_t>{3}));
    ASSERT_TRUE(writer->endDocument());
    ASSERT_TRUE(writer->endDocument()); // an empty one is not stored
    ASSERT_TRUE(writer->add(std::vector<std::int32_t>{4, 5}));
    ASSERT_TRUE(writer->finish());
    EXPECT_EQ(dir.names(), (std::set<std::string>{"x.bin", "x.idx"}));
    EXPECT_EQ(slurp(dir / "x.bin"), packed<std::uint16_t>({1, 2, 3, 4, 5}));
    EXPECT_EQ(slurp(dir / "x.idx"), twoDocuments().bytes());
    EXPECT_EQ(writer->fingerprint(), digestOf(packed<std::uint16_t>({1, 2, 3, 4, 5})));
    EXPECT_EQ(writer->maxToken(), 5);

    const auto dataset = IndexedDataset::open(dir / "x.bin"); // a suffix does no harm
    ASSERT_TRUE(dataset) << dataset.error().text();
    EXPECT_EQ(dataset->documents(), 2);
    EXPECT_EQ(dataset->sequences(), 2);
    EXPECT_EQ(all(*dataset), (std::vector<std::int32_t>{1, 2, 3, 4, 5}));
    std::int32_t out[3];
    EXPECT_EQ(dataset->read(1, 3, out), 4u);
    EXPECT_EQ(out[2], 4);
    EXPECT_EQ(dataset->scan().maxToken, 5);
    EXPECT_EQ(dataset->scan().minToken, 1);
    EXPECT_TRUE(dataset->warnings().empty());
}

TEST(IndexedDataset, LargeVocabulariesTake32Bits)
{
    const Scratch dir;
    for (const std::int64_t vocab : {65499, 65500}) {
        auto writer = IndexedDatasetWriter::create(dir / "v", vocab);
        ASSERT_TRUE(writer);
        ASSERT_TRUE(writer->add(std::vector<std::int32_t>{0, static_cast<std::int32_t>(vocab) - 1}));
        ASSERT_TRUE(writer->finish());
        const auto dataset = IndexedDataset::open(dir / "v");
        ASSERT_TRUE(dataset);
        EXPECT_EQ(dataset->type(), vocab < 65500 ? TokenType::U16 : TokenType::I32);
        EXPECT_EQ(all(*dataset).back(), vocab - 1);
    }
}

TEST(IndexedDataset, ManyBlocksAndDocuments)
{
    const Scratch dir;
    auto writer = IndexedDatasetWriter::create(dir / "m", 60000);
    ASSERT_TRUE(writer);
    std::vector<std::int32_t> expected;
    for (std::int32_t i = 0; i < 3000; ++i) {
        std::vector<std::int32_t> document(static_cast<std::size_t>(i % 700));
        for (auto &token : document)
            token = static_cast<std::int32_t>((expected.size() * 7919 + static_cast<std::size_t>(i)) % 60000);
        expected.insert(expected.end(), document.begin(), document.end());
        ASSERT_TRUE(writer->add(document));
        ASSERT_TRUE(writer->endDocument());
    }
    ASSERT_TRUE(writer->finish());
    const auto dataset = IndexedDataset::open(dir / "m");
    ASSERT_TRUE(dataset);
    EXPECT_EQ(all(*dataset), expected);
    EXPECT_EQ(dataset->documents(), 3000 - 5); // five have no tokens
    EXPECT_EQ(dataset->scan().fingerprint, writer->fingerprint());
}

TEST(IndexedDataset, FailuresLeaveNothingBehindAndTheOldPairInPlace)
{
    const Scratch dir;
    dir.write("x.idx", twoDocuments().bytes());
    dir.write("x.bin", packed<std::uint16_t>({1, 2, 3, 4, 5}));
    {
        auto writer = IndexedDatasetWriter::create(dir / "x", 100);
        ASSERT_TRUE(writer);
        EXPECT_EQ(writer->add(std::vector<std::int32_t>{100}).error().code, Code::BadData);
        EXPECT_EQ(writer->add(std::vector<std::int32_t>{-1}).error().code, Code::BadData);
    }
    EXPECT_EQ(dir.names(), (std::set<std::string>{"x.bin", "x.idx"}));
    {
        auto writer = IndexedDatasetWriter::create(dir / "new/deep/x", 100);
        ASSERT_TRUE(writer);
    }
    EXPECT_EQ(dir.names(), (std::set<std::string>{"x.bin", "x.idx"}));
    EXPECT_TRUE(IndexedDataset::open(dir / "x"));
    EXPECT_EQ(IndexedDatasetWriter::create(dir.path().string() + "/", 100).error().code, Code::Usage);
    EXPECT_EQ(IndexedDatasetWriter::create("/proc/none/x", 100).error().code, Code::Io);
}

/// A file-size limit stands for the full disk: the same error path, EFBIG instead of ENOSPC. Every size of limit is tried.
TEST(IndexedDataset, AFullDiskAtAnyPointLeavesTheOldPair)
{
    const Scratch dir;
    dir.write("x.idx", twoDocuments().bytes());
    dir.write("x.bin", packed<std::uint16_t>({1, 2, 3, 4, 5}));
    const auto previous = std::signal(SIGXFSZ, SIG_IGN);
    rlimit old{};
    ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old), 0);
    bool done = false;
    int failures = 0;
    for (rlim_t limit = 0; limit < 400 && !done; limit += 7) {
        const rlimit small{limit, old.rlim_max};
        ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
        auto writer = IndexedDatasetWriter::create(dir / "x", 100);
        Status status = writer ? Status() : writer.error();
        for (int i = 0; i < 8 && status; ++i) {
            status = writer->add(std::vector<std::int32_t>{7, 8, 9});
            if (status)
                status = writer->endDocument();
        }
        if (status)
            status = writer->finish([] { return std::vector<Companion>{}; });
        ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &old), 0);
        EXPECT_EQ(dir.names(), (std::set<std::string>{"x.bin", "x.idx"})) << limit;
        const auto dataset = IndexedDataset::open(dir / "x");
        ASSERT_TRUE(dataset) << dataset.error().text();
        EXPECT_EQ(dataset->tokens(), status ? 24 : 5);
        done = status.ok();
        failures += !status.ok();
    }
    std::signal(SIGXFSZ, previous);
    EXPECT_TRUE(done);
    EXPECT_GT(failures, 10);
}

TEST(IndexedDataset, EachRuleOfTheFormatIsChecked)
{
    const Scratch dir;
    const std::string bin = packed<std::uint16_t>({1, 2, 3, 4, 5});
    const auto refuse = [&](const Index &index, const std::string &part, const std::string &data) {
        const auto dataset = openPair(dir, index.bytes(), data);
        ASSERT_FALSE(dataset) << part;
        EXPECT_EQ(dataset.error().code, Code::BadData);
        EXPECT_NE(dataset.error().text().find(part), std::string::npos) << dataset.error().text();
    };
    ASSERT_TRUE(openPair(dir, twoDocuments().bytes(), bin));
    Index index = twoDocuments();
    index.magic = std::string("TNTIDX\0\0", 8) + "\1";
    refuse(index, "fairseq", bin);
    index = twoDocuments();
    index.magic[0] = 'X';
    refuse(index, "MMIDIDX", bin);
    index = twoDocuments();
    index.version = 2;
    refuse(index, "version", bin);
    for (const int code : {0, 6, 7, 9, 255}) {
        index = twoDocuments();
        index.code = static_cast<std::uint8_t>(code);
        if (code != 6) // 6 with two bytes a token is DeepSpeed's u16
            refuse(index, "code " + std::to_string(code), bin);
    }
    index = twoDocuments();
    index.lengths = {3, -2};
    refuse(index, "negative", bin);
    index = twoDocuments();
    index.pointers = {0, -6};
    refuse(index, "beyond", bin);
    index = twoDocuments();
    index.pointers = {0, std::numeric_limits<std::int64_t>::max()};
    refuse(index, "beyond", bin);
    index = twoDocuments();
    index.documents = {0, 2, 1};
    refuse(index, "smaller", bin);
    index = twoDocuments();
    index.documents = {1, 1, 2};
    refuse(index, "first document", bin);
    index = twoDocuments();
    index.documents = {0, 1, 1};
    refuse(index, "last document", bin);
    index = twoDocuments();
    index.documents = {};
    refuse(index, "document bounds", bin);
    refuse(twoDocuments(), "truncated", bin.substr(0, 8));
    refuse(twoDocuments(), "longer", bin + "ab");

    // Counts that overflow every product.
    std::string bytes = twoDocuments().bytes();
    for (const std::size_t offset : {18u, 26u}) {
        for (const std::uint64_t count : {~0ULL, 1ULL << 63, 1ULL << 61, (1ULL << 60) + 1, 1000ULL}) {
            std::string hostile = bytes;
            std::memcpy(hostile.data() + offset, &count, 8);
            EXPECT_FALSE(openPair(dir, hostile, bin));
        }
    }
    EXPECT_EQ(IndexedDataset::open(dir / "none").error().code, Code::NotFound);
    std::filesystem::remove(dir / "x.bin");
    EXPECT_EQ(IndexedDataset::open(dir / "x").error().code, Code::NotFound);
    std::filesystem::create_directory(dir / "x.bin");
    EXPECT_FALSE(IndexedDataset::open(dir / "x"));
}

TEST(IndexedDataset, ReadsEveryTypeAndDeepSpeedsCodes)
{
    const Scratch dir;
    const auto index = [](int code, std::int64_t itemBytes) {
        Index made = twoDocuments();
        made.code = static_cast<std::uint8_t>(code);
        made.pointers = {0, 3 * itemBytes};
        return made.bytes();
    };
    const std::vector<std::int32_t> tokens = {1, 2, 3, 4, 5};
    const auto check = [&](const Result<IndexedDataset> &dataset, TokenType type) {
        ASSERT_TRUE(dataset) << dataset.error().text();
        EXPECT_EQ(dataset->type(), type);
        EXPECT_EQ(all(*dataset), tokens);
    };
    check(openPair(dir, index(1, 1), packed<std::uint8_t>({1, 2, 3, 4, 5})), TokenType::U8);
    check(openPair(dir, index(2, 1), packed<std::int8_t>({1, 2, 3, 4, 5})), TokenType::I8);
    check(openPair(dir, index(3, 2), packed<std::int16_t>({1, 2, 3, 4, 5})), TokenType::I16);
    check(openPair(dir, index(4, 4), packed<std::int32_t>({1, 2, 3, 4, 5})), TokenType::I32);
    check(openPair(dir, index(5, 8), packed<std::int64_t>({1, 2, 3, 4, 5})), TokenType::I64);
    check(openPair(dir, index(8, 2), packed<std::uint16_t>({1, 2, 3, 4, 5})), TokenType::U16);
    // DeepSpeed: 6 u16, 7 u32, 8 u64.
    check(openPair(dir, index(6, 2), packed<std::uint16_t>({1, 2, 3, 4, 5})), TokenType::U16);
    check(openPair(dir, index(7, 4), packed<std::uint32_t>({1, 2, 3, 4, 5})), TokenType::U32);
    check(openPair(dir, index(8, 8), packed<std::uint64_t>({1, 2, 3, 4, 5})), TokenType::U64);
    // Megatron's f64.
    EXPECT_FALSE(openPair(dir, index(6, 8), packed<double>({1, 2, 3, 4, 5})));

    // Values that int32 cannot hold, and negative ones, are larger than any vocabulary.
    const auto wide = openPair(dir, index(5, 8), packed<std::int64_t>({1, 2, 3, 1LL << 40, 5}));
    ASSERT_TRUE(wide);
    std::int32_t out[5];
    EXPECT_EQ(wide->read(0, 5, out), 0xffffffffu);
    EXPECT_EQ(wide->scan().maxToken, 1LL << 40);
    const auto negative = openPair(dir, index(2, 1), packed<std::int8_t>({1, 2, 3, -4, 5}));
    ASSERT_TRUE(negative);
    EXPECT_GT(negative->read(0, 5, out), 1000u);
    EXPECT_EQ(negative->scan().minToken, -4);
    const auto huge = openPair(dir, index(8, 8), packed<std::uint64_t>({1, 2, 3, ~0ULL, 5}));
    ASSERT_TRUE(huge);
    EXPECT_EQ(huge->scan().maxToken, std::numeric_limits<std::int64_t>::max());
}

TEST(IndexedDataset, ForeignOrderIsReadWithAWarning)
{
    const Scratch dir;
    Index index = twoDocuments();
    index.pointers = {4, 0}; // {3, 4, 5} then {1, 2}
    auto dataset = openPair(dir, index.bytes(), packed<std::uint16_t>({1, 2, 3, 4, 5}));
    ASSERT_TRUE(dataset) << dataset.error().text();
    EXPECT_EQ(dataset->warnings().size(), 1u);
    EXPECT_EQ(all(*dataset), (std::vector<std::int32_t>{3, 4, 5, 1, 2}));
    std::int32_t out[2];
    EXPECT_EQ(dataset->read(2, 2, out), 5u);
    EXPECT_EQ(out[0], 5);
    EXPECT_EQ(out[1], 1);
    index.lengths = {0, 2};
    index.pointers = {10, 6};
    dataset = openPair(dir, index.bytes(), packed<std::uint16_t>({1, 2, 3, 4, 5}));
    ASSERT_TRUE(dataset);
    EXPECT_EQ(all(*dataset), (std::vector<std::int32_t>{4, 5}));
    // Multimodal modes at the end are allowed.
    EXPECT_TRUE(
        openPair(dir, twoDocuments().bytes() + std::string(2, '\0'), packed<std::uint16_t>({1, 2, 3, 4, 5})));
}

/// Offsets beyond 4 GiB (Megatron-LM#1672), on a sparse file.
TEST(IndexedDataset, MoreThanFourGibibytes)
{
    const Scratch dir;
    const std::int64_t length = std::int64_t(1) << 30;
    Index index{.lengths = {static_cast<std::int32_t>(length), static_cast<std::int32_t>(length),
                            static_cast<std::int32_t>(length)},
                .pointers = {0, 2 * length, 4 * length},
                .documents = {0, 3}};
    dir.write("x.idx", index.bytes());
    {
        const Fd fd(::open((dir / "x.bin").c_str(), O_WRONLY | O_CREAT, 0600));
        ASSERT_EQ(::ftruncate(fd.get(), 6 * length), 0);
        const std::uint16_t last[2] = {41, 42};
        ASSERT_EQ(::pwrite(fd.get(), last, 4, 6 * length - 4), 4);
    }
    const auto dataset = IndexedDataset::open(dir / "x");
    ASSERT_TRUE(dataset) << dataset.error().text();
    EXPECT_EQ(dataset->tokens(), 3 * length);
    std::int32_t out[3];
    EXPECT_EQ(dataset->read(3 * length - 3, 3, out), 42u);
    EXPECT_EQ(out[0], 0);
    EXPECT_EQ(out[1], 41);
}

/// Each truncation and each flipped bit: an error or a dataset whose every access is in range.
TEST(IndexedDataset, DamageAtEveryByteIsHarmless)
{
    const Scratch dir;
    const std::string idx = twoDocuments().bytes();
    const std::string bin = packed<std::uint16_t>({1, 2, 3, 4, 5});
    for (std::size_t size = 0; size < idx.size(); ++size)
        EXPECT_FALSE(openPair(dir, idx.substr(0, size), bin)) << size;
    for (std::size_t size = 0; size < bin.size(); ++size)
        EXPECT_FALSE(openPair(dir, idx, bin.substr(0, size))) << size;
    int opened = 0;
    for (std::size_t at = 0; at < idx.size(); ++at) {
        for (const int flip : {1, 2, 4, 8, 16, 32, 64, 128, 255}) {
            std::string damaged = idx;
            damaged[at] = static_cast<char>(damaged[at] ^ flip);
            const auto dataset = openPair(dir, damaged, bin);
            if (dataset) {
                ++opened;
                touch(*dataset);
            }
        }
    }
    EXPECT_LT(opened, 60); // a few are other legal files: document bounds, signed for unsigned
}
