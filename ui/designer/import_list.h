// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "ui/designer/design_document.h"

#include <QWidget>

class QLabel;
class QVBoxLayout;

namespace rankyard::ui {

/// What the import that the design comes from has lost or guessed, until it is dismissed. Hidden while there is nothing to say.
class ImportList : public QWidget
{
    Q_OBJECT
public:
    explicit ImportList(QWidget *parent = nullptr);

    /// Null: the design comes from no import. One that was dismissed stays so until another comes between.
    void setNote(const std::shared_ptr<const ImportNote> &note);
    void dismiss();
    QString headline() const;
    /// "path = value: why", what was lost first.
    QStringList rows() const;

private:
    void addRows(interop::Remark::Kind kind, const QString &title);

    QLabel *m_title;
    QVBoxLayout *m_rows;
    QStringList m_texts;
    std::shared_ptr<const ImportNote> m_note;
};

} // namespace rankyard::ui
