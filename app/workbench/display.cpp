// SPDX-License-Identifier: GPL-3.0-or-later
#include "app/workbench/display.h"

#include <QByteArray>

#include <xcb/xcb.h>

namespace rankyard::app {

namespace {

/// 0, or why there is no connection to the X server that DISPLAY names, as xcb counts the reasons.
int tryXServer()
{
    xcb_connection_t *const connection = xcb_connect(nullptr, nullptr);
    const int error = xcb_connection_has_error(connection);
    xcb_disconnect(connection);
    return error;
}

Error noDisplay(const char *what, const QByteArray &where)
{
    return Error::make(Code::NotHere, what, where.toStdString())
        .withHint(
            "Draw a page with rankyard --snapshot monitor FILE.png, or train with rankyardctl train JOB");
}

} // namespace

Status findDisplay()
{
    const QByteArray platform = qgetenv("QT_QPA_PLATFORM");
    if (!platform.isEmpty() && !platform.startsWith("xcb"))
        return {};
    if (platform.isEmpty() && !qEnvironmentVariableIsEmpty("WAYLAND_DISPLAY"))
        return {};
    const QByteArray display = qgetenv("DISPLAY");
    if (display.isEmpty())
        return noDisplay("there is no display to open a window on", {});
    switch (tryXServer()) {
    case 0:
        return {};
    case XCB_CONN_CLOSED_PARSE_ERR:
        return noDisplay("this is not the name of a display", "DISPLAY=" + display);
    default:
        return noDisplay("the X server does not answer or does not let this program in",
                         "DISPLAY=" + display);
    }
}

} // namespace rankyard::app
