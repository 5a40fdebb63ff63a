// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/search/advise.h"
#include "engine/search/search.h"
#include "engine/search/space.h"

#include "engine/cluster/sources.h"
#include "engine/predict/durations.h"
#include "tests/engine/long.h"

#include <gtest/gtest.h>

#include <memory>

#include <algorithm>
#include <cstdio>
#include <random>
#include <set>

namespace rankyard::search {
namespace {

predict::CostModel costOf(const std::string &cluster)
{
    const auto opened = cluster::openCluster(cluster);
    EXPECT_TRUE(opened) << opened.error().text();
    const auto cost = predict::costModelOf(*opened);
    EXPECT_TRUE(cost) << cost.error().text();
    return *cost;
}

/// GPT-3 of 175 B parameters in 16 bits.
spec::JobSpec largeJob()
{
    spec::JobSpec job;
    job.model.layers = 96;
    job.model.hidden = 12288;
    job.model.heads = 96;
    job.model.seq = 2048;
    job.model.vocab = 51200;
    job.batch.global = 1024;
    job.batch.micro = 4;
    job.layout.dp = 8;
    job.layout.tp = 8;
    job.layout.pp = 4;
    job.zero.stage = 1;
    job.precision.compute = DType::F16;
    job.recompute.mode = "full";
    return job;
}

/// Small enough that whole programs are quick.
spec::JobSpec smallJob()
{
    spec::JobSpec job;
    job.model.layers = 12;
    job.model.hidden = 768;
    job.model.heads = 12;
    job.model.kvHeads = 4;
    job.model.seq = 512;
    job.model.vocab = 50304;
    job.batch.global = 48;
    job.batch.micro = 1;
    job.precision.compute = DType::BF16;
    return job;
}

std::vector<Choice> allOf(const spec::JobSpec &job, int devices)
{
    Rejections rejected;
    std::vector<Choice> choices;
    for (const Cut &cut : cutsOf(job, devices, rejected))
        forEachLayout(job, devices, cut, rejected, [&](const Choice &choice) { choices.push_back(choice); });
    return choices;
}

/// Against all combinations, each judged by the planner itself.
TEST(Space, HasTheLayoutsThatThePlannerTakes)
{
    spec::JobSpec job = smallJob();
    job.model.layers = 3;
    job.batch.global = 12;
    constexpr int devices = 12;
    std::set<std::string> ours;
    for (const Choice &choice : allOf(job, devices)) {
        if (!choice.offloadOptimizer && choice.recompute == predict::Recompute::None)
            ours.insert(textOf(choice));
    }
    std::set<std::string> taken;
    for (int tp = 1; tp <= devices; ++tp) {
        for (int cp = 1; cp <= devices; ++cp) {
            for (int pp = 1; pp <= devices; ++pp) {
                if (devices % (tp * cp * pp) != 0)
                    continue;
                for (const int micro : {1, 2, 4}) {
                    for (int schedule = 0; schedule <= static_cast<int>(predict::Schedule::ZeroBubbleV);
                         ++schedule) {
                        for (int v = 1; v <= 2; ++v) {
                            for (int zero = 0; zero <= 3; ++zero) {
                                for (const bool sequence : {false, true}) {
                                    Choice choice{tp, cp, pp, devices / (tp * cp * pp), v, micro};
                                    choice.zero = static_cast<std::int8_t>(zero);
                                    choice.schedule = static_cast<predict::Schedule>(schedule);
                                    choice.sequenceParallel = sequence;
                                    const bool free =
                                        pp == 1 && (schedule != 1 || v != 1); // no schedule without stages
                                    const bool alone = zero > 0 && choice.dp * cp == 1; // nothing to share
                                    const bool plain = choice.schedule == predict::Schedule::Interleaved
                                        && v == 1; // is 1f1b
                                    if (free || alone || plain || (sequence && tp == 1)
                                        || choice.schedule == predict::Schedule::ZeroBubbleH2)
                                        continue;
                                    if (plan::makePlan(jobOf(job, choice), plan::PlanDepth::Ordered))
                                        taken.insert(textOf(choice));
                                }
                            }
                        }
                    }
                }
            }
        }
    }
    EXPECT_EQ(ours, taken);
    EXPECT_GT(ours.size(), 100U);
}

/// What the search chooses is a job as files have it, also with states on the host.
TEST(Space, LayoutsAreJobsThatCanBeRead)
{
    spec::JobSpec job = smallJob();
    job.data.train = "corpus";
    int offloaded = 0;
    for (const Choice &choice : allOf(job, 6)) {
        const auto read = spec::readJob(Json(spec::writeJob(jobOf(job, choice))), "choice");
        ASSERT_TRUE(read) << textOf(choice) << ": " << read.error().text();
        Choice again = choiceOf(*read);
        EXPECT_EQ(again, choice) << textOf(choice);
        offloaded += choice.offloadOptimizer ? 1 : 0;
    }
    EXPECT_GT(offloaded, 10);
}

/// States on the host of a node that has little memory: refused for that, and by that name.
TEST(Search, HostMemoryIsCounted)
{
    predict::Machine machine = costOf("dgx-a100-40").machine();
    const predict::Calibration constants = costOf("dgx-a100-40").constants();
    spec::JobSpec job = smallJob();
    job.model.hidden = 4096;
    job.model.heads = 32;
    job.model.kvHeads.reset();
    job.model.layers = 24;
    Options options;
    options.devices = 8;
    options.price = false;
    const auto plenty = search(job, predict::CostModel(machine, constants), options);
    machine.hostBytes = 8e9;
    const auto little = search(job, predict::CostModel(machine, constants), options);
    ASSERT_TRUE(plenty);
    ASSERT_TRUE(little);
    EXPECT_FALSE(plenty->rejected.contains("does not fit the host's memory"));
    EXPECT_GT(little->rejected.at("does not fit the host's memory"), 0);
    for (const auto *list : {&little->best, &little->pareto}) {
        for (const Candidate &candidate : *list)
            EXPECT_LE(candidate.hostBytes, 8e9) << textOf(candidate.choice);
    }
}

TEST(Search, SameAnswerOnAnyNumberOfThreads)
{
    const predict::CostModel cost = costOf("dgx-h100x4");
    Options options;
    options.devices = 32;
    options.price = false;
    options.threads = 1;
    const auto one = search(smallJob(), cost, options);
    ASSERT_TRUE(one) << one.error().text();
    EXPECT_EQ(one->evaluated, static_cast<std::int64_t>(allOf(smallJob(), 32).size()));
    for (const int threads : {2, 5}) {
        options.threads = threads;
        const auto other = search(smallJob(), cost, options);
        ASSERT_TRUE(other);
        EXPECT_EQ(other->evaluated, one->evaluated);
        EXPECT_EQ(other->rejected, one->rejected);
        ASSERT_EQ(other->best.size(), one->best.size());
        for (std::size_t i = 0; i < one->best.size(); ++i)
            EXPECT_EQ(other->best[i].choice, one->best[i].choice) << i;
        ASSERT_EQ(other->pareto.size(), one->pareto.size());
        for (std::size_t i = 0; i < one->pareto.size(); ++i)
            EXPECT_EQ(other->pareto[i].choice, one->pareto[i].choice) << i;
    }
}

/// Nothing in the space is better than the best: by a plain loop over all of it.
TEST(Search, FindsTheFastestThatFits)
{
    RANKYARD_LONG_WHEN_SANITIZED();
    const predict::CostModel cost = costOf("dgx-a100-40");
    spec::JobSpec job = smallJob();
    job.model.hidden = 4096;
    job.model.heads = 32;
    job.model.kvHeads.reset();
    job.model.layers = 24;
    job.model.seq = 2048;
    Options options;
    options.devices = 8;
    options.price = false;
    options.top = 3;
    const auto found = search(job, cost, options);
    ASSERT_TRUE(found) << found.error().text();
    ASSERT_FALSE(found->best.empty());
    double least = HUGE_VAL;
    int tooLarge = 0;
    std::map<std::string, predict::UnitMemory> memories;
    for (const Choice &choice : allOf(job, 8)) {
        const auto weighed = weigh(jobOf(job, choice), cost);
        ASSERT_TRUE(weighed) << weighed.error().text();
        if (weighed->margin >= 0)
            least = std::min(least, weighed->time.seconds);
        else
            ++tooLarge;
    }
    EXPECT_NEAR(found->best.front().time.seconds, least, 1e-3 * least);
    EXPECT_GT(tooLarge, 0);
    for (std::size_t i = 1; i < found->pareto.size(); ++i) {
        EXPECT_LT(found->pareto[i - 1].bytes, found->pareto[i].bytes);
        EXPECT_GT(found->pareto[i - 1].time.seconds, found->pareto[i].time.seconds);
    }
    for (const Candidate &candidate : found->near) {
        EXPECT_LT(candidate.margin, 0);
        EXPECT_LT(candidate.time.seconds, found->best.front().time.seconds);
    }
}

TEST(Search, StopsWhenAsked)
{
    // On the heap: GCC 12 sees one on the stack read before it is written.
    const auto source = std::make_unique<std::stop_source>();
    Options options;
    options.devices = 256;
    options.stop = source->get_token();
    options.threads = 1;
    options.progress = [&](double share) {
        EXPECT_GT(share, 0);
        source->request_stop();
    };
    const auto found = search(largeJob(), costOf("dgx-a100-80x32"), options);
    ASSERT_TRUE(found) << found.error().text();
    EXPECT_TRUE(found->cancelled);
    EXPECT_LT(found->evaluated, static_cast<std::int64_t>(allOf(largeJob(), 256).size()) / 2);
    EXPECT_TRUE(found->best.empty());
}

/// 96 layers of 12,288 on 256 A100: priced by stage, and there is something better.
TEST(Search, SaysWhatItWouldChange)
{
    const predict::CostModel cost = costOf("dgx-a100-80x32");
    Options options;
    options.devices = 256;
    options.top = 1;
    options.price = isLong();
    const auto found = search(largeJob(), cost, options);
    ASSERT_TRUE(found) << found.error().text();
    ASSERT_EQ(found->best.size(), 1U);
    EXPECT_GT(found->current.margin, 0) << found->current.why;
    EXPECT_LT(found->best[0].time.seconds, found->current.time.seconds);
    EXPECT_GE(found->best[0].margin, 0);
    EXPECT_GT(found->rejected.at("does not fit the device's memory"), 0);
    EXPECT_FALSE(found->best[0].why.empty());
    // Put on the job one by one, the changes make the layout that was found.
    Json document = spec::writeJob(largeJob());
    for (const Change &change : changesOf(found->own, found->best[0].choice)) {
        std::string pointer = "/" + change.path;
        std::replace(pointer.begin(), pointer.end(), '.', '/');
        Json &key = document[Json::json_pointer(pointer)];
        EXPECT_EQ(key, change.from) << change.path;
        key = change.to;
    }
    document["data"]["train"] = "corpus";
    const auto changed = spec::readJob(document, "changed");
    ASSERT_TRUE(changed) << changed.error().text();
    EXPECT_EQ(choiceOf(*changed), found->best[0].choice);
    EXPECT_EQ(reportOf(*found)["best"][0]["changes"].size(),
              changesOf(found->own, found->best[0].choice).size());
    EXPECT_TRUE(changesOf(found->own, found->own).empty());
    for (std::size_t i = 1; i < found->near.size(); ++i)
        EXPECT_LE(found->near[i - 1].time.seconds, found->near[i].time.seconds);
}

/// The job is priced as it is, with what no choice has; candidates say that they would put it back.
TEST(Search, PricesTheJobAsItIs)
{
    const predict::CostModel cost = costOf("dgx-h100");
    Options options;
    options.devices = 8;
    options.top = 1;
    options.price = false;
    spec::JobSpec job = smallJob();
    job.layout.dp = 8;
    job.batch.global = 64;
    job.recompute.mode = "full";
    const auto whole = price(job, cost);
    ASSERT_TRUE(whole) << whole.error().text();
    job.recompute.every = 3;
    const auto some = price(job, cost);
    ASSERT_TRUE(some) << some.error().text();
    EXPECT_GT(some->bytes, whole->bytes) << "two layers of three keep everything";
    EXPECT_LT(some->time.seconds, whole->time.seconds);
    const auto weighed = weigh(job, cost);
    ASSERT_TRUE(weighed) << weighed.error().text();
    EXPECT_NEAR(weighed->bytes / some->bytes, 1, 0.05) << "in closed form, too";
    const auto found = search(job, cost, options);
    ASSERT_TRUE(found) << found.error().text();
    ASSERT_FALSE(found->best.empty());
    const auto changes = changesOf(job, found->best[0].choice);
    EXPECT_TRUE(std::any_of(changes.begin(), changes.end(), [](const Change &change) {
        return change.path == "recompute.every" && change.from == Json(3) && change.to == Json(1);
    }));
    // Stages that are none: no price, and no crash.
    job.layout.stages = std::vector<std::int64_t>{};
    const auto odd = search(job, cost, options);
    ASSERT_TRUE(odd) << odd.error().text();
    EXPECT_EQ(odd->current.time.seconds, 0);
    EXPECT_TRUE(std::any_of(odd->notes.begin(), odd->notes.end(), [](const std::string &note) {
        return note.find("layout.stages") != std::string::npos;
    }));
    EXPECT_FALSE(odd->best.empty());
}

/// 32 devices are not 256: the layout that the job has is not priced as though they were.
TEST(Search, HasNoPriceForAJobOfMoreRanksThanDevices)
{
    Options options;
    options.devices = 32;
    options.top = 1;
    options.price = false;
    const auto found = search(largeJob(), costOf("dgx-a100-80x4"), options);
    ASSERT_TRUE(found) << found.error().text();
    EXPECT_EQ(found->current.time.seconds, 0);
    EXPECT_TRUE(reportOf(*found)["current"].is_null());
    EXPECT_TRUE(std::any_of(found->notes.begin(), found->notes.end(), [](const std::string &note) {
        return note.find("256 ranks") != std::string::npos && note.find("32 devices") != std::string::npos;
    }));
}

/// Also while the best are priced: what was found by then is kept.
TEST(Search, StopsWhilePricing)
{
    const auto source = std::make_unique<std::stop_source>();
    spec::JobSpec job = smallJob();
    job.model.layers = 4;
    Options options;
    options.devices = 4;
    options.top = 8;
    options.stop = source->get_token();
    options.progress = [&](double share) {
        EXPECT_LE(share, 1);
        if (share > 0.4)
            source->request_stop();
    };
    const auto found = search(job, costOf("dgx-h100"), options);
    ASSERT_TRUE(found) << found.error().text();
    EXPECT_TRUE(found->cancelled);
    EXPECT_GE(found->best.size(), 1U);
    EXPECT_LT(found->best.size(), 8U);
    for (const Candidate &candidate : found->best)
        EXPECT_TRUE(candidate.priced);
}

/// The closed form's memory against the programs'.
TEST(Search, ClosedMemoryIsNearThePrograms)
{
    RANKYARD_LONG_WHEN_SANITIZED();
    const predict::CostModel cost = costOf("dgx-h100x2");
    spec::JobSpec job = smallJob();
    job.model.hidden = 4096;
    job.model.heads = 32;
    job.model.kvHeads = 8;
    job.model.layers = 24;
    job.model.seq = 2048;
    std::vector<Choice> choices = allOf(job, 16);
    std::erase_if(choices, [](const Choice &c) { return c.offloadOptimizer; });
    std::mt19937_64 random(3);
    std::shuffle(choices.begin(), choices.end(), random);
    choices.resize(isLong() ? 400 : 12);
    std::vector<double> memory;
    std::vector<double> time;
    for (const Choice &choice : choices) {
        const auto closed = weigh(jobOf(job, choice), cost);
        const auto priced = price(jobOf(job, choice), cost);
        ASSERT_TRUE(closed) << closed.error().text();
        ASSERT_TRUE(priced) << priced.error().text();
        memory.push_back(std::abs(closed->bytes / priced->bytes - 1));
        time.push_back(std::abs(closed->time.seconds / priced->time.seconds - 1));
    }
    const auto at = [](std::vector<double> &values, double share) {
        std::sort(values.begin(), values.end());
        return values[static_cast<std::size_t>(share * static_cast<double>(values.size() - 1))];
    };
    std::printf(
        "%zu layouts, closed form against programs: memory median %.3f p90 %.3f worst %.3f; time median %.3f p90 %.3f worst %.3f\n",
        choices.size(), at(memory, 0.5), at(memory, 0.9), at(memory, 1), at(time, 0.5), at(time, 0.9),
        at(time, 1));
    EXPECT_LT(at(memory, 0.5), 0.02);
    EXPECT_LT(at(memory, 0.9), 0.10);
    EXPECT_LT(at(time, 0.5), 0.08); // what is far off are long context rings over nodes
}

TEST(Advise, RulesAsTheyStandAndTheNearestLegalLayout)
{
    const auto large = advise(largeJob(), costOf("dgx-a100-80x32"), 256, false);
    ASSERT_TRUE(large) << large.error().text();
    ASSERT_EQ(large->size(), 2U);
    EXPECT_EQ((*large)[0].asked.tp, 8);
    EXPECT_GT((*large)[0].asked.pp, 1);
    EXPECT_TRUE((*large)[0].illegal.empty()) << (*large)[0].illegal;
    EXPECT_EQ((*large)[1].asked.zero, 2);
    EXPECT_NE((*large)[1].illegal, "") << "8 of 256 devices";
    EXPECT_TRUE((*large)[1].possible);

    spec::JobSpec small = smallJob();
    const auto few = advise(small, costOf("dgx-h100"), 8, false);
    ASSERT_TRUE(few);
    EXPECT_EQ((*few)[0].asked.dp, 8);
    EXPECT_TRUE((*few)[0].illegal.empty());
    EXPECT_EQ((*few)[0].precision, DType::BF16) << "the job's";

    // ZeRO 3 with pp 4: the rule for small memories contradicts itself here.
    predict::Machine machine = costOf("dgx-h100").machine();
    machine.memoryBytes = 16e9;
    const auto tight = advise(small, predict::CostModel(machine, costOf("dgx-h100").constants()), 8, true);
    ASSERT_TRUE(tight);
    EXPECT_EQ((*tight)[1].asked.zero, 3);
    EXPECT_NE((*tight)[1].illegal.find("pipeline"), std::string::npos);
    EXPECT_TRUE((*tight)[1].possible);
    EXPECT_TRUE((*tight)[1].nearest.pp == 1 || (*tight)[1].nearest.zero <= 1);
    EXPECT_TRUE((*tight)[1].candidate.priced);
    EXPECT_EQ((*tight)[1].precision, DType::BF16);

    // Otherwise: ZeRO 1, fp32, 4 micro-batches, which on 8 replicas of 2 sequences are 64.
    machine = costOf("dgx-h100").machine();
    machine.networkBandwidth = 10e9 / 8;
    const predict::CostModel slow(machine, costOf("dgx-h100").constants());
    small.batch.micro = 2;
    small.batch.global = 64;
    const auto plain = advise(small, slow, 8, false);
    ASSERT_TRUE(plain);
    EXPECT_TRUE((*plain)[1].illegal.empty()) << (*plain)[1].illegal;
    EXPECT_EQ((*plain)[1].nearest.microBatches, 4);
    EXPECT_EQ((*plain)[1].precision, DType::F32);
    small.precision.compute = DType::F32;
    const auto wide = weigh(jobOf(small, (*plain)[1].nearest), slow);
    ASSERT_TRUE(wide);
    EXPECT_EQ((*plain)[1].candidate.time.seconds, wide->time.seconds) << "in the rule's precision";
    small.batch.global = 32;
    const auto half = advise(small, slow, 8, false);
    ASSERT_TRUE(half);
    EXPECT_NE((*half)[1].illegal.find("batch of 64"), std::string::npos) << (*half)[1].illegal;
    EXPECT_EQ((*half)[1].nearest.microBatches, 4);
    EXPECT_EQ((*half)[1].nearest.micro, 1);
}

} // namespace
} // namespace rankyard::search
