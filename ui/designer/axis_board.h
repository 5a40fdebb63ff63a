// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "ui/designer/factor_board.h"
#include "ui/designer/field_row.h"

class QLabel;
class QSlider;

namespace rankyard::ui {

/// The layout's axes: the product equation, the factors to drag, and a row an axis with a slider over the sizes that are legal
/// here. A slider keeps the number of ranks: dp takes the rest. Writes to the document, reads from it in refresh().
class AxisBoard : public QWidget
{
    Q_OBJECT
public:
    AxisBoard(DesignDocument *document, QWidget *parent = nullptr);

    /// How many ranks have a place; 0: not known. On processors fewer ranks than cores are usual.
    void setPlaces(int places, bool gpus);
    void refresh();
    FactorBoard *factors() const { return m_factors; }
    QSlider *slider(int axis) const { return m_sliders[static_cast<std::size_t>(axis)]; }
    std::vector<FieldRow *> rows() const;
    QString equation() const;
    /// What the slider of an axis offers, ascending.
    std::vector<std::int64_t> legal(int axis) const;

private:
    std::int64_t size(int axis) const; ///< ≥ 1, whatever the document says
    void slide(int axis, int at);

    DesignDocument *m_document;
    QLabel *m_equation;
    FactorBoard *m_factors;
    std::array<FieldRow *, FactorBoard::axes> m_rows{};
    std::array<QSlider *, FactorBoard::axes> m_sliders{};
    std::array<std::vector<std::int64_t>, FactorBoard::axes> m_legal;
    std::int64_t m_heldRanks = 1; ///< of the axis whose slider is held, times dp, when it was taken
    int m_places = 0;
    bool m_gpus = false;
};

} // namespace rankyard::ui
