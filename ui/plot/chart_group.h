// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "ui/common/format.h"

#include <QObject>

#include <functional>
#include <optional>
#include <vector>

namespace rankyard::ui {

/// The y state of one chart, for the zoom stack.
struct YView {
    bool moved = false; ///< by the user; never touched by data then
    double lo = 0;
    double hi = 1;
    double rightLo = 0;
    double rightHi = 1;
    bool operator==(const YView &) const = default;
};

/// What the charts of a page share: the x range, whether it follows the data, the zoom stack, and the cursor.
/// A view that the user moved is never moved by data. GUI thread.
class ChartGroup : public QObject
{
    Q_OBJECT
public:
    /// What the zoom stack keeps of a member.
    struct Member {
        std::function<YView()> view;
        std::function<void(const YView &)> setView;
        std::function<void()> fit;
    };

    explicit ChartGroup(QObject *parent = nullptr);

    void join(const QObject *owner, Member member);

    /// Data now reach from `first` to `last`; `added` samples are new. `open`: more will come, so that some room is kept at the end.
    void setData(double first, double last, int added, bool open);
    /// Everything is about to be replaced (another run, another x axis).
    void reset();

    double lo() const { return m_lo; }
    double hi() const { return m_hi; }
    double first() const { return m_first; }
    double last() const { return m_last; }
    bool hasData() const { return m_hasData; }
    bool isFollowing() const { return m_following; }
    int newSincePaused() const { return m_new; }

    Unit xUnit() const { return m_unit; }
    QString xName() const { return m_name; }
    void setX(Unit unit, const QString &name);
    bool logX() const { return m_logX; }
    void setLogX(bool log);

    /// The user's doing: remembers the view before (unless `merge` continues the last one), stops following.
    void remember(bool merge = false);
    void zoomX(double lo, double hi);
    void markMoved();
    bool canGoBack() const { return !m_stack.empty(); }
    void back();
    void fit();                        ///< everything, and follows again
    void setFollowing(bool following); ///< true: as fit()

    std::optional<double> cursor() const { return m_cursor; }
    const QObject *cursorSource() const { return m_cursorSource; }
    double cursorY() const { return m_cursorY; } ///< pixel in the source
    void setCursor(std::optional<double> x, const QObject *source = nullptr, double yPixel = 0);

signals:
    void viewChanged();
    void followChanged();
    void cursorMoved();

private:
    struct View {
        double lo;
        double hi;
        bool following;
        std::vector<YView> members;
    };
    void settleX();

    std::vector<std::pair<const QObject *, Member>> m_members;
    std::vector<View> m_stack;
    double m_lo = 0;
    double m_hi = 1;
    double m_first = 0;
    double m_last = 0;
    bool m_hasData = false;
    bool m_open = false;
    bool m_following = true;
    bool m_logX = false;
    int m_new = 0;
    Unit m_unit = Unit::Step;
    QString m_name;
    std::optional<double> m_cursor;
    const QObject *m_cursorSource = nullptr;
    double m_cursorY = 0;
};

} // namespace rankyard::ui
