// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "ui/common/theme.h"

#include <QWidget>

#include <vector>

namespace rankyard::ui {

/// Names of kinds beside their colours, in one line; what has no room is left out and stands in the tooltip.
class KindLegend : public QWidget
{
    Q_OBJECT
public:
    explicit KindLegend(QWidget *parent = nullptr);
    void setKinds(std::vector<Kind> kinds);
    QSize sizeHint() const override;
    QSize minimumSizeHint() const override { return {0, sizeHint().height()}; }

protected:
    void paintEvent(QPaintEvent *event) override;

private:
    std::vector<Kind> m_kinds;
};

} // namespace rankyard::ui
