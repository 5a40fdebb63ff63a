// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/base/json.h"
#include "engine/interop/interop.h"
#include "engine/spec/job.h"

#include <QObject>
#include <QString>

#include <memory>
#include <string>
#include <vector>

class QUndoStack;

namespace rankyard::ui {

/// What the import of another engine's file has lost or guessed.
struct ImportNote {
    QString file; ///< without its folder
    std::vector<interop::Remark> remarks;
};

/// The job that is being designed: a JSON document that may be wrong in places, its file, and what was done to it. Knows no
/// widgets. GUI thread.
class DesignDocument : public QObject
{
    Q_OBJECT
public:
    explicit DesignDocument(QObject *parent = nullptr);
    ~DesignDocument() override;

    /// Every key, those that were never set with their defaults.
    const Json &json() const { return m_state.json; }
    /// At a path of the job ("layout.tp"); null when there is none.
    Json value(const std::string &path) const;
    /// The document as a job, or the first thing that is wrong with it (predict::readDesign).
    const Result<spec::JobSpec> &job() const { return m_job; }
    QString name() const;
    std::string cluster() const; ///< as cluster::openCluster takes it

    /// One step of undo. Steps with the same `merge` are one, until closeMerge: typing in a field, a drag of a slider.
    void set(const std::string &path, const Json &value, const QString &merge = {});
    /// Several keys at once, each "path=value".
    void apply(const std::vector<std::string> &changes, const QString &words, const QString &merge = {});
    void replace(Json document, const QString &words, const QString &merge = {});
    /// As replace; `note` belongs to the step: it goes with undo and comes back with redo.
    void import(Json document, const QString &words, std::shared_ptr<const ImportNote> note);
    /// Of the import that the design comes from; null: of none.
    const std::shared_ptr<const ImportNote> &importNote() const { return m_state.note; }
    void closeMerge();
    QUndoStack *undoStack() const { return m_undo; }

    /// A fresh document: the history begins again.
    void begin(const Json &document, const QString &file = {});
    /// Io, BadData. A job that cannot run opens too: what is wrong stands beside its field.
    Status open(const QString &file);
    /// Every key in the order of the schema.
    Status save(const QString &file);
    const QString &file() const { return m_file; }
    bool isDirty() const;
    int changes() const; ///< steps since it was saved
    std::string text() const;

signals:
    void changed();
    void fileChanged(); ///< name of the file, or whether it is saved

private:
    struct State {
        Json json;
        std::shared_ptr<const ImportNote> note;
    };
    class Edit;
    void take(State state);
    void push(State state, const QString &words, const QString &merge);

    State m_state;
    Result<spec::JobSpec> m_job;
    QUndoStack *m_undo;
    QString m_file;
    int m_session = 0;
};

/// `over` laid on the defaults of a job: an explicit null is a value.
Json withDefaults(const Json &over);

} // namespace rankyard::ui
