// SPDX-License-Identifier: GPL-3.0-or-later
#include "ui/cluster/live_use.h"

#include "engine/telemetry/run_state.h"

#include <numeric>

namespace rankyard::ui {

namespace {

LiveUse::Read readMachine(const cluster::Node &machine)
{
    auto nvml = cluster::Nvml::open();
    auto reader = std::make_shared<cluster::UseReader>(
        machine, nvml ? std::optional(std::move(nvml).value()) : std::nullopt);
    return [reader] { return reader->read(); };
}

} // namespace

LiveUse::LiveUse(DataHub *hub, QObject *parent, MakeRead make, std::chrono::milliseconds every)
    : QObject(parent),
      m_hub(hub),
      m_make(make ? std::move(make) : readMachine),
      m_every(every)
{
    if (m_hub)
        connect(m_hub, &DataHub::runsChanged, this, &LiveUse::findRun);
}

LiveUse::~LiveUse() { m_thread = {}; }

void LiveUse::watch(const cluster::Node &machine)
{
    m_thread = {}; // stops and joins
    const std::uint64_t number = ++m_number;
    m_thread =
        std::jthread([this, machine, number](const std::stop_token &end) { loop(end, machine, number); });
    findRun();
}

void LiveUse::stop()
{
    m_thread = {};
    ++m_number;
    m_devices.clear();
    m_run.reset();
    emit changed();
}

void LiveUse::loop(const std::stop_token &end, const cluster::Node &machine, std::uint64_t number)
{
    const Read read = m_make(machine);
    while (!end.stop_requested()) {
        auto devices = std::make_shared<std::vector<cluster::DeviceUse>>(read());
        // The object outlives its thread, and a call that is still queued when it goes is dropped with it.
        QMetaObject::invokeMethod(
            this,
            [this, devices, number] {
                if (number != m_number)
                    return;
                m_devices = std::move(*devices);
                emit changed();
            },
            Qt::QueuedConnection);
        std::unique_lock lock(m_mutex);
        m_wake.wait_for(lock, end, m_every, [] { return false; });
    }
}

/// The newest run that is on.
void LiveUse::findRun()
{
    const store::RunInfo *newest = nullptr;
    if (m_hub && m_hub->runs() && m_thread.joinable()) {
        for (const store::RunInfo &run : *m_hub->runs()) {
            if (!telemetry::isTerminal(run.state) && (!newest || run.startedNs > newest->startedNs))
                newest = &run;
        }
    }
    const QString id = newest ? QString::fromStdString(newest->id) : QString();
    if (id == (m_run ? m_run->id() : QString()))
        return;
    if (m_run)
        m_run->disconnect(this);
    m_run = id.isEmpty() ? nullptr : m_hub->open(id);
    if (m_run)
        connect(m_run.get(), &RunData::changed, this, &LiveUse::changed);
    emit changed();
}

QString LiveUse::run() const { return m_run ? QString::fromStdString(m_run->info().name) : QString(); }

std::optional<LiveUse::Rank> LiveUse::rank(int slot) const
{
    if (!m_run || slot < 0)
        return std::nullopt;
    const auto found = m_run->ranks().find(slot); // ranks are placed in the order of slots
    if (found == m_run->ranks().end() || found->second.size() == 0)
        return std::nullopt;
    const RankColumns &columns = found->second;
    const auto last = [](const std::vector<double> &column) { return column.empty() ? -1 : column.back(); };
    Rank rank{0, last(columns.mfu), last(columns.tokensPerS)};
    for (const std::vector<double> &kind : columns.memory)
        rank.bytes += std::max(0.0, last(kind));
    return rank;
}

} // namespace rankyard::ui
