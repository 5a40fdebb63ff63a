// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <QPointer>
#include <QString>

class QLabel;
class QLayout;
class QWidget;

/// What side columns are made of, in one way wherever there is one. GUI thread.
namespace rankyard::ui {

/// Takes everything out of a layout. Safe while one of its widgets is on the stack: they go a turn of the event loop later.
void clear(QLayout *layout);

/// A name and, at the right edge, what it is; both wrap. `value` receives the right one.
QWidget *valueRow(const QString &name, const QString &value, QWidget *parent = nullptr,
                  QLabel **valueLabel = nullptr);
/// A muted sentence that wraps.
QLabel *remark(const QString &text, QWidget *parent = nullptr);
/// "good", "warn", "bad", "muted", or nothing.
void setTone(QLabel *label, const char *tone);

/// Lets Tab go through `root` as its layouts, splitters and scroll areas place things: down a column, along a row. Widgets that are
/// made later come last in Qt, wherever they stand.
void orderFocus(QWidget *root);

/// While the widgets of a layout are made anew: the focus that one of them had goes to the one in its place, or to `otherwise`.
class FocusKeeper
{
public:
    FocusKeeper(QLayout *layout, QWidget *otherwise);
    ~FocusKeeper();
    FocusKeeper(const FocusKeeper &) = delete;
    FocusKeeper &operator=(const FocusKeeper &) = delete;

private:
    QLayout *m_layout;
    QPointer<QWidget> m_otherwise;
    qsizetype m_at = -1;
};

} // namespace rankyard::ui
