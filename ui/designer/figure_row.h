// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/predict/verdict.h"
#include "ui/common/theme.h"

#include <QFrame>

#include <optional>

class QLabel;

namespace rankyard::ui {

/// A number of the verdict; a click, Space or Enter opens the formula, its inputs and where they come from.
class FigureRow : public QFrame
{
    Q_OBJECT
public:
    /// `swatch`: the colour that stands for the number in a picture.
    explicit FigureRow(const predict::Figure &figure, QWidget *parent = nullptr,
                       std::optional<Kind> swatch = {});

    const std::string &key() const { return m_key; }
    void setOpen(bool open);
    bool isOpen() const;

protected:
    void mouseReleaseEvent(QMouseEvent *event) override;
    void keyPressEvent(QKeyEvent *event) override;

private:
    std::string m_key;
    QLabel *m_detail;
};

} // namespace rankyard::ui
