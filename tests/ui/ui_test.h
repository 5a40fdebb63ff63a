// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "ui/data/run_actions.h"

#include <QObject>
#include <QRegularExpression>
#include <QStringList>
#include <QTest>

#include <functional>
#include <memory>
#include <vector>

namespace rankyard::test {

/// Base of every Qt test here: a Qt warning fails the test that caused it. Two say only what the offscreen platform cannot do.
class UiTest : public QObject
{
    Q_OBJECT
private slots:
    void init()
    {
        QTest::failOnWarning(QRegularExpression(QStringLiteral("^(?!This plugin does not support).*$")));
    }
};

/// The test classes of one binary; main() in ui_test_main.cpp runs them all.
using MakeTest = std::function<std::unique_ptr<QObject>()>;
std::vector<MakeTest> &tests();

template<typename Test>
struct Register {
    Register()
    {
        tests().push_back([] { return std::make_unique<Test>(); });
    }
};

/// Writes down what it was asked.
class FakeActions : public ui::RunActions
{
    Q_OBJECT
public:
    QStringList asked;
    QString sample = QStringLiteral("/nowhere/sample.json");

    void startJob(const QString &jobFile) override { asked << QStringLiteral("start ") + jobFile; }
    void perform(Verb verb, const QString &run) override { asked << nameOf(verb) + QLatin1Char(' ') + run; }
    QString sampleJob() const override { return sample; }
};

} // namespace rankyard::test
