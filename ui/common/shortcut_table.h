// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <QWidget>

namespace rankyard::ui {

class ActionRegistry;

/// All shortcuts by category, in as many columns as fit, made from the registry; then what charts do with mouse and keys of their own.
class ShortcutTable : public QWidget
{
    Q_OBJECT
public:
    explicit ShortcutTable(ActionRegistry *registry, QWidget *parent = nullptr);
    /// Again from the registry as it stands.
    void fill();
    int rows() const { return m_rows; }
    QSize minimumSizeHint() const override;

protected:
    void resizeEvent(QResizeEvent *event) override;

private:
    int columnsFor(int width) const;

    ActionRegistry *m_registry;
    QWidget *m_content = nullptr;
    int m_rows = 0;
    int m_columns = 1;
};

} // namespace rankyard::ui
