// SPDX-License-Identifier: GPL-3.0-or-later
#include "app/ctl/command.h"
#include "remote/session/session.h"

namespace rankyard::ctl {

namespace {

using Request = Status (session::Session::*)(const std::string &run);

void addRequest(Commands &commands, const std::string &name, const std::string &what, Request request)
{
    auto run = std::make_shared<std::string>();
    CLI::App *app =
        commands.add(commands.root(), name, what, [run, request, name](Output &output) -> Result<Exit> {
            RY_ASSIGN(const auto store, store::RunStore::open(store::RunStore::defaultFile()));
            RY_ASSIGN(const auto info, store->run(*run));
            RY_ASSIGN(const auto service, session::RunService::open(store::RunStore::defaultFile(), {}));
            session::Session &session = service->session();
            // An agent takes a stop of what has just ended for done; who asks for one by name has another run in mind.
            if (const auto known = session.describe(info.id);
                known ? telemetry::isTerminal(known->first.state) : telemetry::isTerminal(info.state)) {
                return Error::make(Code::Usage, "the run has ended: there is nothing to " + name, info.id)
                    .withFound(telemetry::nameOf(known ? known->first.state : info.state))
                    .withHint("rankyardctl runs list shows what runs");
            }
            RY_TRY((session.*request)(info.id));
            if (output.json)
                output.document({{"run", info.id}, {"requested", name}});
            else
                output.line(info.id + ": " + name + " requested");
            return Exit::Done;
        });
    app->add_option("run", *run, "Id, a unique beginning of it, or \"last\"")->required();
}

} // namespace

void addControl(Commands &commands)
{
    addRequest(commands, "stop", "End a run at its next step, with a checkpoint", &session::Session::stop);
    addRequest(commands, "kill", "End a run at once", &session::Session::kill);
    addRequest(commands, "pause", "Let a run wait at its next step", &session::Session::pause);
    addRequest(commands, "resume", "Let a paused run go on", &session::Session::resume);
    addRequest(commands, "checkpoint", "Save a run at its next step", &session::Session::checkpoint);
}

} // namespace rankyard::ctl
