// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "ui/common/panel.h"

#include <cstdint>
#include <vector>

class QTimer;

namespace rankyard::ui {

/// This machine from /proc: processor, cores and how busy they are, memory.
struct MachineState {
    QString processor;
    int cores = 0;
    std::int64_t memoryTotal = 0;
    std::int64_t memoryAvailable = 0;
    double load = 0;
    std::vector<std::int64_t> busy; ///< per core, jiffies since boot
    std::vector<std::int64_t> all;
};
MachineState readMachine();

class MachinePanel : public Panel
{
    Q_OBJECT
public:
    explicit MachinePanel(QWidget *parent = nullptr);

private:
    class Area;
    void refresh();

    Area *m_area;
    QTimer *m_timer;
    MachineState m_before;
};

} // namespace rankyard::ui
