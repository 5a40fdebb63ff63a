// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <QFrame>

#include <QSize>

class QButtonGroup;
class QHBoxLayout;
class QToolButton;

namespace rankyard::ui {

/// One of a few, side by side; folded, one button with a menu of them. Arrow keys move inside it. GUI thread.
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
    /// Where there is no room for all of them side by side (NarrowRow::addGiving).
    void setFolded(bool folded);
    bool isFolded() const;
    int leastWidth() const; ///< pixels, folded, with its text elided; whatever is shown now
    int fullWidth() const;
    QSize sizeHint() const override;
    QSize minimumSizeHint() const override;

signals:
    void changed(int index);

protected:
    void focusInEvent(QFocusEvent *event) override;
    void resizeEvent(QResizeEvent *event) override;

private:
    void buildFold();
    int edges() const;
    void refreshFold();
    void elide();

    QHBoxLayout *m_row;
    QString m_name; ///< of the current choice
    QButtonGroup *m_group;
    QToolButton *m_fold = nullptr; ///< hidden while all stand side by side
};

} // namespace rankyard::ui
