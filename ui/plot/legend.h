// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "ui/common/theme.h"

#include <QAbstractButton>
#include <QWidget>

#include <vector>

namespace rankyard::ui {

/// One series in a chart's head: mark, name, last value. A click hides or shows it.
class LegendItem : public QAbstractButton
{
    Q_OBJECT
public:
    enum class Mark { Dot, Dash, None };
    enum class Show { Full, Name, MarkOnly, Hidden };

    LegendItem(const QString &name, Ink ink, Mark mark, QWidget *parent);
    void setValue(const QString &value);
    QString value() const { return m_value; }
    QString name() const { return m_name; }
    Mark mark() const { return m_mark; }
    void setShow(Show show);
    int widthFor(Show show) const;
    /// The widest value seen so far keeps its place, so that live numbers do not make their neighbours dance.
    QSize sizeHint() const override;

protected:
    void paintEvent(QPaintEvent *event) override;

private:
    QString m_name;
    QString m_value;
    Ink m_ink;
    Mark m_mark;
    Show m_show = Show::Full;
    int m_valueChars = 0;
};

/// The items in one line; when they do not fit, values go first, then names. GUI thread.
class Legend : public QWidget
{
    Q_OBJECT
public:
    explicit Legend(QWidget *parent = nullptr);
    LegendItem *add(const QString &name, Ink ink, LegendItem::Mark mark, bool clickable);
    void remove(LegendItem *item);
    void clear();
    void arrange();
    QSize sizeHint() const override;
    QSize minimumSizeHint() const override { return {0, sizeHint().height()}; }

protected:
    void resizeEvent(QResizeEvent *event) override;

private:
    std::vector<LegendItem *> m_items;
};

} // namespace rankyard::ui
