// SPDX-License-Identifier: GPL-3.0-or-later
#include "app/ctl/command.h"
#include "engine/base/build_id.h"

#include <csignal>

int main(int argc, char **argv)
{
    std::signal(SIGPIPE, SIG_IGN);
    CLI::App app("Rankyard without a window: plan, train, watch and compare runs.", "rankyardctl");
    app.set_version_flag("--version", std::string(rankyard::buildId()));
    app.set_help_all_flag("--help-all", "Every command with its options");
    rankyard::ctl::Commands commands(app);
    rankyard::ctl::addTrain(commands);
    rankyard::ctl::addControl(commands);
    rankyard::ctl::addPlan(commands);
    rankyard::ctl::addValidate(commands);
    rankyard::ctl::addSearch(commands);
    rankyard::ctl::addCluster(commands);
    rankyard::ctl::addParity(commands);
    rankyard::ctl::addData(commands);
    rankyard::ctl::addInterop(commands);
    rankyard::ctl::addRuns(commands);
    rankyard::ctl::addCkpt(commands);
    return commands.run(argc, argv);
}
