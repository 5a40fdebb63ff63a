// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/store/run_store.h"

#include <QFrame>

class QLabel;
class QLineEdit;
class QListView;

namespace rankyard::ui {

class Chip;
class LogModel;
class LogProxy;
class Segmented;

/// The log of all ranks at the right edge: level, filter line, follow. Scrolling up stops following; a chip counts what came since.
class LogPane : public QFrame
{
    Q_OBJECT
public:
    explicit LogPane(QWidget *parent = nullptr);

    void clear();
    void append(std::vector<store::LogRow> rows);
    LogModel *model() const { return m_model; }
    LogProxy *proxy() const { return m_proxy; }
    QLineEdit *filterLine() const { return m_filter; }
    bool isFollowing() const { return m_following; }
    void setFollowing(bool following);

signals:
    void stepChosen(qint64 step);

private:
    void updateChip();
    void copySelection();

    LogModel *m_model;
    LogProxy *m_proxy;
    QLabel *m_title;
    QListView *m_view;
    Segmented *m_level;
    QLineEdit *m_filter;
    Chip *m_follow;
    bool m_following = true;
    bool m_moving = false;
    int m_new = 0;
};

} // namespace rankyard::ui
