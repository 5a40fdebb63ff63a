// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <QAbstractListModel>
#include <QFrame>

#include <functional>
#include <vector>

class QLabel;
class QLineEdit;
class QListView;

namespace rankyard::ui {

struct PickItem {
    QString text;
    QString group;  ///< muted, before the text
    QString detail; ///< at the right: shortcut, state
    QString icon;
    std::function<void()> run;
    bool enabled = true;
    QString alias = {}; ///< not shown; a part of it finds the item too
};

/// Items that match what was typed, the best first.
class PickModel : public QAbstractListModel
{
    Q_OBJECT
public:
    enum Roles { GroupRole = Qt::UserRole + 1, DetailRole, IconRole, MatchRole };
    using QAbstractListModel::QAbstractListModel;
    void setItems(std::vector<PickItem> items);
    void setPattern(const QString &pattern);
    const PickItem *at(int row) const;

    int rowCount(const QModelIndex &parent = {}) const override;
    QVariant data(const QModelIndex &index, int role) const override;
    Qt::ItemFlags flags(const QModelIndex &index) const override;

private:
    std::vector<PickItem> m_items;
    std::vector<std::pair<std::size_t, std::vector<int>>> m_shown;
};

/// The list that drops from the top of the window: command palette and quick open. Type to narrow, Enter runs, Esc leaves.
class QuickPick : public QFrame
{
    Q_OBJECT
public:
    explicit QuickPick(QWidget *window);
    void open(const QString &placeholder, std::vector<PickItem> items, const QString &nothing);
    QLineEdit *line() const { return m_line; }
    PickModel *model() const { return m_model; }

protected:
    bool eventFilter(QObject *object, QEvent *event) override;

private:
    void place();
    void accept();
    void leave();
    void settle();

    PickModel *m_model;
    QLineEdit *m_line;
    QListView *m_view;
    QLabel *m_nothing;
    QWidget *m_before = nullptr;
};

} // namespace rankyard::ui
