// SPDX-License-Identifier: GPL-3.0-or-later
// The commands that need no worker: plan, search, advise, validate, cluster show, import, export, as scripts call them.
#include "tests/system/system_test.h"

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <fstream>

using namespace rankyard;

namespace {

class Planning : public SystemTest
{
protected:
    /// The document of a command that succeeds.
    Json document(std::vector<std::string> arguments, int status = 0)
    {
        arguments.push_back("--json");
        auto command = ctlDone(arguments);
        EXPECT_EQ(command->wait(), status) << arguments[0] << "\n" << command->errors();
        return command->json();
    }
    std::string file(const std::string &name, const std::string &text)
    {
        const std::string path = (m_dir / name).string();
        std::ofstream(path) << text;
        return path;
    }
    /// 96 layers of 12,288 on 256 A100, fp16, every layer computed again.
    std::string large(const std::map<std::string, Json> &changes = {})
    {
        std::map<std::string, Json> all = {{"/model/layers", 96},       {"/model/hidden", 12288},
                                           {"/model/heads", 96},        {"/model/seq", 2048},
                                           {"/model/vocab", 51200},     {"/batch/global", 1024},
                                           {"/batch/micro", 4},         {"/layout/dp", 8},
                                           {"/layout/tp", 8},           {"/layout/pp", 4},
                                           {"/zero/stage", 1},          {"/precision/compute", "fp16"},
                                           {"/recompute/mode", "full"}, {"/cluster", "dgx-a100-80x32"}};
        for (const auto &[pointer, value] : changes)
            all[pointer] = value;
        return job(all, "large.json");
    }
};

void expectKeys(const Json &document, const std::vector<std::string> &keys)
{
    for (const std::string &key : keys)
        EXPECT_TRUE(document.contains(key)) << key;
}

} // namespace

TEST_F(Planning, ALargeJobIsPricedByStage)
{
    const Json plan = document({"plan", large()});
    expectKeys(plan, {"ranks", "step_ms", "bubble", "tflops_per_device", "mfu", "comm", "program", "notes"});
    ASSERT_EQ(plan["ranks"].size(), 256U);
    double most = 0;
    for (const Json &rank : plan["ranks"])
        most = std::max(most, rank["memory"]["peak"].get<double>());
    EXPECT_DOUBLE_EQ(plan["margin"].get<double>(), plan["usable_memory"].get<double>() - most);
    EXPECT_LT(plan["margin"].get<double>(), 80e9 - most) << "what the driver takes is not usable";
    EXPECT_LE(plan["ranks"][0]["alive"], plan["ranks"][0]["memory"]["peak"]);
    expectKeys(plan["ranks"][0], {"rank", "stage", "memory"});
    expectKeys(plan["ranks"][0]["memory"],
               {"params", "grads", "optimizer", "activations", "workspace", "peak"});
    // 175 B parameters over tp 8 and pp 4, 2 bytes each; the first stage has the embedding too.
    const double params = plan["ranks"][64]["memory"]["params"].get<double>();
    EXPECT_NEAR(params, 2.0 * 24 * (12.0 * 12288 * 12288) / 8, 0.001 * params);
    ASSERT_EQ(plan["stages"].size(), 4U);
    double sum = 0;
    for (const Json &stage : plan["stages"]) {
        expectKeys(stage, {"stage", "comm", "flops", "compute_ms", "idle_ms", "exposed_ms"});
        double stageMs = stage["compute_ms"].get<double>() + stage["idle_ms"].get<double>();
        for (const Json &ms : stage["exposed_ms"])
            stageMs += ms.get<double>();
        EXPECT_NEAR(stageMs, plan["timeline"]["step_ms"].get<double>(), 1e-3 * stageMs);
        sum += stage["flops"].get<double>();
    }
    EXPECT_GT(plan["step_ms"].get<double>(), sum * 64 / 256 / 312e12 * 1e3) << "not above the data sheet";
}

TEST_F(Planning, APlanHasTimesWhereItsClusterHas)
{
    const std::string small = job({{"/layout/dp", 2}, {"/cluster", "dgx-a100-80"}});
    const Json times = document({"plan", small});
    EXPECT_GT(times["step_ms"].get<double>(), 0);
    EXPECT_EQ(document({"plan", job({{"/layout/dp", 2}}), "--cluster", "dgx-a100-80"})["step_ms"],
              times["step_ms"]);
    // Without them memory is there all the same; a cluster that was asked for has to be there.
    const std::string nowhere = job({{"/cluster", "nowhere"}}, "nowhere.json");
    EXPECT_TRUE(document({"plan", nowhere})["step_ms"].is_null());
    EXPECT_EQ(document({"plan", nowhere, "--cluster", "nowhere"}, 2)["error"]["code"], "not-found");
    const std::string wide =
        job({{"/layout/dp", 16}, {"/batch/global", 32}, {"/batch/micro", 1}}, "wide.json");
    EXPECT_EQ(document({"plan", wide, "--cluster", "dgx-a100-80"}, 3)["error"]["code"], "does-not-fit");
    // Ranks that are alike are one line.
    auto text = ctlDone({"plan", wide});
    EXPECT_EQ(text->wait(), 0);
    EXPECT_NE(text->output().find("0–15"), std::string::npos) << text->output();
}

TEST_F(Planning, SearchSaysWhatItWouldChange)
{
    const Json found = document({"search", large(), "--closed"});
    expectKeys(found, {"evaluated", "seconds", "best", "rejected", "pareto", "near", "current", "notes"});
    ASSERT_EQ(found["best"].size(), 10U);
    const Json &best = found["best"][0];
    expectKeys(
        best, {"layout", "zero", "batch", "recompute", "step_ms", "memory_peak", "margin", "why", "changes"});
    EXPECT_LT(best["step_ms"], found["current"]["step_ms"]);
    EXPECT_GE(best["margin"].get<double>(), 0);
    // The changes as --set make the job of that layout, and the plan agrees that it fits.
    std::vector<std::string> plan = {"search", large(), "--closed", "--top", "1"};
    for (const Json &change : best["changes"]) {
        plan.push_back("--set");
        plan.push_back(change["path"].get<std::string>() + "=" + dumpJson(change["to"]));
    }
    const Json again = document(plan);
    EXPECT_EQ(again["current"]["layout"], best["layout"]);
    EXPECT_EQ(again["current"]["step_ms"], best["step_ms"]);
    EXPECT_TRUE(again["best"][0]["changes"].empty() || again["best"][0]["step_ms"] == best["step_ms"]);
    const Json advice = document({"advise", large(), "--closed"});
    ASSERT_EQ(advice["rules"].size(), 2U);
    for (const Json &rule : advice["rules"])
        expectKeys(rule, {"rule", "trigger", "asked", "legal", "illegal_because", "nearest", "notes"});
    EXPECT_EQ(advice["search"]["layout"], best["layout"]) << "the same search";
    EXPECT_EQ(document({"search", large(), "--gpus", "512"}, 3)["error"]["where"], "--gpus");
}

TEST_F(Planning, CtrlCEndsASearchWithWhatItHas)
{
    auto command = ctl({"search", large(), "--json"});
    ASSERT_TRUE(command->waitForError("searching"));
    command->signal(SIGINT);
    EXPECT_EQ(command->wait(), 6) << command->errors();
    EXPECT_EQ(command->json()["cancelled"], true) << command->output();
}

TEST_F(Planning, ClustersThatAreShownCanBeReadAgain)
{
    const std::string matrix = file("topo.txt",
                                    "\tGPU0\tGPU1\tNIC0\tCPU Affinity\n"
                                    "GPU0\t X \tNV4\tPIX\t0-7\n"
                                    "GPU1\tNV4\t X \tSYS\t8-15\n"
                                    "NIC0\tPIX\tSYS\t X \n");
    for (const std::string &what : {std::string("dgx-h100x4"), std::string("local"), matrix}) {
        const Json shown = document({"cluster", "show", what});
        const std::string again = file("again.json", dumpJson(shown));
        EXPECT_EQ(document({"cluster", "show", again}), shown) << what;
    }
    auto text = ctlDone({"cluster", "show", matrix});
    EXPECT_EQ(text->wait(), 0);
    EXPECT_EQ(text->output().find("0 cores"), std::string::npos) << "what a matrix does not tell is not zero";
    // Of another version: said, not silent.
    Json measured = document({"cluster", "show", "cpu-host"});
    measured["measured"] = {{"host", "h"}, {"values", {{"peak_fp32", 1e11}, {"warp", 2}}}};
    const Json odd = document({"cluster", "show", file("odd.json", dumpJson(measured))});
    EXPECT_EQ(odd["problem"]["where"], "measured.values.warp");
}

TEST_F(Planning, ValidationDependsOnNoNames)
{
    const char *source = std::getenv("RANKYARD_SOURCE_DIR");
    const std::string table =
        std::string(source ? source : ".") + "/tests/fixtures/published/published_runs.csv";
    const std::string text = *readFile(table);
    const Json whole = document({"validate", table});
    expectKeys(whole, {"rows", "summary"});
    expectKeys(whole["rows"][0], {"id", "source", "gpu", "predicted_iter_s", "measured_iter_s", "error"});
    expectKeys(whole["summary"], {"median", "p90", "worst", "n", "skipped"});
    std::size_t skipped = 0;
    for (const Json &count : whole["summary"]["skipped"])
        skipped += count.get<std::size_t>();
    const auto lines = static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
    EXPECT_EQ(whole["rows"].size() + skipped, lines - 1) << "no row is dropped";
    std::string renamed = "x" + text; // the id column under another name is no id
    const Json other = document({"validate", file("renamed.csv", renamed)});
    EXPECT_EQ(other["summary"], whole["summary"]);
    EXPECT_EQ(other["rows"].back()["id"], "");
}

TEST_F(Planning, ConfigurationsOfOtherEnginesThereAndBack)
{
    const std::string small = job({{"/layout/dp", 2}, {"/zero/stage", 1}});
    for (const std::string &engine :
         {std::string("deepspeed"), std::string("megatron"), std::string("torchtitan")}) {
        const Json written = document({"export", small, "--to", engine});
        expectKeys(written, {"engine", "text", "lost", "guessed"});
        const std::string text = file("there." + engine, written["text"]);
        // With a base for what that engine keeps elsewhere (DeepSpeed: the model).
        const Json read = document({"import", text, "--base", small});
        expectKeys(read, {"engine", "job", "lost", "guessed", "runs"});
        EXPECT_EQ(read["engine"], engine) << "told by its content";
        EXPECT_EQ(read["runs"], true) << dumpJson(read.value("problem", Json()));
        const Json &job = read["job"];
        const Json before = *parseJson(*readFile(small), "job");
        EXPECT_EQ(job["model"]["hidden"], before["model"]["hidden"]) << engine;
        EXPECT_EQ(job["batch"]["global"], before["batch"]["global"]) << engine;
        EXPECT_EQ(job["batch"]["micro"], before["batch"]["micro"]) << engine;
        EXPECT_EQ(job["layout"]["dp"], 2) << engine;
        // What it prints for people is the job: it can be planned as it stands.
        auto printed = ctlDone({"import", text, "--base", small});
        EXPECT_EQ(printed->wait(), 0);
        document({"plan", file("back.json", printed->output())});
    }
    EXPECT_EQ(document({"import", file("odd.txt", "hello")}, 2)["error"]["code"], "bad-data");
    EXPECT_EQ(document({"export", small, "--to", "abacus"}, 2)["error"]["where"], "--to");
}
