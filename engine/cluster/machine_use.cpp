// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/cluster/machine_use.h"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <utility>

namespace rankyard::cluster {

UseReader::UseReader(const Node &machine, std::optional<Nvml> nvml, std::filesystem::path proc)
    : m_machine(machine),
      m_nvml(std::move(nvml)),
      m_proc(std::move(proc))
{}

/// Lines "cpu  user nice system idle iowait irq softirq steal …" of proc(5), all together first.
std::vector<UseReader::Times> UseReader::processorTimes() const
{
    std::ifstream file(m_proc / "stat");
    std::vector<Times> list;
    for (std::string line; std::getline(file, line) && line.starts_with("cpu");) {
        std::istringstream words(line);
        std::string name;
        words >> name;
        Times times;
        double value = 0;
        for (int i = 0; i < 8 && words >> value; ++i) { // guests are in user and nice already
            times.all += value;
            if (i != 3 && i != 4)
                times.busy += value;
        }
        list.push_back(times);
    }
    return list;
}

/// The second thread of a core has the core's number plus the number of cores, as Linux counts on most machines.
void UseReader::addProcessors(std::vector<DeviceUse> &use)
{
    const std::vector<Times> now = processorTimes();
    const std::vector<Times> before = std::exchange(m_before, now);
    if (now.empty() || before.size() != now.size())
        return;
    const auto share = [&](std::size_t first, std::size_t step) {
        Times sum;
        for (std::size_t i = first; i < now.size(); i += step) {
            sum.busy += now[i].busy - before[i].busy;
            sum.all += now[i].all - before[i].all;
        }
        return sum.all > 0 ? std::clamp(sum.busy / sum.all, 0.0, 1.0) : -1;
    };
    use[0].busy = share(0, now.size());
    const std::vector<int> cores = m_machine.of(DeviceKind::Core);
    for (std::size_t i = 0; i < cores.size() && 1 + i < now.size(); ++i)
        use[static_cast<std::size_t>(cores[i])].busy = share(1 + i, cores.size());
}

void UseReader::addMemory(std::vector<DeviceUse> &use) const
{
    std::ifstream file(m_proc / "meminfo");
    double total = -1;
    double available = -1;
    for (std::string line; std::getline(file, line);) {
        std::istringstream words(line);
        std::string name;
        double kilobytes = 0;
        if (!(words >> name >> kilobytes))
            continue;
        if (name == "MemTotal:")
            total = kilobytes * 1024;
        if (name == "MemAvailable:")
            available = kilobytes * 1024;
    }
    if (total >= 0 && available >= 0)
        use[0].bytes = total - available;
}

std::vector<DeviceUse> UseReader::read()
{
    std::vector<DeviceUse> use(std::max<std::size_t>(1, m_machine.devices.size()));
    addProcessors(use);
    addMemory(use);
    if (!m_nvml)
        return use;
    const std::vector<int> gpus = m_machine.of(DeviceKind::Gpu);
    const std::vector<Nvml::Use> now = m_nvml->use();
    for (std::size_t i = 0; i < gpus.size() && i < now.size(); ++i)
        use[static_cast<std::size_t>(gpus[i])] = {now[i].busy, now[i].bytes, now[i].watts};
    return use;
}

} // namespace rankyard::cluster
