// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/base/json.h"

#include <gtest/gtest.h>

#include <limits>

using namespace rankyard;

TEST(Json, NamesLineAndColumn)
{
    EXPECT_EQ(parseJson("{\n  \"a\": ?\n}", "job.json").error().where, "job.json:2:8");
}

TEST(Json, RefusesDuplicateKeysAndTrailingBytes)
{
    EXPECT_FALSE(parseJson("{\"a\":1,\"a\":2}", "x"));
    EXPECT_TRUE(parseJson("{\"a\":{\"a\":2}}", "x"));
    EXPECT_FALSE(parseJson("{} {}", "x"));
    EXPECT_FALSE(parseJson(std::string(100000, '['), "x"));
    EXPECT_FALSE(parseJson(std::string(300, '[') + std::string(300, ']'), "x"));
    EXPECT_FALSE(parseJson("", "x"));
}

TEST(Json, NamesTheKeyThatStandsTwiceAndTheNumberThatIsTooLarge)
{
    const auto twice = parseJson(R"({"a": [{"x": 1}], "model": {"layers": 4, "b": {}, "layers": 5}})", "f");
    ASSERT_FALSE(twice);
    EXPECT_NE(twice.error().what.find("\"model.layers\""), std::string::npos) << twice.error().text();
    const auto large = parseJson(R"({"eps": 1e400})", "f");
    ASSERT_FALSE(large);
    EXPECT_EQ(large.error().found, "'1e400'");
    EXPECT_EQ(large.error().text().find("exception"), std::string::npos) << large.error().text();
}

TEST(Json, SchemaAcceptsOlderAndRefusesNewer)
{
    EXPECT_TRUE(checkSchema({{"schema", "rankyard/job/1"}}, "rankyard/job", 2, "j"));
    const auto newer = checkSchema({{"schema", "rankyard/job/3"}}, "rankyard/job", 2, "j");
    EXPECT_EQ(newer.error().code, Code::Newer);
    EXPECT_EQ(newer.error().found, "rankyard/job/3");
    EXPECT_FALSE(checkSchema({{"schema", "rankyard/run/1"}}, "rankyard/job", 2, "j"));
    EXPECT_FALSE(checkSchema({{"schema", "rankyard/job/x"}}, "rankyard/job", 2, "j"));
    EXPECT_FALSE(checkSchema(Json::array(), "rankyard/job", 2, "j"));
}

TEST(Json, DumpNeverThrows)
{
    EXPECT_EQ(dumpJson(Json(std::numeric_limits<double>::quiet_NaN())), "null");
    EXPECT_NO_THROW(dumpJson(Json("\xff")));
}
