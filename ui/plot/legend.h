// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "ui/common/theme.h"

#include <QAbstractButton>
#include <QIcon>
#include <QWidget>

#include <vector>

class QToolButton;

namespace rankyard::ui {

/// One series in a chart's head: mark, name, last value. A click hides or shows it.
class LegendItem : public QAbstractButton
{
    Q_OBJECT
public:
    enum class Mark { Dot, Dash, None };
    enum class Show { Full, Name, Value, Hidden };

    LegendItem(const QString &name, Ink ink, Mark mark, QWidget *parent);
    void setValue(const QString &value);
    QString value() const { return m_value; }
    QString name() const { return m_name; }
    Mark mark() const { return m_mark; }
    void setShow(Show show);
    int widthFor(Show show) const;
    /// The value is understood without the name, so that a narrow line may leave the name out.
    void setSaysItself(bool itself) { m_saysItself = itself; }
    bool saysItself() const { return m_saysItself; }
    QIcon swatch() const; ///< the mark alone
    /// The widest value seen so far keeps its place, so that live numbers do not make their neighbours dance.
    QSize sizeHint() const override;

protected:
    void paintEvent(QPaintEvent *event) override;

private:
    void paintMark(QPainter &painter, const QRectF &place, bool on) const;

    QString m_name;
    QString m_value;
    Ink m_ink;
    Mark m_mark;
    Show m_show = Show::Full;
    int m_valueChars = 0;
    bool m_saysItself = false;
};

/// The items in one line; when they do not fit, values go first, then whole items, from the last one on, into the menu of a "+2".
/// A mark never stands without its name. GUI thread.
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
    bool isFoldable(const LegendItem &item) const;
    void fillMenu();

    std::vector<LegendItem *> m_items;
    QToolButton *m_more;
};

} // namespace rankyard::ui
