// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <QWidget>

#include <array>
#include <cstdint>
#include <vector>

namespace rankyard::ui {

/// The axes of a layout as boxes of prime factors: a factor is dragged from one axis to another, so that the number of ranks
/// stays what it is. It is in the axis that the pointer is over while it is dragged; Escape takes it back to where it came from.
/// Keys: Left and Right choose a factor, with Ctrl they move it to the axis beside. GUI thread.
class FactorBoard : public QWidget
{
    Q_OBJECT
public:
    static constexpr int axes = 4;
    static const std::array<const char *, axes> names; ///< "tp", "cp", "pp", "dp"

    explicit FactorBoard(QWidget *parent = nullptr);

    /// In the order of `names`; 0 or less: not known, drawn empty.
    void setSizes(const std::array<std::int64_t, axes> &sizes);
    const std::array<std::int64_t, axes> &sizes() const { return m_sizes; }
    /// Moves one `factor` of an axis to another. False when the axis does not have it.
    bool move(std::int64_t factor, int from, int to);
    QRect boxOf(int axis) const;
    /// The `index`-th factor of an axis.
    QRect chipOf(int axis, int index) const;
    QSize sizeHint() const override;
    QSize minimumSizeHint() const override;

    static std::vector<std::int64_t> primesOf(std::int64_t value); ///< 12 → 2, 2, 3

signals:
    void moved(int from, int to); ///< sizes() has the new ones
    void dropped();               ///< what follows is another drag

protected:
    void paintEvent(QPaintEvent *event) override;
    void mousePressEvent(QMouseEvent *event) override;
    void mouseMoveEvent(QMouseEvent *event) override;
    void mouseReleaseEvent(QMouseEvent *event) override;
    void keyPressEvent(QKeyEvent *event) override;
    void focusInEvent(QFocusEvent *event) override;
    void focusOutEvent(QFocusEvent *event) override;
    bool event(QEvent *event) override;

private:
    struct Chip {
        int axis = -1;
        int index = 0;
        bool operator==(const Chip &) const = default;
    };
    Chip chipAt(const QPoint &point) const;
    int axisAt(const QPoint &point) const; ///< above and below an axis too: a drag need not be straight
    std::vector<Chip> chips() const;
    void describe();
    void dragTo(int axis);
    void drop();

    std::array<std::int64_t, axes> m_sizes{1, 1, 1, 1};
    std::array<std::vector<std::int64_t>, axes> m_factors;
    Chip m_current;    ///< the dragged one while there is one
    int m_origin = -1; ///< axis that the dragged factor came from; −1: none is dragged
    QPoint m_pointer;
    QPoint m_grip; ///< of the pointer in the dragged chip
};

} // namespace rankyard::ui
