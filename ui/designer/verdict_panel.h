// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/predict/verdict.h"

#include <QScrollArea>

#include <memory>
#include <optional>

class QGridLayout;
class QLabel;
class QLineEdit;
class QVBoxLayout;

namespace rankyard::ui {

class ImportList;
class MemoryBars;

/// What a design costs: fits or not, headline numbers that open into their formulas, memory by stage, traffic, what is wrong and
/// what would be better. While a newer answer is worked out, the old one stays, and that is said.
class VerdictPanel : public QScrollArea
{
    Q_OBJECT
public:
    explicit VerdictPanel(QWidget *parent = nullptr);

    /// Null: nothing is known. `device`: what a rank runs on, "GPU" or "rank". What an early verdict does not know yet stays as
    /// it was.
    void setVerdict(std::shared_ptr<const predict::Verdict> verdict, const QString &device);
    /// Of a job that cannot be planned.
    void setProblems(std::vector<predict::Problem> problems);
    void setBusy(bool busy);
    /// That a training is to see, in the field below the figures.
    void setTargetTokens(double tokens);
    QLineEdit *target() const { return m_target; }
    MemoryBars *bars() const { return m_bars; }
    ImportList *imported() const { return m_imported; }
    QString headline() const;
    /// Rows of the traffic table, cells joined by " | ".
    QStringList trafficRows() const;

signals:
    void targetTokensChanged(double tokens);
    void fixChosen(const rankyard::predict::Fix &fix);

protected:
    bool viewportEvent(QEvent *event) override;

private:
    void fillRows(QVBoxLayout *layout, const std::vector<predict::Figure> &figures, QWidget *otherwise,
                  const predict::StageMemory *stage = nullptr);
    void fillFigures();
    void fillParts();
    void fillTraffic();
    void fillProblems(const std::vector<predict::Problem> &problems);
    void fillNotes();
    void buildTarget();
    QLabel *heading(const QString &text);

    std::shared_ptr<const predict::Verdict> m_verdict;
    QVBoxLayout *m_column;
    QLabel *m_headline;
    QLabel *m_aside;
    QLabel *m_busy;
    ImportList *m_imported;
    QVBoxLayout *m_figures;
    double m_tokens = 300e9;
    QWidget *m_targetRow;
    QLineEdit *m_target;
    QLabel *m_memoryTitle;
    MemoryBars *m_bars;
    QLabel *m_partsTitle;
    QVBoxLayout *m_parts;
    QLabel *m_trafficTitle;
    QWidget *m_trafficHolder;
    QGridLayout *m_traffic;
    QLabel *m_problemsTitle;
    QVBoxLayout *m_problems;
    QLabel *m_notesTitle;
    QVBoxLayout *m_notes;
};

/// "300 B", "1.5T", "2e12", "300,000,000": K, M, B and T as people count tokens. None when it is no number above 0.
std::optional<double> tokensOf(const QString &text);
QString textOfFigure(const predict::Figure &figure); ///< "14.2 s ± 0.6 s"

} // namespace rankyard::ui
