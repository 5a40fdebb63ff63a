// SPDX-License-Identifier: GPL-3.0-or-later
#include "app/workbench/command_line.h"
#include "app/workbench/display.h"
#include "app/workbench/predict.h"
#include "app/workbench/service_actions.h"
#include "app/workbench/snapshot.h"
#include "engine/base/build_id.h"
#include "engine/base/file.h"
#include "engine/store/run_store.h"
#include "ui/common/english.h"
#include "ui/shell/main_window.h"

#include <QApplication>
#include <QTemporaryDir>

#include <clocale>
#include <cstdio>
#include <memory>

namespace {

using namespace rankyard;

int complain(const Error &error)
{
    std::fprintf(stderr, "rankyard: %s\n", error.text().c_str());
    return static_cast<int>(exitFor(error.code));
}

QStringList wordsOf(int argc, char **argv)
{
    QStringList words;
    for (int i = 1; i < argc; ++i)
        words << QString::fromLocal8Bit(argv[i]);
    return words;
}

/// Theme and text size: the remembered ones, unless the command line says otherwise; later changes come at once.
void dress(const app::CommandLine &line, ui::Settings &settings)
{
    if (!line.theme.isEmpty())
        settings.setThemeMode(line.theme == QLatin1String("dark") ? ui::ThemeMode::Dark
                                                                  : ui::ThemeMode::Light);
    if (line.text)
        settings.setTextPercent(*line.text);
    ui::Theme &theme = ui::Theme::instance();
    theme.setMode(settings.themeMode());
    theme.setTextPercent(settings.textPercent());
    theme.apply();
    QObject::connect(&settings, &ui::Settings::changed, &theme, [&settings, &theme] {
        if (settings.themeMode() != theme.mode())
            theme.setMode(settings.themeMode());
        if (settings.textPercent() != theme.textPercent())
            theme.setTextPercent(settings.textPercent());
    });
}

/// Shows the window and does what the command line asked for.
void begin(const app::CommandLine &line, ui::DataHub &hub, ui::RunActions &actions, ui::MainWindow &window)
{
    window.show();
    // Runs that went on without us: catching up with one connects, which follows all of them.
    const auto connection = std::make_shared<QMetaObject::Connection>();
    *connection = QObject::connect(&hub, &ui::DataHub::runsChanged, &window, [&hub, &actions, connection] {
        QObject::disconnect(*connection);
        for (const store::RunInfo &run : *hub.runs()) {
            if (telemetry::isLive(run.state))
                return actions.perform(ui::RunActions::Verb::Follow, QString::fromStdString(run.id));
        }
    });
    if (!line.job.isEmpty()) {
        window.showPage(QStringLiteral("monitor"));
        actions.startJob(line.job);
    } else if (!line.open.isEmpty()) {
        window.openAnything(line.open);
    } else {
        window.bringBackPage();
    }
}

} // namespace

int main(int argc, char **argv)
{
    const auto parsed = app::parseCommandLine(wordsOf(argc, argv));
    if (!parsed)
        return complain(parsed.error());
    const app::CommandLine &line = *parsed;
    if (line.help || line.version) {
        std::fputs(line.help ? qPrintable(app::usage())
                             : (std::string("rankyard ") + buildId() + "\n").c_str(),
                   stdout);
        return 0;
    }
    std::unique_ptr<QTemporaryDir> runtime;
    if (line.isSnapshot()) {
        // Qt warns where there is no runtime folder (root, containers); a snapshot starts nothing that would use it.
        if (qEnvironmentVariableIsEmpty("XDG_RUNTIME_DIR")) {
            runtime = std::make_unique<QTemporaryDir>();
            qputenv("XDG_RUNTIME_DIR", runtime->path().toLocal8Bit());
        }
        qputenv("QT_QPA_PLATFORM", "offscreen");
        qputenv("QT_SCALE_FACTOR", QByteArray::number(line.scale));
    } else if (const Status display = app::findDisplay(); !display) {
        return complain(display.error());
    }

    QCoreApplication::setApplicationName(QStringLiteral("rankyard"));
    QCoreApplication::setApplicationVersion(QString::fromLatin1(buildId()));
    int fewArguments = 1; // ours are not Qt's
    QApplication application(fewArguments, argv);
    // Qt sets the user's locale; files, JSON and strtod must keep their decimal point.
    std::setlocale(LC_NUMERIC, "C");
    ui::English english;
    QCoreApplication::installTranslator(&english);

    // A snapshot shows how the program looks, not how somebody has arranged it.
    ui::Settings settings(
        line.isSnapshot() ? QString() : QString::fromStdString((configDir() / "workbench.ini").string()));
    dress(line, settings);

    const std::filesystem::path storeFile = line.store.isEmpty()
        ? store::RunStore::defaultFile()
        : std::filesystem::path(line.store.toStdString());
    ui::DataHub hub(storeFile, &app::predictMemory);
    app::ServiceActions actions(storeFile);
    ui::MainWindow window(&hub, &actions, &settings);
    if (line.isSnapshot()) {
        const Status drawn = app::drawSnapshot(line, hub, window);
        if (!drawn)
            return complain(drawn.error());
        return 0;
    }
    begin(line, hub, actions, window);
    return QApplication::exec();
}
