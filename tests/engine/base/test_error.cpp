// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/base/file.h"
#include "engine/base/json.h"

#include <gtest/gtest.h>

#include <cerrno>

using namespace rankyard;

TEST(Error, SaysWhatWhereFoundExpectedAndHint)
{
    const Error error = Error::make(Code::BadJob, "does not divide", "batch.micro")
                            .withFound("3")
                            .withExpected("4")
                            .withHint("Set batch.micro to 4");
    EXPECT_EQ(error.text(), "batch.micro: does not divide (found 3, expected 4). Set batch.micro to 4");
}

TEST(Error, RoundTripsThroughJson)
{
    const Error error = Error::make(Code::DoesNotFit, "too large", "rank 1")
                            .withFound("5 GiB")
                            .causedBy(Error::fromErrno(ENOSPC, "cannot write", "/x"));
    const Error back = Json(error).get<Error>();
    EXPECT_EQ(back.text(), error.text());
    EXPECT_EQ(back.code, Code::DoesNotFit);
    EXPECT_EQ(back.cause->code, Code::Io);
}

TEST(Error, ExitStatusesAreTheContract)
{
    EXPECT_EQ(static_cast<int>(exitFor(Code::Usage)), 2);
    EXPECT_EQ(static_cast<int>(exitFor(Code::BadJob)), 2);
    EXPECT_EQ(static_cast<int>(exitFor(Code::DoesNotFit)), 3);
    EXPECT_EQ(static_cast<int>(exitFor(Code::NotHere)), 3);
    EXPECT_EQ(static_cast<int>(exitFor(Code::RankFailed)), 4);
    EXPECT_EQ(static_cast<int>(exitFor(Code::NodeFailed)), 5);
    EXPECT_EQ(static_cast<int>(exitFor(Code::Stopped)), 6);
}

TEST(File, WritesAtomicallyAndReadsBack)
{
    const auto dir =
        std::filesystem::temp_directory_path() / ("rankyard öffne " + std::to_string(::getpid()));
    ASSERT_TRUE(makePrivateDir(dir / "a"));
    const auto path = dir / "a" / "x";
    ASSERT_TRUE(writeFileAtomically(path, std::string("one\0two", 7)));
    EXPECT_EQ(readFile(path).value(), std::string("one\0two", 7));
    EXPECT_EQ(readFile(dir / "none").error().code, Code::NotFound);
    EXPECT_EQ(writeFileAtomically(dir / "no" / "x", "1").error().code, Code::Io);
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir), {}), 1);
    std::filesystem::remove_all(dir);
}
