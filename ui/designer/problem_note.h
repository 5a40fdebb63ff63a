// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/predict/fixes.h"

#include <QWidget>

namespace rankyard::ui {

/// A problem and its ways out: an icon, a sentence, a button a fix. Beside a field and in the verdict.
class ProblemNote : public QWidget
{
    Q_OBJECT
public:
    /// `withPath`: says which key is meant; not where it stands beside its field.
    ProblemNote(const predict::Problem &problem, bool withPath, QWidget *parent = nullptr);
    const predict::Problem &problem() const { return m_problem; }

signals:
    void fixChosen(const rankyard::predict::Fix &fix);

private:
    predict::Problem m_problem;
};

} // namespace rankyard::ui
