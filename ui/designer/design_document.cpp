// SPDX-License-Identifier: GPL-3.0-or-later
#include "ui/designer/design_document.h"

#include "engine/base/file.h"
#include "engine/predict/fixes.h"

#include <QUndoCommand>
#include <QUndoStack>

#include <cstdlib>

namespace rankyard::ui {

namespace {

constexpr int keptSteps = 200;

void lay(Json &under, const Json &over)
{
    for (const auto &[key, value] : over.items()) {
        if (value.is_object() && under.contains(key) && under[key].is_object())
            lay(under[key], value);
        else
            under[key] = value;
    }
}

/// The keys of `shape` first, in its order; then what it does not know.
OrderedJson inOrder(const OrderedJson &shape, const Json &document)
{
    OrderedJson out = OrderedJson::object();
    for (const auto &[key, value] : shape.items()) {
        const auto found = document.find(key);
        if (found == document.end())
            continue;
        out[key] = value.is_object() && found->is_object() && key != "env" ? inOrder(value, *found)
                                                                           : OrderedJson(*found);
    }
    for (const auto &[key, value] : document.items()) {
        if (!out.contains(key))
            out[key] = OrderedJson(value);
    }
    return out;
}

} // namespace

Json withDefaults(const Json &over)
{
    spec::JobSpec standard;
    standard.name = "design";
    standard.data.train = "corpus";
    Json document = spec::writeJob(standard);
    if (over.is_object())
        lay(document, over);
    return document;
}

/// The document before and after.
class DesignDocument::Edit : public QUndoCommand
{
public:
    Edit(DesignDocument *document, State before, State after, QString merge, int session)
        : m_document(document),
          m_before(std::move(before)),
          m_after(std::move(after)),
          m_merge(std::move(merge)),
          m_session(session)
    {}

    int id() const override { return 1; }
    void undo() override { m_document->take(m_before); }
    void redo() override { m_document->take(m_after); }
    bool mergeWith(const QUndoCommand *other) override
    {
        const auto *next = static_cast<const Edit *>(other);
        if (m_merge.isEmpty() || next->m_merge != m_merge || next->m_session != m_session)
            return false;
        m_after = next->m_after;
        setObsolete(m_after.json == m_before.json); // back to where it began
        return true;
    }

private:
    DesignDocument *m_document;
    State m_before;
    State m_after;
    QString m_merge;
    int m_session;
};

DesignDocument::DesignDocument(QObject *parent)
    : QObject(parent),
      m_state{withDefaults(Json::object()), {}},
      m_job(predict::readDesign(m_state.json)),
      m_undo(new QUndoStack(this))
{
    m_undo->setUndoLimit(keptSteps);
    connect(m_undo, &QUndoStack::cleanChanged, this, &DesignDocument::fileChanged);
    connect(m_undo, &QUndoStack::indexChanged, this, &DesignDocument::fileChanged);
}

DesignDocument::~DesignDocument() { m_undo->disconnect(this); }

Json DesignDocument::value(const std::string &path) const
{
    const Json *at = &m_state.json;
    std::size_t begin = 0;
    while (begin <= path.size()) {
        const std::size_t dot = std::min(path.find('.', begin), path.size());
        const std::string part = path.substr(begin, dot - begin);
        const auto found = at->is_object() ? at->find(part) : at->end();
        if (!at->is_object() || found == at->end())
            return {};
        at = &*found;
        begin = dot + 1;
    }
    return *at;
}

QString DesignDocument::name() const
{
    const Json name = value("name");
    return name.is_string() ? QString::fromStdString(name.get<std::string>()) : QString();
}

std::string DesignDocument::cluster() const
{
    const Json cluster = value("cluster");
    return cluster.is_string() ? cluster.get<std::string>() : "local";
}

void DesignDocument::take(State state)
{
    m_state = std::move(state);
    m_job = predict::readDesign(m_state.json);
    emit changed();
}

void DesignDocument::push(State state, const QString &words, const QString &merge)
{
    auto *edit = new Edit(this, m_state, std::move(state), merge, m_session);
    edit->setText(words);
    m_undo->push(edit);
}

void DesignDocument::replace(Json document, const QString &words, const QString &merge)
{
    if (document != m_state.json)
        push({std::move(document), m_state.note}, words, merge);
}

void DesignDocument::import(Json document, const QString &words, std::shared_ptr<const ImportNote> note)
{
    if (document == m_state.json) // nothing to undo
        return take({std::move(document), std::move(note)});
    push({std::move(document), std::move(note)}, words, {});
}

void DesignDocument::set(const std::string &path, const Json &value, const QString &merge)
{
    // Through the text form, so that a key is written in one way only.
    const std::string last = path.substr(path.rfind('.') + 1);
    replace(predict::changed(m_state.json, {path + "=" + dumpJson(value)}), QString::fromStdString(last),
            merge);
}

void DesignDocument::apply(const std::vector<std::string> &changes, const QString &words,
                           const QString &merge)
{
    replace(predict::changed(m_state.json, changes), words, merge);
}

void DesignDocument::closeMerge() { ++m_session; }

void DesignDocument::begin(const Json &document, const QString &file)
{
    m_undo->clear();
    m_file = file;
    ++m_session;
    take({withDefaults(document), {}});
    m_undo->setClean();
    emit fileChanged();
}

Status DesignDocument::open(const QString &file)
{
    RY_ASSIGN(const std::string text, readFile(file.toStdString()));
    RY_ASSIGN(const Json document, parseJson(text, file.toStdString(), Code::BadJob));
    RY_TRY(checkSchema(document, "rankyard/job", 1, file.toStdString(), Code::BadJob));
    begin(document, file);
    return {};
}

std::string DesignDocument::text() const
{
    return dumpJson(inOrder(spec::writeJob(spec::JobSpec()), m_state.json), 4) + "\n";
}

Status DesignDocument::save(const QString &file)
{
    RY_TRY(writeFileAtomically(file.toStdString(), text()));
    m_file = file;
    ++m_session;
    m_undo->setClean();
    emit fileChanged();
    return {};
}

bool DesignDocument::isDirty() const { return !m_undo->isClean(); }

int DesignDocument::changes() const
{
    return m_undo->cleanIndex() < 0 ? m_undo->index() : std::abs(m_undo->index() - m_undo->cleanIndex());
}

} // namespace rankyard::ui
