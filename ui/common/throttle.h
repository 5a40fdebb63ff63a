// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <QElapsedTimer>
#include <QObject>
#include <QTimer>

namespace rankyard::ui {

/// Lets `triggered` through at most once per interval and never loses the last request. Lives on one thread.
class Throttle : public QObject
{
    Q_OBJECT
public:
    explicit Throttle(int intervalMs, QObject *parent = nullptr);
    void request();

signals:
    void triggered();

private:
    void fire();

    QTimer m_timer;
    QElapsedTimer m_last;
    int m_interval;
};

} // namespace rankyard::ui
