// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/checkpoint/store.h"
#include "scratch.h"

#include <cstring>
#include <numeric>

#include <sys/wait.h>

using namespace rankyard;
using namespace rankyard::checkpoint;
using rankyard::checkpoint::test::namesOf;
using rankyard::checkpoint::test::Scratch;
using rankyard::checkpoint::test::slurp;

namespace fs = std::filesystem;

namespace {

constexpr std::int64_t elements = 10;

std::vector<float> valuesOf(std::int64_t step)
{
    std::vector<float> values(elements);
    std::iota(values.begin(), values.end(), static_cast<float>(1000 * step));
    return values;
}

/// Two ranks hold 7 and 3 of the 10 elements.
Result<FileEntry> writeShard(const fs::path &folder, std::int64_t rank, std::int64_t step)
{
    const std::vector<float> values = valuesOf(step);
    const std::size_t begin = rank == 0 ? 0 : 7;
    const std::size_t count = rank == 0 ? 7 : 3;
    RY_ASSIGN(auto writer,
              SafetensorsWriter::create(folder / shardName(rank),
                                        {{"wte.weight", DType::F32, {static_cast<std::int64_t>(count)}}}));
    RY_TRY(writer.write(std::as_bytes(std::span<const float>(values).subspan(begin, count))));
    return writer.finish();
}

Manifest manifestOf(std::int64_t step, const std::vector<FileEntry> &files)
{
    Manifest m;
    m.run = "r-1";
    m.step = step;
    m.consumedSamples = step * 16;
    m.layout.dp = 2;
    m.files = files;
    m.tensors = {{"wte.weight",
                  Role::Param,
                  DType::F32,
                  {2, 5},
                  {{shardName(0), "wte.weight", 0, 7}, {shardName(1), "wte.weight", 7, 10}}}};
    return m;
}

Result<fs::path> save(const fs::path &ckpt, std::int64_t step, const std::string &id = "a")
{
    RY_ASSIGN(const fs::path temporary, beginSave(ckpt, step, id));
    std::vector<FileEntry> files;
    for (std::int64_t rank = 0; rank < 2; ++rank) {
        RY_ASSIGN(files.emplace_back(), writeShard(temporary, rank, step));
    }
    return commitSave(temporary, manifestOf(step, files));
}

std::int64_t newestStep(const fs::path &ckpt, Verify verify = Verify::Digests)
{
    const auto found = newestCheckpoint(ckpt, verify);
    return found ? found->manifest.step : -1;
}

} // namespace

TEST(CheckpointStore, SavesListsAndReads)
{
    const Scratch dir;
    const fs::path ckpt = dir / "ckpt";
    EXPECT_EQ(newestCheckpoint(ckpt, Verify::Sizes).error().code, Code::NotFound);
    EXPECT_TRUE(listCheckpoints(ckpt, Verify::Sizes)->empty());
    const auto folder = save(ckpt, 12);
    ASSERT_TRUE(folder) << folder.error().text();
    EXPECT_EQ(*folder, ckpt / "step-000000012");
    EXPECT_EQ(namesOf(ckpt), (std::set<std::string>{"LATEST", "step-000000012"}));
    EXPECT_EQ(namesOf(*folder),
              (std::set<std::string>{"MANIFEST.json", "r0000-00.safetensors", "r0001-00.safetensors"}));
    const Json latest = Json::parse(slurp(ckpt / "LATEST"));
    EXPECT_EQ(latest["step"], 12);
    EXPECT_EQ(latest["manifest"], Json::parse(slurp(*folder / "MANIFEST.json"))["digest"]);
    ASSERT_TRUE(save(ckpt, 20));
    EXPECT_EQ(newestStep(ckpt), 20);
    const auto listed = listCheckpoints(ckpt, Verify::Digests);
    ASSERT_EQ(listed->size(), 2u);
    EXPECT_EQ((*listed)[0].step, 20);

    const auto found = newestCheckpoint(ckpt, Verify::Digests);
    ASSERT_TRUE(found);
    EXPECT_TRUE(found->skipped.empty());
    CheckpointReader reader(found->folder, found->manifest);
    const LogicalTensor &tensor = reader.manifest().tensors[0];
    const std::vector<float> expected = valuesOf(20);
    for (std::int64_t begin = 0; begin <= elements; ++begin) {
        for (std::int64_t end = begin; end <= elements; ++end) {
            std::vector<float> out(static_cast<std::size_t>(end - begin) + 1, -1);
            ASSERT_TRUE(reader.read(tensor, begin, end, out.data()));
            for (std::int64_t i = begin; i < end; ++i)
                EXPECT_EQ(out[static_cast<std::size_t>(i - begin)], expected[static_cast<std::size_t>(i)]);
            EXPECT_EQ(out.back(), -1);
        }
    }
    EXPECT_FALSE(reader.read(tensor, 0, 11, nullptr));
    EXPECT_FALSE(reader.read(tensor, -1, 1, nullptr));
}

TEST(CheckpointStore, AStepIsWrittenOnce)
{
    const Scratch dir;
    const fs::path ckpt = dir / "ckpt";
    const auto one = beginSave(ckpt, 5, "a");
    const auto two = beginSave(ckpt, 5, "b");
    ASSERT_TRUE(one);
    ASSERT_TRUE(two);
    EXPECT_EQ(beginSave(ckpt, 5, "a").error().code, Code::InUse);
    const auto commit = [](const fs::path &temporary) {
        std::vector<FileEntry> files = {writeShard(temporary, 0, 5).value(),
                                        writeShard(temporary, 1, 5).value()};
        return commitSave(temporary, manifestOf(5, files));
    };
    ASSERT_TRUE(commit(*one));
    EXPECT_EQ(commit(*two).error().code, Code::InUse);
    EXPECT_EQ(namesOf(ckpt), (std::set<std::string>{"LATEST", "step-000000005"}));
    EXPECT_EQ(beginSave(ckpt, 5, "c").error().code, Code::InUse);
    for (const char *id : {"", "a/b", "../x", "a.b"})
        EXPECT_FALSE(beginSave(ckpt, 6, id)) << id;
    EXPECT_FALSE(beginSave(ckpt, -1, "a"));
}

TEST(CheckpointStore, ACommitThatDoesNotMatchItsFilesIsAbandoned)
{
    const Scratch dir;
    const fs::path ckpt = dir / "ckpt";
    ASSERT_TRUE(save(ckpt, 1));
    const auto before = namesOf(ckpt);
    const auto attempt = [&](const std::function<void(const fs::path &, Manifest &)> &change) {
        const auto temporary = beginSave(ckpt, 2, "x");
        EXPECT_TRUE(temporary);
        Manifest m =
            manifestOf(2, {writeShard(*temporary, 0, 2).value(), writeShard(*temporary, 1, 2).value()});
        change(*temporary, m);
        const auto folder = commitSave(*temporary, m);
        EXPECT_FALSE(folder);
        EXPECT_EQ(namesOf(ckpt), before);
    };
    attempt([](const fs::path &, Manifest &m) { m.files[0].size += 1; });
    attempt([](const fs::path &folder, Manifest &) { fs::remove(folder / shardName(1)); });
    attempt([](const fs::path &, Manifest &m) { m.tensors[0].shards.pop_back(); });
    attempt([](const fs::path &folder, Manifest &) { fs::copy(folder / shardName(1), folder / "stray"); });
    attempt([](const fs::path &folder, Manifest &) {
        fs::remove(folder / shardName(1));
        fs::create_symlink("/dev/null", folder / shardName(1));
    });
    EXPECT_EQ(newestStep(ckpt), 1);
}

/// Damage to the newest one: the one before is used and the reason is told.
TEST(CheckpointStore, FallsBackToTheNewestValidAndSaysWhy)
{
    const Scratch dir;
    const fs::path ckpt = dir / "ckpt";
    const auto damage = [&](const std::string &part, const std::function<void(const fs::path &)> &change) {
        fs::remove_all(ckpt);
        ASSERT_TRUE(save(ckpt, 1));
        const auto folder = save(ckpt, 2);
        ASSERT_TRUE(folder);
        change(*folder);
        const auto found = newestCheckpoint(ckpt, Verify::Digests);
        ASSERT_TRUE(found) << part;
        EXPECT_EQ(found->manifest.step, 1) << part;
        ASSERT_FALSE(found->skipped.empty());
        EXPECT_NE(found->skipped.front().text().find(part), std::string::npos)
            << found->skipped.front().text();
    };
    const auto edit = [](const fs::path &path, const std::function<void(std::string &)> &change) {
        std::string text = slurp(path);
        change(text);
        ASSERT_TRUE(writeFileAtomically(path, text));
    };
    damage("no such file", [](const fs::path &f) { fs::remove(f / "MANIFEST.json"); });
    damage("digest", [&](const fs::path &f) {
        edit(f / "MANIFEST.json", [](std::string &t) { t[t.find("\"step\"") + 8] = '7'; });
    });
    damage("JSON", [&](const fs::path &f) {
        edit(f / "MANIFEST.json", [](std::string &t) { t.resize(t.size() / 2); });
    });
    damage("missing", [](const fs::path &f) { fs::remove(f / shardName(1)); });
    damage("size", [&](const fs::path &f) { edit(f / shardName(1), [](std::string &t) { t.pop_back(); }); });
    damage("damaged",
           [&](const fs::path &f) { edit(f / shardName(1), [](std::string &t) { t.back() ^= 1; }); });
    damage("damaged", [&](const fs::path &f) {
        // The same sizes, other content: files of two ranks swapped in name would be this too.
        fs::copy_file(f.parent_path() / "step-000000001" / shardName(1), f / shardName(1),
                      fs::copy_options::overwrite_existing);
    });
    damage("another step", [](const fs::path &f) {
        fs::copy_file(f.parent_path() / "step-000000001" / "MANIFEST.json", f / "MANIFEST.json",
                      fs::copy_options::overwrite_existing);
    });

    // Nothing valid at all.
    fs::remove(ckpt / "step-000000001" / "MANIFEST.json");
    const auto none = newestCheckpoint(ckpt, Verify::Sizes);
    EXPECT_EQ(none.error().code, Code::NotFound);
    ASSERT_NE(none.error().cause, nullptr);
}

TEST(CheckpointStore, LatestIsOnlyAHint)
{
    const Scratch dir;
    const fs::path ckpt = dir / "ckpt";
    ASSERT_TRUE(save(ckpt, 1));
    ASSERT_TRUE(save(ckpt, 2));
    fs::remove(ckpt / "LATEST");
    EXPECT_EQ(newestStep(ckpt), 2);
    for (const char *text : {"", "{", "[]", "{\"step\": \"x\"}", "{\"step\": 7}"}) {
        ASSERT_TRUE(writeFileAtomically(ckpt / "LATEST", text));
        const auto found = newestCheckpoint(ckpt, Verify::Sizes);
        ASSERT_TRUE(found);
        EXPECT_EQ(found->manifest.step, 2);
        EXPECT_EQ(found->skipped.size(), 1u) << text;
    }
    // Killed between the commit and LATEST: the newer one counts, and nothing is wrong.
    ASSERT_TRUE(writeFileAtomically(ckpt / "LATEST", "{\"step\": 1}"));
    EXPECT_TRUE(newestCheckpoint(ckpt, Verify::Sizes)->skipped.empty());
    EXPECT_EQ(newestStep(ckpt), 2);
}

TEST(CheckpointStore, KeepsTheNewestAndThePinned)
{
    const Scratch dir;
    const fs::path ckpt = dir / "ckpt";
    for (const std::int64_t step : {1, 2, 3, 4, 5})
        ASSERT_TRUE(save(ckpt, step));
    fs::remove(ckpt / "step-000000005" / shardName(0)); // damaged: stays, does not count
    fs::create_directory(ckpt / "step-000000000");      // left by an interrupted removal
    fs::create_directory(ckpt / "step-000000009");      // newer than any valid one: not ours to judge
    fs::create_directory(ckpt / "step-x");
    ASSERT_TRUE(retainCheckpoints(ckpt, 2, {1}));
    EXPECT_EQ(namesOf(ckpt),
              (std::set<std::string>{"LATEST", "step-000000001", "step-000000003", "step-000000004",
                                     "step-000000005", "step-000000009", "step-x"}));
    ASSERT_TRUE(retainCheckpoints(ckpt, 0)); // at least one
    EXPECT_EQ(newestStep(ckpt), 4);
    ASSERT_TRUE(beginSave(ckpt, 7, "old"));
    ASSERT_TRUE(beginSave(ckpt, 7, "live"));
    removeStaleSaves(ckpt, "live");
    EXPECT_TRUE(fs::exists(ckpt / ".tmp-7-live"));
    EXPECT_FALSE(fs::exists(ckpt / ".tmp-7-old"));
    abandonSave(ckpt / "step-000000004"); // refuses what is no temporary folder
    EXPECT_EQ(newestStep(ckpt), 4);
}

/// Killed with -9 at many moments while it saves and removes: what is there afterwards is a whole checkpoint, and the folder
/// can be used again.
TEST(CheckpointStore, KilledAtAnyMomentLeavesAWholeCheckpoint)
{
    const Scratch dir;
    const fs::path ckpt = dir / "ckpt";
    ASSERT_TRUE(save(ckpt, 1));
    std::int64_t last = 1;
    for (int round = 0; round < 25; ++round) {
        const pid_t child = ::fork();
        if (child == 0) {
            for (std::int64_t step = last + 1;; ++step) {
                if (!save(ckpt, step, "k" + std::to_string(round)) || !retainCheckpoints(ckpt, 2))
                    ::_exit(1);
            }
        }
        ::usleep(static_cast<useconds_t>(3000 + round * 1300));
        ::kill(child, SIGKILL);
        int status = 0;
        ASSERT_EQ(::waitpid(child, &status, 0), child);
        ASSERT_TRUE(WIFSIGNALED(status));
        const auto found = newestCheckpoint(ckpt, Verify::Digests);
        ASSERT_TRUE(found) << found.error().text();
        ASSERT_GE(found->manifest.step, last);
        last = found->manifest.step;
        CheckpointReader reader(found->folder, found->manifest);
        std::vector<float> out(elements);
        ASSERT_TRUE(reader.read(reader.manifest().tensors[0], 0, elements, out.data()));
        EXPECT_EQ(out, valuesOf(last));
        removeStaleSaves(ckpt, "none");
    }
}

TEST(CheckpointReader, FilesThatDoNotHoldWhatTheManifestSays)
{
    const Scratch dir;
    const auto folder = save(dir / "ckpt", 3);
    ASSERT_TRUE(folder);
    const Manifest good = loadCheckpoint(*folder, Verify::Digests).value();
    std::vector<float> out(elements);
    const auto refused = [&](const std::function<void(Manifest &)> &change) {
        Manifest m = good;
        change(m);
        CheckpointReader reader(*folder, m);
        const auto status = reader.read(reader.manifest().tensors[0], 0, elements, out.data());
        ASSERT_FALSE(status);
        EXPECT_EQ(status.error().code, Code::BadData);
    };
    refused([](Manifest &m) { m.tensors[0].shards[1].key = "other"; });
    refused([](Manifest &m) { m.tensors[0].shards[1].file = shardName(0); });
    refused([](Manifest &m) { m.tensors[0].shards.pop_back(); });
    Manifest m = good;
    m.tensors[0].dtype = DType::BF16;
    CheckpointReader reader(*folder, m);
    EXPECT_FALSE(reader.read(reader.manifest().tensors[0], 0, elements, out.data()));
}
