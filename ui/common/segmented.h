// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <QFrame>

class QButtonGroup;

namespace rankyard::ui {

/// One of a few, side by side. Arrow keys move inside it.
class Segmented : public QFrame
{
    Q_OBJECT
public:
    Segmented(const QString &name, const QStringList &choices, QWidget *parent = nullptr);

    int current() const;
    /// No signal when it is current already.
    void setCurrent(int index);
    void setChoiceEnabled(int index, bool enabled, const QString &why = {});
    void setChoiceTip(int index, const QString &tip);

signals:
    void changed(int index);

private:
    QButtonGroup *m_group;
};

} // namespace rankyard::ui
