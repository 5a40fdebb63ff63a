// SPDX-License-Identifier: GPL-3.0-or-later
#include "ui/data/run_reader.h"

#include <algorithm>
#include <limits>

namespace rankyard::ui {

namespace {

constexpr int pollMs = 100;
constexpr int publishMs = 34;
constexpr int listMs = 250;
constexpr std::int64_t stepsPerPiece = 4000; ///< of one rank: some milliseconds for the page that takes them

} // namespace

void RankColumns::append(const telemetry::StepRecord &record)
{
    const std::size_t before = step.size();
    step.push_back(record.step);
    wallNs.push_back(record.wallNs);
    loss.push_back(record.loss);
    gradNorm.push_back(record.gradNorm);
    lr.push_back(record.lr);
    lossScale.push_back(record.lossScale);
    tokensPerS.push_back(record.tokensPerS);
    mfu.push_back(record.mfu);
    stepMs.push_back(record.stepMs);
    computeMs.push_back(record.computeMs);
    optimizerMs.push_back(record.optimizerMs);
    dataMs.push_back(record.dataMs);
    bubbleMs.push_back(record.bubbleMs);
    exposedMs.push_back(record.exposedMs());
    overflow.push_back(record.overflow ? 1 : 0);
    for (std::size_t kind = 0; kind < memory.size(); ++kind)
        memory[kind].push_back(static_cast<double>(record.memory[kind]));
    for (const telemetry::GroupFigures &group : record.comm) {
        CommColumns &columns = comm[group.group];
        columns.payload.resize(before, 0);
        columns.ms.resize(before, 0);
        columns.exposedMs.resize(before, 0);
        columns.payload.push_back(static_cast<double>(group.payload));
        columns.ms.push_back(group.ms);
        columns.exposedMs.push_back(group.exposedMs);
    }
    for (auto &[name, columns] : comm) {
        columns.payload.resize(before + 1, 0);
        columns.ms.resize(before + 1, 0);
        columns.exposedMs.resize(before + 1, 0);
    }
}

void RankColumns::append(const RankColumns &other)
{
    const std::size_t before = size();
    const auto add = [](auto &to, const auto &from) { to.insert(to.end(), from.begin(), from.end()); };
    add(step, other.step);
    add(wallNs, other.wallNs);
    add(loss, other.loss);
    add(gradNorm, other.gradNorm);
    add(lr, other.lr);
    add(lossScale, other.lossScale);
    add(tokensPerS, other.tokensPerS);
    add(mfu, other.mfu);
    add(stepMs, other.stepMs);
    add(computeMs, other.computeMs);
    add(optimizerMs, other.optimizerMs);
    add(dataMs, other.dataMs);
    add(bubbleMs, other.bubbleMs);
    add(exposedMs, other.exposedMs);
    add(overflow, other.overflow);
    for (std::size_t kind = 0; kind < memory.size(); ++kind)
        add(memory[kind], other.memory[kind]);
    for (const auto &[name, from] : other.comm) {
        CommColumns &to = comm[name];
        to.payload.resize(before, 0);
        to.ms.resize(before, 0);
        to.exposedMs.resize(before, 0);
        add(to.payload, from.payload);
        add(to.ms, from.ms);
        add(to.exposedMs, from.exposedMs);
    }
    for (auto &[name, to] : comm) {
        to.payload.resize(size(), 0);
        to.ms.resize(size(), 0);
        to.exposedMs.resize(size(), 0);
    }
}

RunReader::RunReader(std::filesystem::path file, MemoryPredictor predict)
    : m_file(std::move(file)),
      m_predict(predict)
{}

RunReader::~RunReader() = default;

void RunReader::start()
{
    m_publish = std::make_unique<Throttle>(publishMs);
    connect(m_publish.get(), &Throttle::triggered, this, &RunReader::flush);
    m_poll = std::make_unique<QTimer>();
    m_poll->setInterval(pollMs);
    connect(m_poll.get(), &QTimer::timeout, this, &RunReader::look);
    m_poll->start();
    look();
}

void RunReader::stop()
{
    m_poll.reset();
    m_publish.reset();
    m_open.clear();
    m_store.reset();
}

bool RunReader::connectStore()
{
    if (m_store)
        return true;
    auto opened = store::RunStore::open(m_file, true);
    if (opened) {
        m_store = std::move(opened).value();
        m_toldFailure = false;
        return true;
    }
    if (opened.error().code == Code::NotFound) {
        // No run yet on this machine.
        if (!m_list) {
            m_list = std::make_shared<std::vector<store::RunInfo>>();
            emit runs(m_list);
        }
    } else if (!m_toldFailure) {
        m_toldFailure = true;
        emit failed(opened.error());
    }
    return false;
}

void RunReader::poke()
{
    if (m_poll)
        look();
}

void RunReader::look()
{
    if (!connectStore())
        return;
    const std::int64_t version = m_store->dataVersion();
    const bool news = version != m_version;
    m_version = version;
    m_listDirty = m_listDirty || news;
    if (m_listDirty && (!m_listRead.isValid() || m_listRead.elapsed() >= listMs))
        readList();
    bool more = false;
    for (auto &[id, run] : m_open) {
        if (news || !run.caughtUp)
            more = read(id, run) || more;
    }
    if (more)
        QMetaObject::invokeMethod(this, &RunReader::look, Qt::QueuedConnection);
}

void RunReader::readList()
{
    m_listRead.start();
    auto list = m_store->runs();
    if (!list) {
        if (!m_toldFailure)
            emit failed(list.error());
        m_toldFailure = true;
        return;
    }
    m_listDirty = false;
    m_list = std::make_shared<std::vector<store::RunInfo>>(std::move(list).value());
    emit runs(m_list);
}

bool RunReader::readSteps(const std::string &id, OpenRun &run, RunUpdate &news)
{
    bool more = false;
    for (int rank = 0; rank < std::max(1, news.info.world); ++rank) {
        auto [last, fresh] = run.lastStep.try_emplace(rank, 0);
        // Steps may have holes (a rank that came late): a piece is bounded by rows through its step range, and an empty piece is
        // the end only when it reaches the run's last step.
        const std::int64_t first = last->second + 1;
        std::int64_t end = first + stepsPerPiece - 1;
        if (end >= news.info.step)
            end = std::numeric_limits<std::int64_t>::max();
        auto rows = m_store->steps(id, rank, first, end);
        if (!rows) {
            news.error = rows.error();
            return false;
        }
        RankColumns &columns = news.ranks[rank];
        for (const store::StepRow &row : *rows)
            columns.append(row.record);
        if (!rows->empty())
            run.rowEpoch[rank] = rows->back().epoch;
        run.rows += static_cast<std::int64_t>(rows->size());
        if (end != std::numeric_limits<std::int64_t>::max()) {
            last->second = end;
            more = true;
        } else if (!rows->empty()) {
            last->second = rows->back().record.step;
        }
        if (columns.size() == 0)
            news.ranks.erase(rank);
    }
    return more;
}

std::vector<RankColumns> RunReader::readTails(const std::string &id)
{
    std::vector<RankColumns> tails;
    const auto rows = m_store->superseded(id, -1);
    if (!rows || rows->empty())
        return tails;
    // Loss and norm are the same on all ranks: the lowest stands for them.
    std::int32_t lead = rows->front().rank;
    for (const store::StepRow &row : *rows)
        lead = std::min(lead, row.rank);
    std::uint32_t epoch = 0;
    for (const store::StepRow &row : *rows) {
        if (row.rank != lead)
            continue;
        if (tails.empty() || row.epoch != epoch)
            tails.emplace_back();
        epoch = row.epoch;
        tails.back().append(row.record);
    }
    return tails;
}

bool RunReader::superseded(const std::string &id, const OpenRun &run, std::uint32_t epoch)
{
    // A restart runs steps again that were read already: then the last one of a rank is gone, or is of another epoch.
    for (const auto &[rank, last] : run.lastStep) {
        const auto known = run.rowEpoch.find(rank);
        if (known == run.rowEpoch.end() || known->second >= epoch)
            continue;
        const auto row = m_store->steps(id, rank, last, last);
        if (row && (row->empty() || row->front().epoch != known->second))
            return true;
    }
    return false;
}

bool RunReader::read(const std::string &id, OpenRun &run)
{
    auto info = m_store->run(id);
    if (!info) {
        auto news = std::make_shared<RunUpdate>();
        news->run = id;
        news->error = info.error();
        news->complete = true;
        run.caughtUp = true;
        emit update(news);
        return false;
    }
    if (!run.first && superseded(id, run, info->epoch))
        run = OpenRun{};
    auto news = std::make_shared<RunUpdate>();
    news->run = id;
    news->info = std::move(info).value();
    news->reset = run.first;
    if (run.first && m_predict)
        news->predictedBytes = m_predict(news->info.job);
    if (run.first)
        news->tails = readTails(id);
    bool more = readSteps(id, run, *news);

    if (auto logs = m_store->logs(id, run.lastLog, mostLogs)) {
        news->logs = std::move(logs).value();
        if (!news->logs.empty())
            run.lastLog = news->logs.back().id;
    }
    if (auto evals = m_store->evals(id); evals && (run.first || evals->size() != run.evals)) {
        run.evals = evals->size();
        news->evals = std::move(evals).value();
    }
    if (auto events = m_store->events(id); events && (run.first || events->size() != run.events)) {
        run.events = events->size();
        news->events = std::move(events).value();
    }
    run.first = false;
    run.caughtUp = !more;
    news->complete = !more;
    news->rowsLoaded = run.rows;
    news->rowsExpected = std::max(run.rows, news->info.step * std::max(1, news->info.world));

    if (run.pending && !news->reset) {
        // Not yet published: one update with both.
        RunUpdate &into = *run.pending;
        into.info = news->info;
        into.complete = news->complete;
        into.rowsLoaded = news->rowsLoaded;
        into.rowsExpected = news->rowsExpected;
        into.error = news->error;
        for (const auto &[rank, columns] : news->ranks)
            into.ranks[rank].append(columns);
        into.logs.insert(into.logs.end(), std::make_move_iterator(news->logs.begin()),
                         std::make_move_iterator(news->logs.end()));
        if (news->evals)
            into.evals = std::move(news->evals);
        if (news->events)
            into.events = std::move(news->events);
    } else {
        run.pending = news;
    }
    m_publish->request();
    return more;
}

void RunReader::flush()
{
    for (auto &[id, run] : m_open) {
        if (run.pending)
            emit update(std::exchange(run.pending, nullptr));
    }
}

void RunReader::openRun(const QString &run)
{
    m_open[run.toStdString()] = OpenRun{};
    look();
}

void RunReader::closeRun(const QString &run) { m_open.erase(run.toStdString()); }

void RunReader::preview(const QString &run, int points)
{
    std::vector<double> losses;
    if (connectStore()) {
        if (auto series = m_store->series(run.toStdString(), "loss", 0, 0,
                                          std::numeric_limits<std::int64_t>::max(), points)) {
            for (const store::SeriesPoint &point : *series)
                losses.push_back(point.last);
        }
    }
    emit previewed(run, losses);
}

} // namespace rankyard::ui
