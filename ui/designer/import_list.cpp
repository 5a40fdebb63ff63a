// SPDX-License-Identifier: GPL-3.0-or-later
#include "ui/designer/import_list.h"

#include "ui/common/theme.h"

#include <QHBoxLayout>
#include <QLabel>
#include <QPushButton>
#include <QVBoxLayout>

#include <algorithm>

namespace rankyard::ui {

using interop::Remark;

ImportList::ImportList(QWidget *parent) : QWidget(parent), m_title(new QLabel(this)), m_rows(new QVBoxLayout)
{
    auto *column = new QVBoxLayout(this);
    column->setContentsMargins(0, 8, 0, 0);
    column->setSpacing(8);
    setRole(m_title, FontRole::Strong);
    m_title->setWordWrap(true);
    m_title->setProperty("data", true);
    auto *head = new QHBoxLayout;
    head->addWidget(m_title, 1);
    auto *close = new QPushButton(tr("Dismiss"), this);
    close->setProperty("compact", true);
    close->setToolTip(tr("Hides the list of what the import has lost or guessed"));
    head->addWidget(close, 0, Qt::AlignTop);
    column->addLayout(head);
    m_rows->setSpacing(8);
    column->addLayout(m_rows);
    connect(close, &QPushButton::clicked, this, &ImportList::dismiss);
    hide();
}

void ImportList::dismiss()
{
    m_texts.clear();
    hide();
}

QString ImportList::headline() const { return m_title->text(); }

QStringList ImportList::rows() const { return m_texts; }

void ImportList::setNote(const std::shared_ptr<const ImportNote> &note)
{
    if (note == m_note)
        return;
    m_note = note;
    if (!note)
        return dismiss();
    while (QLayoutItem *item = m_rows->takeAt(0)) {
        delete item->widget();
        delete item;
    }
    m_texts.clear();
    m_title->setText(tr("Imported from %1").arg(note->file));
    addRows(Remark::Kind::Lost, tr("Lost"));
    addRows(Remark::Kind::Guessed, tr("Guessed"));
    if (m_texts.isEmpty()) {
        auto *all = new QLabel(tr("Every key has its place"), this);
        all->setProperty("tone", "muted");
        setRole(all, FontRole::Small);
        m_rows->addWidget(all);
    }
    setAccessibleDescription(m_texts.join(QStringLiteral(". ")));
    show();
}

void ImportList::addRows(Remark::Kind kind, const QString &title)
{
    const auto count = std::count_if(m_note->remarks.begin(), m_note->remarks.end(),
                                     [&](const Remark &r) { return r.kind == kind; });
    if (count == 0)
        return;
    auto *head = new QLabel(QStringLiteral("%1 (%2)").arg(title).arg(count), this);
    head->setProperty("tone", kind == Remark::Kind::Lost ? "warn" : "muted");
    setRole(head, FontRole::Small);
    m_rows->addWidget(head);
    for (const Remark &remark : m_note->remarks) {
        if (remark.kind != kind)
            continue;
        const QString name = QStringLiteral("%1 = %2").arg(QString::fromStdString(remark.path),
                                                           QString::fromStdString(remark.value));
        const QString why = QString::fromStdString(remark.why);
        m_texts << name + QStringLiteral(": ") + why;
        auto *both = new QVBoxLayout;
        both->setSpacing(0);
        for (const QString &line : {name, why}) {
            auto *label = new QLabel(this);
            // Paths and values have no blanks: they may break after a full stop or a comma.
            QString text = line;
            if (line == name)
                text.replace(QLatin1Char('.'), QStringLiteral(".\u200b"))
                    .replace(QLatin1Char('_'), QStringLiteral("_\u200b"))
                    .replace(QLatin1Char(','), QStringLiteral(",\u200b"));
            label->setTextFormat(Qt::PlainText);
            label->setText(text);
            label->setWordWrap(true);
            label->setProperty("data", true);
            label->setTextInteractionFlags(Qt::TextSelectableByMouse);
            setRole(label, line == name ? FontRole::MonoSmall : FontRole::Small);
            if (line != name)
                label->setProperty("tone", "muted");
            both->addWidget(label);
        }
        auto *row = new QWidget(this);
        both->setContentsMargins(0, 0, 0, 0);
        row->setLayout(both);
        m_rows->addWidget(row);
    }
}

} // namespace rankyard::ui
