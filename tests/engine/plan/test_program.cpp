// SPDX-License-Identifier: GPL-3.0-or-later
#include "tests/engine/plan/jobs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rankyard::plan {

using testing::HasSubstr;

namespace {

Json documentOf(const StepProgram &program) { return *parseJson(dumpJson(writeProgram(program)), "program"); }

/// Every place in a document, as JSON pointers.
void collect(const Json &json, const Json::json_pointer &at, std::vector<Json::json_pointer> &places)
{
    places.push_back(at);
    if (json.is_object()) {
        for (const auto &[key, value] : json.items())
            collect(value, at / key, places);
    } else if (json.is_array()) {
        for (std::size_t i = 0; i < json.size(); ++i)
            collect(json[i], at / i, places);
    }
}

} // namespace

TEST(Program, JsonRoundTrip)
{
    std::mt19937_64 random(3);
    for (int i = 0; i < 20; ++i) {
        const auto plan = makePlan(randomJob(random));
        ASSERT_TRUE(plan) << plan.error().text();
        for (const StepProgram &program : plan->programs) {
            const auto back = readProgram(documentOf(program), "program");
            ASSERT_TRUE(back) << back.error().text();
            EXPECT_EQ(*back, program);
            EXPECT_EQ(dumpJson(writeProgram(*back)), dumpJson(writeProgram(program)));
        }
    }
}

TEST(Program, JsonHasTheKeysOfTheFormat)
{
    const auto plan = makePlan(smallJob());
    const Json json = documentOf(plan->programs[0]);
    EXPECT_EQ(json["schema"], "rankyard/program/1");
    EXPECT_EQ(json["kind"], "train");
    EXPECT_EQ(json["groups"][0], (Json{{"id", 0}, {"name", "dp"}, {"axes", {"dp"}}, {"size", 2}}));
    const Json &op = json["ops"][0];
    EXPECT_EQ(op["kind"], "all-gather");
    EXPECT_EQ(op["stream"], "data");
    EXPECT_EQ(op["payload"], 7680);
    EXPECT_FALSE(op.contains("accumulate"));
    EXPECT_EQ(json["ops"][2]["unit"], "embedding");
    EXPECT_EQ(json["ops"][2]["waits"], Json{0});
}

TEST(Program, HostileDocumentsAreErrors)
{
    StepProgram program = makePlan(smallJob(2, 1, 1))->programs[0];
    program.digest.clear(); // else every change would be caught by it alone
    const Json whole = documentOf(program);
    ASSERT_TRUE(readProgram(whole, "program"));

    std::vector<Json::json_pointer> places;
    collect(whole, Json::json_pointer(), places);
    const std::vector<Json> poison = {nullptr,
                                      true,
                                      -1,
                                      -2,
                                      1.5,
                                      1e300,
                                      "",
                                      "x",
                                      Json::array(),
                                      Json::object(),
                                      Json::array({-1}),
                                      std::numeric_limits<std::int64_t>::max(),
                                      std::numeric_limits<std::uint64_t>::max(),
                                      1ll << 40,
                                      std::numeric_limits<std::int32_t>::max(),
                                      Json::array({1ll << 50, 1ll << 50})};
    std::mt19937_64 random(11);
    int refused = 0;
    int harmless = 0;
    const int documents = 6000 / sanitizerShare;
    for (int i = 0; i < documents; ++i) {
        Json json = whole;
        const auto &place = places[random() % places.size()];
        switch (random() % 3) {
        case 0:
            json[place] = poison[random() % poison.size()];
            break;
        case 1:
            if (!place.empty())
                json[place.parent_pointer()].is_object()
                    ? (void)json[place.parent_pointer()].erase(place.back())
                    : (void)json[place.parent_pointer()].erase(std::stoul(place.back()));
            break;
        default:
            json[place] = whole[places[random() % places.size()]];
        }
        const auto read = readProgram(json, "program");
        if (!read) {
            EXPECT_FALSE(read.error().where.empty());
            ++refused;
        } else {
            (void)verify(*read); // whatever was read must not crash it
            (void)describe(*read);
            ++harmless;
        }
    }
    EXPECT_GT(refused, documents / 2);
    EXPECT_GT(harmless, 0);
}

TEST(Program, SaysWhereADocumentIsWrong)
{
    const StepProgram program = makePlan(smallJob())->programs[0];
    Json json = documentOf(program);
    json["ops"][4]["reads"][0] = 100000;
    EXPECT_EQ(readProgram(json, "p.json").error().where, "p.json: ops[4].reads");
    json = documentOf(program);
    json["ops"][4]["kind"] = "guess";
    EXPECT_EQ(readProgram(json, "p.json").error().where, "p.json: ops[4].kind");
    json = documentOf(program);
    json["ops"][4]["colour"] = 1;
    EXPECT_THAT(readProgram(json, "p.json").error().what, HasSubstr("a key that a program does not have"));
    json = documentOf(program);
    json["ops"][4]["flops"] = 1;
    EXPECT_THAT(readProgram(json, "p.json").error().where, HasSubstr("digest"));
    json = documentOf(program);
    json["schema"] = "rankyard/program/2";
    EXPECT_EQ(readProgram(json, "p.json").error().code, Code::Newer);
    EXPECT_FALSE(readProgram(Json(3), "p.json"));
    EXPECT_FALSE(readProgram(Json::object(), "p.json"));
}

/// Agents and workers on different machines compare these: a change here is a change of the format or of a pass.
TEST(Program, DigestIsStable)
{
    const auto plan = makePlan(smallJob());
    EXPECT_EQ(plan->programs[0].digest, "7982f21e6b5d27d756a1ac07201095c0");
    EXPECT_EQ(plan->programs[1].digest, "d5fc850418c659f6a0b093bf7ceca8bd");
    EXPECT_EQ(plan->digest(), "28d7407a054eae49f9d765df9f432bc8");
}

TEST(Program, DigestFollowsTheJob)
{
    const spec::JobSpec job = smallJob();
    EXPECT_EQ(makePlan(job)->digest(), makePlan(job)->digest());
    spec::JobSpec other = job;
    other.optimizer.lr = 1; // not in the program
    EXPECT_EQ(makePlan(other)->digest(), makePlan(job)->digest());
    other.model.hidden = 16;
    EXPECT_NE(makePlan(other)->digest(), makePlan(job)->digest());
    other = job;
    other.optimizer.noDecay = {};
    EXPECT_NE(makePlan(other)->digest(), makePlan(job)->digest());
}

TEST(Program, OffsetsOfViewsAndSlices)
{
    const StepProgram program = makePlan(smallJob(2, 1))->programs[0];
    const Bucket &bucket = program.buckets[0];
    const std::int64_t root = program.buffer(bucket.param).offset;
    const std::int64_t slice = bucket.padded / 2 * 4;
    EXPECT_EQ(offsetOf(program, bucket.paramSlice, 0), root);
    EXPECT_EQ(offsetOf(program, bucket.paramSlice, 1), root + slice);
    for (const TensorId id : bucket.tensors) {
        const Tensor &tensor = program.tensors[static_cast<std::size_t>(id)];
        EXPECT_EQ(offsetOf(program, tensor.param, 1), root + 4 * tensor.offset);
    }
}

TEST(Program, NamesForPeople)
{
    const StepProgram program = makePlan(smallJob())->programs[0];
    EXPECT_EQ(opName(*findOp(program, OpKind::AllGather)), "op 0 (all-gather, bucket 0)");
    EXPECT_EQ(opName(*findOp(program, OpKind::BackwardWeight, Segment::Up, 1)),
              "op 81 (backward-weight mlp(1).up, micro-batch 1)");
    EXPECT_EQ(opName(*findOp(program, OpKind::Forward, Segment::Loss, 0)),
              "op 23 (forward head.loss, micro-batch 0, chunk 0)");
}

} // namespace rankyard::plan
