// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <QWidget>

#include <vector>

class QHBoxLayout;

namespace rankyard::ui {

/// A row that fits any width: widgets give their room up, in the order in which they were given, until the rest has enough. One of
/// several choices folds into a menu; what has another way to what it does is hidden. GUI thread.
class NarrowRow : public QWidget
{
    Q_OBJECT
public:
    explicit NarrowRow(QWidget *parent = nullptr);

    QHBoxLayout *row() const { return m_row; }
    void addGiving(QWidget *widget) { m_giving.push_back(widget); }
    QSize minimumSizeHint() const override;

protected:
    void resizeEvent(QResizeEvent *event) override;
    void changeEvent(QEvent *event) override;
    bool event(QEvent *event) override;

private:
    void fit();

    QHBoxLayout *m_row;
    std::vector<QWidget *> m_giving;
};

} // namespace rankyard::ui
