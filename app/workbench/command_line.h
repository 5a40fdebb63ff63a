// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/base/result.h"

#include <QSize>
#include <QString>
#include <QStringList>

#include <optional>

namespace rankyard::app {

/// What the workbench was asked to do. Parsed before QApplication exists: snapshots choose platform and scale by it.
struct CommandLine {
    QString job;      ///< --run JOB
    QString store;    ///< --store FILE; empty: the default
    QString theme;    ///< "dark", "light", empty: as set
    QString snapshot; ///< page; empty: no snapshot
    QString picture;  ///< FILE.png
    QString open;     ///< run id or prefix, "last", a job file, a cluster
    QString view;     ///< of the page of a snapshot: "search", "matrix"; empty: the first
    QString against;  ///< job file that the design of a snapshot is compared with
    QSize size{1600, 1000};
    double scale = 1;
    std::optional<int> text; ///< percent
    bool help = false;
    bool version = false;

    bool isSnapshot() const { return !snapshot.isEmpty(); }
    int viewIndex() const; ///< of `view` among the page's
};

/// `words` without the program's name. Anything unknown or malformed is Code::Usage.
Result<CommandLine> parseCommandLine(const QStringList &words);
QString usage();

} // namespace rankyard::app
