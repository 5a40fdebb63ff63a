// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/base/digest.h"
#include "engine/base/mapped_file.h"

#include "engine/base/file.h"

#include <gtest/gtest.h>

#include <unistd.h>

using namespace rankyard;

TEST(Digest, IsXxh3OfTheWholeStream)
{
    // What `xxhsum -H2` prints.
    EXPECT_EQ(digestOf(""), "xxh3-128:99aa06d3014798d86001c324468d497f");
    EXPECT_EQ(digestOf("abc"), "xxh3-128:06b05ab6733a618578af5f94892f3950");
    Digest digest;
    std::string all;
    for (int i = 0; i < 1000; ++i) {
        const std::string part(static_cast<std::size_t>(i), static_cast<char>('a' + i % 26));
        digest.update(part.data(), part.size());
        all += part;
    }
    EXPECT_EQ(digest.text(), digestOf(all));
}

TEST(MappedFile, MapsReadsAndRefuses)
{
    const auto path = std::filesystem::temp_directory_path() / ("rankyard map " + std::to_string(::getpid()));
    ASSERT_TRUE(writeFileAtomically(path, "content"));
    auto file = MappedFile::open(path);
    ASSERT_TRUE(file);
    const MappedFile moved = std::move(file).value();
    EXPECT_EQ(moved.size(), 7u);
    EXPECT_EQ(static_cast<char>(moved.bytes()[6]), 't');
    EXPECT_EQ(digestOfFile(path).value(), digestOf("content"));
    ASSERT_TRUE(writeFileAtomically(path, ""));
    EXPECT_EQ(MappedFile::open(path).value().size(), 0u);
    std::filesystem::remove(path);
    EXPECT_EQ(MappedFile::open(path).error().code, Code::NotFound);
    EXPECT_EQ(digestOfFile(path).error().code, Code::NotFound);
    EXPECT_EQ(MappedFile::open(std::filesystem::temp_directory_path()).error().code, Code::BadData);
}
