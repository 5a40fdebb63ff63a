// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/base/file.h"
#include "engine/spec/job.h"
#include "engine/spec/job_table.h"

#include <gtest/gtest.h>

#include <unistd.h>

using namespace rankyard;
using namespace rankyard::spec;

namespace {

/// The sample of DESIGN 3.1, key by key.
const char *const sampleText = R"({"schema": "rankyard/job/1", "name": "sample",
 "model": {"family": "gpt2", "layers": 6, "hidden": 384, "heads": 6, "kv_heads": 6, "head_dim": null, "ffn": 1536, "seq": 256, "vocab": 512,
           "tied": true, "dropout": 0.0, "norm_eps": 1e-5, "rope": null},
 "init": {"seed": 1234, "from": null},
 "data": {"train": "corpus", "valid": null, "valid_fraction": 0.05, "documents": "pack", "seed": 1234},
 "batch": {"global": 16, "micro": 4},
 "layout": {"dp": 2, "tp": 1, "pp": 1, "cp": 1, "virtual": 1, "stages": null, "schedule": "1f1b", "sequence_parallel": false, "order": "tp-cp-dp-pp"},
 "zero": {"stage": 1, "shard": 0, "bucket_bytes": 26214400, "prefetch_bytes": 50000000, "persistence_threshold": 100000, "max_live": 1000000000, "max_reuse_distance": 1000000000, "sub_group": 1000000000},
 "comm": {"algorithm": "library", "overlap_grads": true, "overlap_params": true, "env": {}},
 "precision": {"compute": "fp32", "grad": "fp32", "master": "fp32", "reduce": "fp32", "loss_in_16bit": false,
               "loss_scale": {"mode": "dynamic", "value": null, "rule": "deepspeed", "init_power": 16, "min": 1, "max_power": null, "window": 1000, "hysteresis": 2}},
 "recompute": {"mode": "none", "every": 1, "ratio": null, "partition": false, "to_host": false},
 "offload": {"optimizer": "none", "params": "none", "pin": true, "nvme_path": null, "buffers": 4},
 "compression": {"mode": "none", "density": 0.1, "threshold": 0.01, "block": 256, "error_feedback": true},
 "optimizer": {"kind": "adamw", "lr": 3e-4, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1, "no_decay": ["*.bias", "*norm*"], "clip": 1.0},
 "lr_schedule": {"kind": "cosine", "warmup": 20, "total": 200, "min_lr": 3e-5},
 "run": {"steps": 200, "epochs": null, "eval_every": 50, "eval_batches": 8, "checkpoint_every": 100, "checkpoint_dir": null, "keep": 2, "log_every": 1, "threads": null, "compact_every": 100},
 "cluster": "local"})";

Json sample() { return Json::parse(sampleText); }
Json smallest()
{
    return {{"schema", "rankyard/job/1"}, {"model", Json::object()}, {"data", {{"train", "corpus"}}}};
}

std::filesystem::path scratch()
{
    const auto dir = std::filesystem::temp_directory_path() / ("rankyard spec " + std::to_string(::getpid()));
    std::filesystem::create_directories(dir);
    return dir;
}

} // namespace

TEST(Job, SampleRoundTripsInOrder)
{
    const auto job = readJob(sample(), "sample.json");
    ASSERT_TRUE(job) << job.error().text();
    EXPECT_EQ(job->layout.dp, 2);
    EXPECT_EQ(job->microBatches(), 2);
    const OrderedJson written = writeJob(*job);
    // Numbers compare by value: 0 and 0.0 are equal.
    EXPECT_EQ(Json(Json::parse(written.dump())), sample());
    const OrderedJson inFileOrder = OrderedJson::parse(sampleText);
    std::vector<std::string> found;
    std::vector<std::string> expected;
    for (const auto &[key, value] : written.items())
        found.push_back(key);
    for (const auto &[key, value] : inFileOrder.items())
        expected.push_back(key);
    EXPECT_EQ(found, expected);
    const auto again = readJob(Json::parse(written.dump()), "again");
    ASSERT_TRUE(again);
    EXPECT_EQ(writeJob(*again).dump(), written.dump());
}

TEST(Job, EveryKeyHasADefaultButThree)
{
    const auto job = readJob(smallest(), "j");
    ASSERT_TRUE(job) << job.error().text();
    JobSpec plain;
    plain.data.train = "corpus";
    EXPECT_EQ(writeJob(*job), writeJob(plain));
    for (const char *key : {"schema", "model", "data"}) {
        Json broken = smallest();
        broken.erase(key);
        EXPECT_FALSE(readJob(broken, "j")) << key;
    }
    Json noTrain = smallest();
    noTrain["data"].erase("train");
    EXPECT_EQ(readJob(noTrain, "j").error().where, "data.train");
    // And each key of the full document may be left out alone.
    JobSpec scratchJob;
    for (const Field &field : jobFields(scratchJob)) {
        Json document = sample();
        Json::json_pointer pointer;
        std::string path = "/" + field.path;
        std::replace(path.begin(), path.end(), '.', '/');
        pointer = Json::json_pointer(path);
        ASSERT_TRUE(document.contains(pointer)) << field.path << " is not in the sample of the design";
        const auto parent = pointer.parent_pointer();
        document[parent].erase(pointer.back());
        EXPECT_EQ(readJob(document, "j").ok(), !field.rule.required) << field.path;
    }
}

TEST(Job, OverridesSayWhatCannotBeANumber)
{
    for (const char *value : {"NaN", "nan", "-inf", "Infinity", "1e999"}) {
        const auto error = readJob(sample(), "j", {std::string("optimizer.lr=") + value}).error();
        EXPECT_EQ(error.what, "not a finite number") << value;
        EXPECT_EQ(error.found, value);
        EXPECT_EQ(error.hint, "It was given for this run: leave it out, or give another");
    }
    EXPECT_EQ(readJob(sample(), "j", {"optimizer.lr=fast"}).error().hint,
              "It was given for this run: leave it out, or give another");
    Json document = sample();
    document["optimizer"]["lr"] = "3e-4";
    EXPECT_EQ(readJob(document, "j").error().hint, "Write the value without quotes");
}

TEST(Job, UnknownKeysAreNamedWithWhatWasMeant)
{
    Json document = sample();
    document["batch"]["micr"] = 4;
    auto error = readJob(document, "sample.json").error();
    EXPECT_EQ(error.code, Code::BadJob);
    EXPECT_EQ(error.where, "batch.micr");
    EXPECT_EQ(error.expected, "batch.micro");
    EXPECT_NE(error.hint.find("sample.json"), std::string::npos);
    EXPECT_EQ(error.text(),
              "batch.micr: unknown key (found \"micr\", expected batch.micro). Change it in sample.json");

    document = sample();
    document["stage"] = 1; // belongs elsewhere
    EXPECT_EQ(readJob(document, "j").error().expected, "zero.stage");
    document = sample();
    document["precision"]["loss_scale"]["windwo"] = 1;
    EXPECT_EQ(readJob(document, "j").error().expected, "precision.loss_scale.window");
    document = sample();
    document["batch.micro"] = 4; // a dotted key is not a path
    EXPECT_EQ(readJob(document, "j").error().what, "unknown key");
    document = sample();
    document["Qzxwvutsrq"] = 4;
    EXPECT_EQ(readJob(document, "j").error().expected, "");
}

TEST(Job, WholeFloatsAreIntegers)
{
    Json document = sample();
    document["zero"]["bucket_bytes"] = 5e8;
    document["run"]["steps"] = 100.0;
    const auto job = readJob(document, "j");
    ASSERT_TRUE(job) << job.error().text();
    EXPECT_EQ(job->zero.bucketBytes, 500000000);
    EXPECT_EQ(job->run.steps, 100);
    document["zero"]["bucket_bytes"] = 15099494.4;
    const auto error = readJob(document, "j").error();
    EXPECT_EQ(error.where, "zero.bucket_bytes");
    EXPECT_EQ(error.expected, "15099494");
    document["zero"]["bucket_bytes"] = 0;
    EXPECT_EQ(readJob(document, "j").error().where, "zero.bucket_bytes");
}

TEST(Job, SeedsTakeAll64Bits)
{
    Json document = sample();
    document["data"]["seed"] = std::numeric_limits<std::uint64_t>::max();
    document["init"]["seed"] = 0;
    const auto job = readJob(document, "j");
    ASSERT_TRUE(job);
    EXPECT_EQ(job->data.seed, std::numeric_limits<std::uint64_t>::max());
    document["data"]["seed"] = nullptr;
    EXPECT_FALSE(readJob(document, "j")->data.seed);
    document["data"]["seed"] = -1;
    EXPECT_EQ(readJob(document, "j").error().where, "data.seed");
}

/// Any value at any key: an error at that key or a job, never a crash; a value out of all bounds never passes.
TEST(Job, HostileValuesEverywhere)
{
    const double inf = std::numeric_limits<double>::infinity();
    const std::vector<Json> hostile = {nullptr,
                                       true,
                                       -1,
                                       0,
                                       std::numeric_limits<std::int64_t>::min(),
                                       std::numeric_limits<std::int64_t>::max(),
                                       std::numeric_limits<std::uint64_t>::max(),
                                       1e300,
                                       -1e300,
                                       inf,
                                       -inf,
                                       std::nan(""),
                                       0.5,
                                       "",
                                       "x",
                                       std::string("a\0b", 3),
                                       "\xff\xfe",
                                       std::string(100000, 'y'),
                                       Json::array(),
                                       Json::array({1, 2, 3}),
                                       Json::array({nullptr}),
                                       Json::object(),
                                       Json{{"a", {{"b", 1}}}},
                                       Json::binary({1, 2})};
    JobSpec scratchJob;
    for (const Field &field : jobFields(scratchJob)) {
        std::string path = "/" + field.path;
        std::replace(path.begin(), path.end(), '.', '/');
        for (const Json &value : hostile) {
            Json document = sample();
            document[Json::json_pointer(path)] = value;
            const auto job = readJob(document, "j");
            if (!job) {
                EXPECT_FALSE(job.error().where.empty());
                EXPECT_FALSE(job.error().expected.empty()) << job.error().text();
                EXPECT_LT(job.error().text().size(), 600u);
            } else {
                const auto back = readJob(
                    Json::parse(writeJob(*job).dump(-1, ' ', false, OrderedJson::error_handler_t::replace)),
                    "j");
                EXPECT_TRUE(back) << back.error().text();
            }
            if (value.is_number_float() && !std::isfinite(value.get<double>())) {
                EXPECT_FALSE(job) << field.path;
            }
            if (value == Json(std::numeric_limits<std::int64_t>::max())
                && std::holds_alternative<std::int64_t *>(field.slot)) {
                EXPECT_EQ(job.error().where, field.path);
            }
        }
        // Through each section too.
        const std::size_t dot = field.path.find('.');
        if (dot != std::string::npos) {
            for (const Json &value : {Json(nullptr), Json(1), Json("x"), Json::array()}) {
                Json document = sample();
                document[field.path.substr(0, dot)] = value;
                EXPECT_EQ(readJob(document, "j").error().where, field.path.substr(0, dot));
            }
        }
    }
    for (const Json &value : hostile)
        EXPECT_FALSE(readJob(value, "j"));
}

TEST(Job, SchemaNamesAndNewerVersions)
{
    Json document = sample();
    document["schema"] = "rankyard/job/2";
    EXPECT_EQ(readJob(document, "j").error().code, Code::Newer);
    document["schema"] = "rankyard/plan/1";
    EXPECT_EQ(readJob(document, "j").error().code, Code::BadJob);
}

TEST(Job, LoadsAFileWithOverrides)
{
    const auto dir = scratch();
    const std::string path = (dir / "job.json").string();
    ASSERT_TRUE(writeFileAtomically(path, sampleText));
    const auto job =
        loadJob(path,
                {"batch.micro=8", "data.train=5", "name=a=b", "optimizer.betas=[0.8, 0.9]",
                 "precision.compute=fp64", "zero={\"stage\": 0}", "run.threads=2", "data.valid=null"});
    ASSERT_TRUE(job) << job.error().text();
    EXPECT_EQ(job->batch.micro, 8);
    EXPECT_EQ(job->data.train, "5");
    EXPECT_EQ(job->name, "a=b");
    EXPECT_EQ(job->optimizer.beta1, 0.8);
    EXPECT_EQ(job->precision.reduce, DType::F64);
    EXPECT_EQ(job->zero.stage, 0);
    EXPECT_EQ(job->run.threads, 2);
    EXPECT_FALSE(job->data.valid);

    for (const char *bad : {"batch.micro", "=4", "", "batch..micro=4", ".a=1", "cluster.x=1", "name.x.y=1"})
        EXPECT_EQ(loadJob(path, {bad}).error().code, Code::Usage) << bad;
    EXPECT_EQ(loadJob(path, {"batch.mcro=4"}).error().where, "batch.mcro");
    EXPECT_EQ(loadJob(path, {"layout.dp=3"}).error().where, "batch.global");
    EXPECT_EQ(loadJob((dir / "none.json").string()).error().code, Code::NotFound);
    ASSERT_TRUE(writeFileAtomically(path, "{\"schema\": "));
    EXPECT_EQ(loadJob(path).error().code, Code::BadJob);
    ASSERT_TRUE(writeFileAtomically(path, "[1]"));
    EXPECT_FALSE(loadJob(path, {"a=1"}));
    std::filesystem::remove_all(dir);
}

TEST(Job, ClosestWord)
{
    const std::vector<std::string> words = {"micro", "global", "steps"};
    EXPECT_EQ(closest("mirco", words), "micro");
    EXPECT_EQ(closest("Global", words), "global");
    EXPECT_EQ(closest("step", words), "steps");
    EXPECT_EQ(closest("wxyz", words), "");
    EXPECT_EQ(closest(std::string(1000, 'm'), words), "");
}

TEST(Job, ShownNeverCutsACharacter)
{
    std::string text;
    for (int i = 0; i < 60; ++i)
        text += "ä";
    const std::string cut = shown(Json(text));
    EXPECT_LE(cut.size(), 80u);
    EXPECT_EQ(Json(cut).dump(), Json(cut).dump()); // throws when the text is not UTF-8
}

// The way out of a value that was given beside the file does not lead into the file.
TEST(Job, ErrorsOfOverridesAreNotTheFiles)
{
    JobSpec sample;
    sample.data.train = "corpus";
    const Json document = writeJob(sample);
    const auto given = readJob(document, "job.json", {"run.steps=-1"});
    ASSERT_FALSE(given);
    EXPECT_EQ(given.error().hint.find("job.json"), std::string::npos) << given.error().text();
    Json wrong = document;
    wrong["run"]["steps"] = -1;
    const auto read = readJob(wrong, "job.json", {"run.keep=3"});
    ASSERT_FALSE(read);
    EXPECT_NE(read.error().hint.find("job.json"), std::string::npos) << read.error().text();
}
