// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "ui/common/theme.h"

#include <QWidget>

#include <vector>

namespace rankyard::ui {

/// Names of kinds beside their colours, in two lines at most; what has no room is counted, and stands in the tooltip. GUI thread.
class KindLegend : public QWidget
{
    Q_OBJECT
public:
    explicit KindLegend(QWidget *parent = nullptr);
    void setKinds(std::vector<Kind> kinds);
    bool hasHeightForWidth() const override { return true; }
    int heightForWidth(int width) const override;
    QSize sizeHint() const override;
    QSize minimumSizeHint() const override { return {0, sizeHint().height()}; }

protected:
    void paintEvent(QPaintEvent *event) override;

private:
    struct Place {
        int x;
        int line;
        int width;
    };
    /// As many as have room in `width`; fewer than there are kinds: a count follows in the room left for it.
    std::vector<Place> places(int width) const;

    std::vector<Kind> m_kinds;
};

} // namespace rankyard::ui
