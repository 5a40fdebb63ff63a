// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "ui/designer/field_row.h"

#include <QScrollArea>

#include <map>

class QComboBox;
class QLabel;
class QVBoxLayout;

namespace rankyard::ui {

class AxisBoard;
class ClusterChoice;

/// The left side of the Design page: model, cluster, layout, batch and precision, memory, optimizer, in sections that fold.
/// Everything writes to the document; refresh() reads from it.
class DesignForm : public QScrollArea
{
    Q_OBJECT
public:
    explicit DesignForm(DesignDocument *document, QWidget *parent = nullptr);

    void refresh();
    /// Puts each problem beside the field of its path.
    void setProblems(const std::vector<predict::Problem> &problems);
    AxisBoard *axes() const { return m_axes; }
    ClusterChoice *cluster() const { return m_cluster; }
    QComboBox *presets() const { return m_presets; }
    /// Null when the form has no such field.
    FieldRow *row(const std::string &path) const;
    /// Scrolls to a field, unfolds its section, and gives it the focus. False when the form has no such field.
    bool reveal(const std::string &path);

signals:
    void openConfigRequested();

protected:
    bool viewportEvent(QEvent *event) override;

private:
    struct Section {
        QWidget *body = nullptr;
        QVBoxLayout *rows = nullptr;
        class QToolButton *head = nullptr;
    };
    Section section(const QString &title, bool open = true);
    FieldRow *field(const Section &section, const char *path, const QString &label, FieldRow::Editor editor);
    void buildModel();
    void buildLayout();
    void buildBatch();
    void buildMemory();
    void buildTraining();
    void choosePreset(int index);
    void refreshDerived();
    void refreshPreset();

    DesignDocument *m_document;
    QVBoxLayout *m_column;
    QComboBox *m_presets = nullptr;
    ClusterChoice *m_cluster = nullptr;
    AxisBoard *m_axes = nullptr;
    QLabel *m_microBatches = nullptr;
    std::map<std::string, FieldRow *> m_rows;
};

} // namespace rankyard::ui
