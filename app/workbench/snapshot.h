// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "app/workbench/command_line.h"

namespace rankyard::ui {
class DataHub;
class MainWindow;
} // namespace rankyard::ui

namespace rankyard::app {

/// Draws the page of `line` into its picture as soon as everything that it shows is there. Runs the event loop until then.
/// NotFound: no such run; Io: the picture could not be written, or the store could not be read.
Status drawSnapshot(const CommandLine &line, ui::DataHub &hub, ui::MainWindow &window);

} // namespace rankyard::app
