// SPDX-License-Identifier: GPL-3.0-or-later
#include "ui/data/run_actions.h"

namespace rankyard::ui {

QString RunActions::nameOf(Verb verb)
{
    switch (verb) {
    case Verb::Stop:
        return tr("Stop");
    case Verb::Kill:
        return tr("Stop at once");
    case Verb::Pause:
        return tr("Pause");
    case Verb::Resume:
        return tr("Resume");
    case Verb::Checkpoint:
        return tr("Checkpoint");
    case Verb::Remove:
        return tr("Delete");
    case Verb::Follow:
        return tr("Follow");
    }
    return {};
}

} // namespace rankyard::ui
