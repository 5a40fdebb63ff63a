// SPDX-License-Identifier: GPL-3.0-or-later
#include "tests/ui/ui_test.h"

#include "ui/common/theme.h"

#include <QApplication>
#include <QTemporaryDir>

#include <clocale>

namespace rankyard::test {

std::vector<MakeTest> &tests()
{
    static std::vector<MakeTest> all;
    return all;
}

} // namespace rankyard::test

int main(int argc, char **argv)
{
    qputenv("QT_QPA_PLATFORM", "offscreen");
    QTemporaryDir home;
    for (const char *name : {"HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR"})
        qputenv(name, home.path().toUtf8());
    qputenv("TZ", "UTC");
    QApplication application(argc, argv);
    std::setlocale(LC_NUMERIC, "C");
    rankyard::ui::Theme::instance().setMode(rankyard::ui::ThemeMode::Light);
    rankyard::ui::Theme::instance().apply();
    int failures = 0;
    for (const auto &make : rankyard::test::tests()) {
        const auto test = make();
        failures += QTest::qExec(test.get(), argc, argv);
    }
    return failures == 0 ? 0 : 1;
}
