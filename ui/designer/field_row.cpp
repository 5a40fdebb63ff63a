// SPDX-License-Identifier: GPL-3.0-or-later
#include "ui/designer/field_row.h"

#include "ui/common/choice_box.h"
#include "ui/common/format.h"
#include "ui/common/segmented.h"
#include "ui/common/theme.h"
#include "ui/designer/problem_note.h"

#include <QApplication>
#include <QComboBox>
#include <QEvent>
#include <QHBoxLayout>
#include <QKeyEvent>
#include <QLabel>
#include <QLineEdit>
#include <QSignalBlocker>
#include <QStandardItemModel>
#include <QVBoxLayout>

namespace rankyard::ui {

Json schemaAt(const std::string &path)
{
    static const Json schema = spec::jobSchema();
    const Json *at = &schema;
    for (std::size_t begin = 0; begin <= path.size();) {
        const std::size_t dot = std::min(path.find('.', begin), path.size());
        const auto properties = at->find("properties");
        if (properties == at->end())
            return {};
        const auto found = properties->find(path.substr(begin, dot - begin));
        if (found == properties->end())
            return {};
        at = &*found;
        begin = dot + 1;
    }
    return *at;
}

QString textOfValue(const Json &value)
{
    if (value.is_null())
        return {};
    if (value.is_string())
        return QString::fromStdString(value.get<std::string>());
    if (value.is_boolean())
        return value.get<bool>() ? QCoreApplication::translate("FieldRow", "on")
                                 : QCoreApplication::translate("FieldRow", "off");
    if (value.is_number_unsigned() && value.get<std::uint64_t>() > INT64_MAX)
        return QString::number(value.get<std::uint64_t>());
    if (value.is_number_integer())
        return formatStep(value.get<std::int64_t>());
    return QString::fromStdString(dumpJson(value));
}

FieldRow::FieldRow(DesignDocument *document, std::string path, const QString &label, Editor editor,
                   QWidget *parent)
    : QWidget(parent),
      m_document(document),
      m_path(std::move(path)),
      m_column(new QVBoxLayout(this))
{
    m_column->setContentsMargins(0, 0, 0, 0);
    m_column->setSpacing(4);
    build(editor, label);
    refresh();
}

void FieldRow::build(Editor editor, const QString &label)
{
    const Json schema = schemaAt(m_path);
    m_row = new QHBoxLayout;
    m_row->setSpacing(8);
    m_label = new QLabel(label, this);
    m_label->setProperty("tone", "muted");
    m_label->setWordWrap(true);
    m_row->addWidget(m_label, 1);
    QString tip = QString::fromStdString(m_path);
    if (schema.contains("description"))
        tip = QString::fromStdString(schema["description"].get<std::string>()) + QStringLiteral("  (") + tip
            + QLatin1Char(')');
    m_label->setToolTip(tip);
    switch (editor) {
    case Editor::Value:
        m_line = new QLineEdit(this);
        m_line->setAlignment(Qt::AlignRight);
        m_line->setProperty("data", true);
        setRole(m_line, FontRole::Mono);
        m_line->installEventFilter(this);
        connect(m_line, &QLineEdit::textEdited, this, &FieldRow::typed);
        break;
    case Editor::Choice:
        m_choice = new ChoiceBox(this);
        m_choice->setProperty("data", true);
        m_choice->setSizeAdjustPolicy(QComboBox::AdjustToMinimumContentsLengthWithIcon);
        fill(schema);
        connect(m_choice, &QComboBox::activated, this, [this](int index) {
            store(m_values[static_cast<std::size_t>(index)]);
            m_document->closeMerge();
        });
        break;
    case Editor::Buttons:
        fill(schema);
        break;
    }
    QWidget *field = this->editor();
    field->setAccessibleName(label);
    field->setToolTip(tip);
    m_label->setBuddy(field);
    const auto widen = [this, field, editor] {
        if (editor != Editor::Buttons)
            field->setFixedWidth(Theme::instance().scaled(m_width));
        m_label->setMinimumWidth(Theme::instance().scaled(60));
    };
    connect(&Theme::instance(), &Theme::changed, this, widen);
    widen();
    m_row->addWidget(field);
    m_column->addLayout(m_row);
}

void FieldRow::insert(QWidget *widget, int width)
{
    m_width = width;
    editor()->setFixedWidth(Theme::instance().scaled(width));
    m_row->setStretch(0, 2);
    m_row->insertWidget(1, widget, 3);
}

void FieldRow::fill(const Json &schema)
{
    std::vector<std::pair<Json, bool>> all;
    if (schema.value("type", Json()) == "boolean") {
        all = {{false, true}, {true, true}};
    } else if (schema.contains("enum")) {
        for (const Json &value : schema["enum"])
            all.emplace_back(value, true);
        const auto later = schema.find("x-not-in-this-version");
        if (later != schema.end() && later->is_array()) {
            for (const Json &value : *later)
                all.emplace_back(value, false);
        }
    } else {
        for (int value = schema.value("minimum", 0); value <= schema.value("maximum", 0); ++value)
            all.emplace_back(value, true);
    }
    QStringList names;
    for (const auto &[value, runs] : all) {
        m_values.push_back(value);
        names << textOfValue(value);
    }
    if (m_choice) {
        m_choice->addItems(names);
        auto *model = qobject_cast<QStandardItemModel *>(m_choice->model());
        for (std::size_t i = 0; i < all.size(); ++i) {
            if (all[i].second)
                continue;
            QStandardItem *item = model->item(static_cast<int>(i));
            item->setEnabled(false);
            item->setToolTip(tr("Not in this version"));
        }
        return;
    }
    m_buttons = new Segmented(m_label->text(), names, this);
    connect(m_buttons, &Segmented::changed, this, [this](int index) {
        store(m_values[static_cast<std::size_t>(index)]);
        m_document->closeMerge();
    });
}

QWidget *FieldRow::editor() const
{
    if (m_line)
        return m_line;
    return m_choice ? static_cast<QWidget *>(m_choice) : m_buttons;
}

void FieldRow::store(const Json &value) { m_document->set(m_path, value, QString::fromStdString(m_path)); }

void FieldRow::typed(const QString &text)
{
    QString plain = text.trimmed();
    if (plain.isEmpty())
        return store(nullptr);
    const Json schema = schemaAt(m_path);
    const bool word = schema.value("type", Json()) == "string"
        || (schema["type"].is_array() && schema["type"][0] == "string");
    if (word)
        return store(plain.toStdString());
    plain.remove(QLatin1Char(',')).remove(QLatin1Char(' '));
    const Json value = Json::parse(plain.toStdString(), nullptr, false);
    // What is no number stays what was typed: the reader says so beside the field.
    store(value.is_discarded() || value.is_structured() ? Json(text.trimmed().toStdString()) : value);
}

void FieldRow::refresh()
{
    const Json value = m_document->value(m_path);
    if (m_line) {
        QString plain = m_line->text();
        plain.remove(QLatin1Char(','));
        QString text = textOfValue(value);
        const bool typing = m_line->hasFocus() && plain.trimmed() == QString(text).remove(QLatin1Char(','));
        if (!typing && m_line->text() != text) {
            m_line->setText(text);
            if (!m_line->hasFocus())
                m_line->setCursorPosition(0); // a long name is read from its begin
        }
        const Json schema = schemaAt(m_path);
        if (value.is_null() && schema.contains("description")) {
            // "Inner width of the MLP; null: 4 · hidden": what stands where nothing does.
            const QString doc = QString::fromStdString(schema["description"].get<std::string>());
            const qsizetype at = doc.indexOf(QStringLiteral("null: "));
            m_line->setPlaceholderText(at < 0 ? tr("none") : doc.mid(at + 6).section(QLatin1Char(';'), 0, 0));
        }
        return;
    }
    int index = -1;
    for (std::size_t i = 0; i < m_values.size(); ++i) {
        if (m_values[i] == value)
            index = static_cast<int>(i);
    }
    if (m_choice) {
        const QSignalBlocker quiet(m_choice);
        m_choice->setCurrentIndex(index);
    } else if (index >= 0 && m_buttons->current() != index) {
        const QSignalBlocker quiet(m_buttons);
        m_buttons->setCurrent(index);
    }
}

void FieldRow::setProblems(const std::vector<predict::Problem> &problems)
{
    m_problems = static_cast<int>(problems.size());
    if (m_notes) {
        // A click on one of its buttons may be on the stack.
        if (m_notes->isAncestorOf(QApplication::focusWidget()))
            editor()->setFocus(Qt::TabFocusReason);
        m_notes->hide();
        m_notes->deleteLater();
        m_notes = nullptr;
    }
    const bool bad = !problems.empty() && problems.front().severity == predict::Severity::Error;
    if (m_line && m_line->property("bad").toBool() != bad) {
        m_line->setProperty("bad", bad);
        m_line->style()->unpolish(m_line);
        m_line->style()->polish(m_line);
    }
    QString said;
    for (const predict::Problem &problem : problems)
        said += QString::fromStdString(problem.text) + QLatin1Char(' ');
    editor()->setAccessibleDescription(said.trimmed());
    if (problems.empty())
        return;
    m_notes = new QWidget(this);
    auto *column = new QVBoxLayout(m_notes);
    column->setContentsMargins(0, 0, 0, 4);
    column->setSpacing(6);
    for (const predict::Problem &problem : problems) {
        auto *note = new ProblemNote(problem, false, m_notes);
        connect(note, &ProblemNote::fixChosen, this, [this](const predict::Fix &fix) {
            m_document->apply(fix.changes, tr("Fix: %1").arg(QString::fromStdString(fix.words)));
        });
        column->addWidget(note);
    }
    m_column->addWidget(m_notes);
}

bool FieldRow::eventFilter(QObject *object, QEvent *event)
{
    if (object == m_line && event->type() == QEvent::FocusOut) {
        m_document->closeMerge();
        QMetaObject::invokeMethod(this, &FieldRow::refresh, Qt::QueuedConnection); // with its commas
    }
    if (object == m_line && event->type() == QEvent::KeyPress) {
        const auto *key = static_cast<QKeyEvent *>(event);
        // The document's undo, not the line's.
        if (key->matches(QKeySequence::Undo) || key->matches(QKeySequence::Redo)) {
            event->ignore();
            return true;
        }
        const int by = key->key() == Qt::Key_Up ? 1 : key->key() == Qt::Key_Down ? -1 : 0;
        const Json value = m_document->value(m_path);
        if (by != 0 && value.is_number_integer()) {
            store(value.get<std::int64_t>() + by);
            return true;
        }
        if (key->key() == Qt::Key_Return || key->key() == Qt::Key_Enter)
            m_document->closeMerge();
    }
    return QWidget::eventFilter(object, event);
}

} // namespace rankyard::ui
