// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/base/file.h"
#include "tests/engine/store/store_test.h"

#include <sqlite3.h>

#include <cmath>
#include <set>

using namespace rankyard;
using namespace rankyard::store;
using telemetry::RunState;

using RunStoreTest = StoreTest;

TEST(RunId, HasItsFormAndIsUnique)
{
    std::set<std::string> ids;
    for (int i = 0; i < 1000; ++i) {
        const std::string id = makeRunId();
        EXPECT_TRUE(isRunId(id)) << id;
        ids.insert(id);
    }
    EXPECT_EQ(ids.size(), 1000u);
    for (const char *bad : {"", "r-", "../../etc", "r-20260101T000000-abcde/", "r-20260101T000000-abcdefg",
                            "r-2026010aT000000-abcdef", "r-20260101t000000-abcdef", "last"})
        EXPECT_FALSE(isRunId(bad)) << bad;
    EXPECT_TRUE(isRunId("r-20260101T000000-abcdef"));
}

TEST_F(RunStoreTest, KeepsWhatItWasTold)
{
    RunInfo run;
    run.id = makeRunId();
    run.name = "näme";
    run.state = RunState::Starting;
    run.node = "local";
    run.runDir = "/somewhere";
    run.job = "{\"a\": 1}";
    run.startedNs = 5;
    run.steps = 200;
    run.world = 4;
    run.tags = "a b";
    run.error = Error::make(Code::RankFailed, "died", "rank 1");
    ASSERT_TRUE(m_store->putRun(run));
    const auto back = m_store->run(run.id);
    ASSERT_TRUE(back);
    EXPECT_EQ(back->name, run.name);
    EXPECT_EQ(back->state, run.state);
    EXPECT_EQ(back->job, run.job);
    EXPECT_EQ(back->world, 4);
    EXPECT_EQ(back->tags, "a b");
    EXPECT_TRUE(std::isnan(back->lastLoss));
    EXPECT_TRUE(std::isnan(back->bestLoss));
    EXPECT_EQ(back->error->text(), run.error->text());

    ASSERT_TRUE(m_store->ingest(run.id, stepRecords(1, 10, [](std::int64_t) { return 2.0; })));
    run.name = "other";
    run.tags.clear();
    run.state = RunState::Draft;
    ASSERT_TRUE(m_store->putRun(run));
    const auto again = m_store->run(run.id);
    EXPECT_EQ(again->name, "other");
    EXPECT_EQ(again->tags, "a b");
    EXPECT_EQ(again->state, RunState::Starting);
    EXPECT_EQ(again->step, 10) << "what records said stays";
    EXPECT_EQ(again->lastLoss, 2.0);
    ASSERT_TRUE(m_store->setTags(run.id, "c"));
    EXPECT_EQ(m_store->run(run.id)->tags, "c");
}

TEST_F(RunStoreTest, FindsByUniquePrefixAndLast)
{
    EXPECT_EQ(m_store->run("last").error().code, Code::NotFound);
    const std::string first = newRun();
    const std::string second = newRun();
    EXPECT_EQ(m_store->run("last")->id, second);
    EXPECT_EQ(m_store->run(first.substr(0, 23))->id, first);
    EXPECT_EQ(m_store->run("r-").error().code, Code::Usage);
    EXPECT_EQ(m_store->run("").error().code, Code::NotFound);
    EXPECT_EQ(m_store->run("%").error().code, Code::NotFound);
    EXPECT_EQ(m_store->run("r-1").error().code, Code::NotFound);
    const auto all = m_store->runs();
    ASSERT_EQ(all->size(), 2u);
    EXPECT_EQ((*all)[0].id, second) << "newest first";
}

TEST_F(RunStoreTest, StatesHaveAnEndAndAnError)
{
    const std::string id = newRun();
    ASSERT_TRUE(m_store->setState(id, RunState::Running));
    EXPECT_EQ(m_store->run(id)->endedNs, 0);
    ASSERT_TRUE(m_store->setState(id, RunState::Failed, Error::make(Code::RankFailed, "died", "rank 0")));
    EXPECT_GT(m_store->run(id)->endedNs, 0);
    EXPECT_EQ(m_store->run(id)->error->where, "rank 0");
    ASSERT_TRUE(m_store->setState(id, RunState::Preflight));
    EXPECT_EQ(m_store->run(id)->endedNs, 0);
    EXPECT_FALSE(m_store->run(id)->error);
    EXPECT_EQ(m_store->setState("r-none", RunState::Failed).error().code, Code::NotFound);
}

TEST_F(RunStoreTest, RemovesEverythingOfARun)
{
    const std::string id = newRun();
    const std::string other = newRun();
    std::mt19937_64 random(1);
    ASSERT_TRUE(m_store->ingest(id, stepRecords(1, 100, [](std::int64_t) { return 1.0; })));
    ASSERT_TRUE(m_store->ingest(id, {samples::record(101, samples::spans(100, 10, random))}));
    ASSERT_TRUE(std::filesystem::exists(m_dir / "runs" / id));
    ASSERT_TRUE(m_store->removeRun(id));
    EXPECT_EQ(m_store->run(id).error().code, Code::NotFound);
    EXPECT_FALSE(std::filesystem::exists(m_dir / "runs" / id));
    EXPECT_TRUE(m_store->run(other));
    EXPECT_EQ(m_store->removeRun(id).error().code, Code::NotFound);

    sqlite3 *raw = nullptr;
    ASSERT_EQ(sqlite3_open(file().c_str(), &raw), SQLITE_OK);
    for (const char *table : {"steps", "pyramid", "streams", "spans", "events", "logs"}) {
        sqlite3_stmt *count = nullptr;
        sqlite3_prepare_v2(raw, (std::string("SELECT count(*) FROM ") + table).c_str(), -1, &count, nullptr);
        EXPECT_EQ(sqlite3_step(count), SQLITE_ROW);
        EXPECT_EQ(sqlite3_column_int(count, 0), 0) << table;
        sqlite3_finalize(count);
    }
    sqlite3_close(raw);
}

TEST_F(RunStoreTest, DataVersionMovesWithOwnAndOthersChanges)
{
    const std::string id = newRun();
    auto other = open();
    const std::int64_t before = m_store->dataVersion();
    EXPECT_EQ(m_store->dataVersion(), before);
    ASSERT_TRUE(m_store->setTags(id, "mine"));
    const std::int64_t mine = m_store->dataVersion();
    EXPECT_NE(mine, before);
    ASSERT_TRUE(other->setTags(id, "theirs"));
    EXPECT_NE(m_store->dataVersion(), mine);
}

TEST_F(RunStoreTest, ReadOnlyNeverWrites)
{
    const std::string id = newRun();
    auto reader = open(true);
    ASSERT_TRUE(reader);
    EXPECT_TRUE(reader->run(id));
    EXPECT_EQ(reader->setTags(id, "x").error().code, Code::Io);
    EXPECT_EQ(RunStore::open(m_dir / "none.sqlite", true).error().code, Code::NotFound);
    EXPECT_FALSE(std::filesystem::exists(m_dir / "none.sqlite"));
}

/// A reader that comes while another process makes the store sees none yet, not a foreign file.
TEST_F(RunStoreTest, AStoreInTheMakingIsNotThereYet)
{
    const auto path = m_dir / "young.sqlite";
    sqlite3 *maker = nullptr;
    ASSERT_EQ(sqlite3_open(path.c_str(), &maker), SQLITE_OK);
    ASSERT_EQ(sqlite3_exec(maker, "PRAGMA journal_mode=WAL", nullptr, nullptr, nullptr), SQLITE_OK);
    EXPECT_EQ(RunStore::open(path, true).error().code, Code::NotFound);
    ASSERT_EQ(sqlite3_exec(maker, "BEGIN IMMEDIATE; CREATE TABLE half(a)", nullptr, nullptr, nullptr),
              SQLITE_OK);
    EXPECT_EQ(RunStore::open(path, true).error().code, Code::NotFound);
    ASSERT_EQ(sqlite3_exec(maker, "ROLLBACK", nullptr, nullptr, nullptr), SQLITE_OK);
    sqlite3_close(maker);
    EXPECT_TRUE(RunStore::open(path));
    EXPECT_TRUE(RunStore::open(path, true));
}

TEST_F(RunStoreTest, ANewerSchemaIsNotWritten)
{
    const std::string id = newRun();
    m_store.reset();
    sqlite3 *raw = nullptr;
    ASSERT_EQ(sqlite3_open(file().c_str(), &raw), SQLITE_OK);
    ASSERT_EQ(sqlite3_exec(raw, "PRAGMA user_version=7", nullptr, nullptr, nullptr), SQLITE_OK);
    sqlite3_close(raw);
    const auto writing = RunStore::open(file());
    ASSERT_FALSE(writing);
    EXPECT_EQ(writing.error().code, Code::Newer);
    EXPECT_NE(writing.error().text().find("schema 7"), std::string::npos);
    const auto reading = RunStore::open(file(), true);
    ASSERT_TRUE(reading);
    EXPECT_TRUE((*reading)->run(id));
}

TEST_F(RunStoreTest, DamagedAndForeignFilesAreErrorsAndStayAsTheyAre)
{
    std::mt19937_64 random(1);
    std::string noise(20000, ' ');
    for (char &byte : noise)
        byte = static_cast<char>(random());
    ASSERT_TRUE(writeFileAtomically(m_dir / "noise", noise));
    const auto damaged = RunStore::open(m_dir / "noise");
    ASSERT_FALSE(damaged);
    EXPECT_EQ(damaged.error().code, Code::BadData);
    EXPECT_FALSE(damaged.error().hint.empty());
    EXPECT_EQ(readFile(m_dir / "noise").value(), noise);

    sqlite3 *raw = nullptr;
    ASSERT_EQ(sqlite3_open((m_dir / "foreign").c_str(), &raw), SQLITE_OK);
    sqlite3_exec(raw, "CREATE TABLE x(a)", nullptr, nullptr, nullptr);
    sqlite3_close(raw);
    EXPECT_EQ(RunStore::open(m_dir / "foreign").error().code, Code::BadData);

    // Damage in the middle of a store: errors, never a crash.
    const std::string id = newRun();
    ASSERT_TRUE(m_store->ingest(id, stepRecords(1, 3000, [](std::int64_t) { return 1.0; })));
    m_store.reset();
    const std::string good = readFile(file()).value();
    ASSERT_GT(good.size(), 100000u);
    for (int round = 0; round < 60; ++round) {
        std::string bad = good;
        for (int i = 0; i < 200; ++i)
            bad[4096 + random() % (bad.size() - 4096)] = static_cast<char>(random());
        const auto path = m_dir / "bad" / "runs.sqlite";
        std::filesystem::remove_all(path.parent_path());
        std::filesystem::create_directories(path.parent_path());
        ASSERT_TRUE(writeFileAtomically(path, bad));
        auto store = RunStore::open(path);
        if (!store)
            continue;
        (void)(*store)->runs();
        (void)(*store)->steps(id, 0, 0, 5000);
        (void)(*store)->series(id, "loss", 0, 0, 5000, 100);
        (void)(*store)->ingest(id, {samples::record(3001, samples::step(3001, random))});
    }
}

TEST_F(RunStoreTest, AnUnwritablePlaceIsAClearError)
{
    ASSERT_TRUE(writeFileAtomically(m_dir / "file", "x"));
    const auto store = RunStore::open(m_dir / "file" / "runs.sqlite");
    ASSERT_FALSE(store);
    EXPECT_EQ(store.error().code, Code::Io);
}
