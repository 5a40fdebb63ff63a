// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <QElapsedTimer>
#include <QObject>
#include <QString>

namespace rankyard::ui {

/// Work that outlasts a moment: a search, a probe, a corpus being prepared. The page that began it and the strip at the foot of the window
/// show the same. GUI thread.
class LongWork : public QObject
{
    Q_OBJECT
public:
    using QObject::QObject;

    /// Asks it to end early; it ends a little later.
    virtual void cancel() = 0;
    bool isRunning() const { return m_running; }
    const QString &title() const { return m_title; } ///< what it is: "Search of layouts"
    const QString &doing() const { return m_doing; } ///< what of it goes on just now; may be empty
    double share() const { return m_share; }         ///< that is done, 0 … 1
    int percent() const;                             ///< the same, rounded down
    double secondsLeft() const;                      ///< as it went until now; −1: too early to say
    QString progress() const;                        ///< "45 %, about 6 s left"

signals:
    void changed(); ///< begun, gone on, or ended

protected:
    void begin(const QString &title);
    void tell(double share, const QString &doing);
    void end();

private:
    bool m_running = false;
    QString m_title;
    QString m_doing;
    double m_share = 0;
    QElapsedTimer m_since;
};

} // namespace rankyard::ui
