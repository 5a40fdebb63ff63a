// SPDX-License-Identifier: GPL-3.0-or-later
#include "ui/designer/problem_note.h"

#include "ui/common/icons.h"
#include "ui/common/theme.h"

#include <QHBoxLayout>
#include <QLabel>
#include <QPushButton>
#include <QVBoxLayout>

namespace rankyard::ui {

namespace {

struct Look {
    const char *icon;
    Token token;
    const char *tone;
};

Look lookOf(predict::Severity severity)
{
    switch (severity) {
    case predict::Severity::Error:
        return {"error", Token::Bad, "bad"};
    case predict::Severity::Warning:
        return {"warning", Token::Warn, "warn"};
    case predict::Severity::Advice:
        return {"info", Token::Accent, nullptr};
    case predict::Severity::Note:
        break;
    }
    return {"info", Token::Muted, "muted"};
}

} // namespace

ProblemNote::ProblemNote(const predict::Problem &problem, bool withPath, QWidget *parent)
    : QWidget(parent),
      m_problem(problem)
{
    const Theme &theme = Theme::instance();
    const Look look = lookOf(problem.severity);
    auto *row = new QHBoxLayout(this);
    row->setContentsMargins(0, 0, 0, 0);
    row->setSpacing(8);
    auto *picture = new QLabel(this);
    picture->setPixmap(
        iconPixmap(QLatin1String(look.icon), theme.color(look.token), theme.scaled(14), devicePixelRatioF()));
    picture->setContentsMargins(0, 2, 0, 0);
    row->addWidget(picture, 0, Qt::AlignTop);
    auto *column = new QVBoxLayout;
    column->setSpacing(6);
    row->addLayout(column, 1);
    QString sentence = QString::fromStdString(problem.text);
    if (withPath && problem.severity >= predict::Severity::Warning
        && problem.path.find('.') != std::string::npos)
        sentence = QString::fromStdString(problem.path) + QStringLiteral(": ") + sentence;
    else if (!sentence.isEmpty())
        sentence[0] = sentence[0].toUpper();
    auto *text = new QLabel(sentence, this);
    text->setWordWrap(true);
    text->setProperty("data", true);
    text->setTextInteractionFlags(Qt::TextSelectableByMouse);
    setRole(text, FontRole::Small);
    if (look.tone && problem.severity != predict::Severity::Note)
        text->setProperty("tone", look.tone);
    column->addWidget(text);
    setAccessibleName(sentence);
    if (problem.fixes.empty())
        return;
    // Ways out stand below each other: side by side they would not fit a narrow column.
    auto *fixes = new QVBoxLayout;
    fixes->setSpacing(4);
    for (const predict::Fix &fix : problem.fixes) {
        auto *button = new QPushButton(tr("Set %1").arg(QString::fromStdString(fix.words)), this);
        button->setProperty("compact", true);
        button->setProperty("data", true);
        QStringList changes;
        for (const std::string &change : fix.changes)
            changes << QString::fromStdString(change);
        button->setToolTip(changes.join(QStringLiteral(", ")));
        connect(button, &QPushButton::clicked, this, [this, fix] { emit fixChosen(fix); });
        fixes->addWidget(button, 0, Qt::AlignLeft);
    }
    column->addLayout(fixes);
}

} // namespace rankyard::ui
