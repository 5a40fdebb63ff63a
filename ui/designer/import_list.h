// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/interop/interop.h"

#include <QWidget>

class QLabel;
class QVBoxLayout;

namespace rankyard::ui {

/// What the import of another engine's file has lost or guessed, until it is dismissed. Hidden while there is nothing to say.
class ImportList : public QWidget
{
    Q_OBJECT
public:
    explicit ImportList(QWidget *parent = nullptr);

    /// `file` without its folder.
    void tell(const interop::Imported &imported, const QString &file);
    void dismiss();
    QString headline() const;
    /// "path = value: why", what was lost first.
    QStringList rows() const;

private:
    void addRows(const interop::Imported &imported, interop::Remark::Kind kind, const QString &title);

    QLabel *m_title;
    QVBoxLayout *m_rows;
    QStringList m_texts;
};

} // namespace rankyard::ui
