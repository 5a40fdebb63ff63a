// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "tests/ui/ui_test.h"
#include "ui/common/actions.h"
#include "ui/common/notices.h"
#include "ui/common/settings.h"
#include "ui/designer/design_document.h"
#include "ui/designer/design_form.h"
#include "ui/designer/design_page.h"

#include <QFile>
#include <QLineEdit>
#include <QTemporaryDir>

namespace rankyard::test {

/// A Design page over nothing but memory, with its first verdict.
struct DesignFixture {
    QTemporaryDir dir;
    ui::ActionRegistry registry;
    ui::Settings settings{QString()};
    ui::Notices notices;
    FakeActions actions;
    ui::DesignPage page;

    explicit DesignFixture(ui::VerdictRunner::Judge judge = {})
        : page({&registry, &settings, &notices, &actions}, nullptr, std::move(judge))
    {
        page.resize(1280, 760);
        page.show();
        settle();
    }

    void settle() { QTRY_VERIFY_WITH_TIMEOUT(page.isReady(), 30'000); }

    QString write(const char *name, const char *text)
    {
        const QString path = dir.filePath(QString::fromLatin1(name));
        QFile file(path);
        if (!file.open(QIODevice::WriteOnly))
            qFatal("cannot write");
        file.write(text);
        return path;
    }

    void type(const char *path, const char *text)
    {
        QLineEdit *line = page.form()->row(path)->line();
        line->setFocus();
        line->selectAll();
        QTest::keyClicks(line, QString::fromLatin1(text));
    }

    ui::DesignDocument &document() { return *page.document(); }
};

inline std::int64_t whole(const Json &value)
{
    return value.is_number_integer() ? value.get<std::int64_t>() : -1;
}

} // namespace rankyard::test
