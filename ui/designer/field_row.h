// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/predict/fixes.h"
#include "ui/designer/design_document.h"

#include <QWidget>

class QComboBox;
class QHBoxLayout;
class QLabel;
class QLineEdit;
class QVBoxLayout;

namespace rankyard::ui {

class Segmented;

/// One key of the job: its name, an editor, and below them what is wrong with it. Choices, ranges and the tooltip come from the
/// job's schema. What is typed goes into the document at once; until the field is left it is one step of undo.
class FieldRow : public QWidget
{
    Q_OBJECT
public:
    enum class Editor {
        Value,   ///< a line of text; a number where it reads as one
        Choice,  ///< a list
        Buttons, ///< the same side by side
    };

    FieldRow(DesignDocument *document, std::string path, const QString &label, Editor editor,
             QWidget *parent = nullptr);

    const std::string &path() const { return m_path; }
    QLineEdit *line() const { return m_line; }     ///< of Editor::Value, else null
    QComboBox *choice() const { return m_choice; } ///< of Editor::Choice, else null
    QWidget *editor() const;
    /// Puts a widget between name and editor, which becomes `width` wide (at 100 %).
    void insert(QWidget *widget, int width);
    void refresh();
    void setProblems(const std::vector<predict::Problem> &problems);
    int problems() const { return m_problems; }

protected:
    bool eventFilter(QObject *object, QEvent *event) override;

private:
    void build(Editor editor, const QString &label);
    void fill(const Json &schema);
    void store(const Json &value);
    void typed(const QString &text);

    DesignDocument *m_document;
    std::string m_path;
    QVBoxLayout *m_column;
    QHBoxLayout *m_row = nullptr;
    int m_width = 124; ///< of the editor
    QLabel *m_label = nullptr;
    QLineEdit *m_line = nullptr;
    QComboBox *m_choice = nullptr;
    Segmented *m_buttons = nullptr;
    std::vector<Json> m_values; ///< of choices
    QWidget *m_notes = nullptr;
    int m_problems = 0;
};

/// The part of the job's schema at a path; null when there is none.
Json schemaAt(const std::string &path);
/// A value as a field shows it: "12,288", "1e-5", "fp16", "on"; empty for null.
QString textOfValue(const Json &value);

} // namespace rankyard::ui
