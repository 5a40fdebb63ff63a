// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/base/result.h"

namespace rankyard::app {

/// Whether there is a display that a window can be opened on. Called before QApplication, which aborts the program where there
/// is none. An X server is asked for a connection; of Wayland and of other platforms (QT_QPA_PLATFORM) Qt knows itself.
/// NotHere: no display is named, or the X server does not answer.
Status findDisplay();

} // namespace rankyard::app
