// SPDX-License-Identifier: GPL-3.0-or-later
#include "app/workbench/service_actions.h"

#include "engine/base/json.h"
#include "engine/spec/job.h"
#include "engine/store/run_store.h"
#include "remote/session/session.h"

#include <QCoreApplication>
#include <QDir>
#include <QFileInfo>

namespace rankyard::app {

using Verb = ui::RunActions::Verb;

/// Owns the service; everything below runs on its thread.
class ServiceActions::Worker : public QObject
{
public:
    Worker(ServiceActions *actions, std::filesystem::path file) : m_actions(actions), m_file(std::move(file))
    {}

    void start(const QString &jobFile)
    {
        const auto job = spec::loadJob(jobFile.toStdString());
        if (!job)
            return fail(tr("Start"), job.error());
        session::StartRequest request;
        request.job = *job;
        request.jobDir = QFileInfo(jobFile).absolutePath().toStdString();
        launch(request, tr("Start"));
    }

    void perform(Verb verb, const QString &run)
    {
        const std::string id = run.toStdString();
        if (verb == Verb::Remove)
            return remove(run);
        session::RunService *service = connectService(RunActions::nameOf(verb));
        if (!service)
            return;
        Status status;
        switch (verb) {
        case Verb::Stop:
            status = service->session().stop(id);
            break;
        case Verb::Kill:
            status = service->session().kill(id);
            break;
        case Verb::Pause:
            status = service->session().pause(id);
            break;
        case Verb::Resume:
            if (ended(id))
                return restart(id);
            status = service->session().resume(id);
            break;
        case Verb::Checkpoint:
            status = service->session().checkpoint(id);
            break;
        case Verb::Follow:
            status = service->follow(id);
            break;
        case Verb::Remove:
            break;
        }
        if (!status)
            return fail(RunActions::nameOf(verb), status.error());
        emit m_actions->done(verb, run);
    }

private:
    void fail(const QString &what, const Error &error) { emit m_actions->failed(what, error); }

    session::RunService *connectService(const QString &what)
    {
        if (m_service)
            return m_service.get();
#ifdef RANKYARD_WITH_SESSION
        ServiceActions *actions = m_actions;
        session::RunService::Callbacks callbacks;
        callbacks.changed = [actions](const std::string &) { emit actions->storeChanged(); };
        callbacks.status = [actions](const session::RunStatus &) { emit actions->storeChanged(); };
        callbacks.lost = [actions](const Error &error) { emit actions->failed(tr("Connection"), error); };
        callbacks.trouble = [actions](const Error &error) { emit actions->failed(tr("Store"), error); };
        auto opened = session::RunService::open(m_file, std::move(callbacks));
        if (!opened) {
            fail(what, opened.error());
            return nullptr;
        }
        m_service = std::move(opened).value();
#else
        fail(what,
             Error::make(Code::NotHere, "this build can look at runs but not start or steer them")
                 .withHint("Build remote/session"));
#endif
        return m_service.get();
    }

    store::RunStore *connectStore(const QString &what)
    {
        if (!m_store) {
            auto opened = store::RunStore::open(m_file);
            if (!opened) {
                fail(what, opened.error());
                return nullptr;
            }
            m_store = std::move(opened).value();
        }
        return m_store.get();
    }

    bool ended(const std::string &id)
    {
        store::RunStore *runs = connectStore(tr("Resume"));
        if (!runs)
            return false;
        const auto info = runs->run(id);
        return info && telemetry::isTerminal(info->state);
    }

    void launch(const session::StartRequest &request, const QString &what)
    {
        session::RunService *service = connectService(what);
        if (!service)
            return;
        const auto started = service->start(request);
        if (!started)
            return fail(what, started.error());
        if (const Status followed = service->follow(*started); !followed)
            fail(what, followed.error());
        emit m_actions->started(QString::fromStdString(*started));
    }

    void restart(const std::string &id)
    {
        store::RunStore *runs = connectStore(tr("Resume"));
        if (!runs)
            return;
        const auto info = runs->run(id);
        if (!info)
            return fail(tr("Resume"), info.error());
        const auto document = parseJson(info->job, id, Code::BadJob);
        if (!document)
            return fail(tr("Resume"), document.error());
        const auto job = spec::readJob(*document, id);
        if (!job)
            return fail(tr("Resume"), job.error());
        session::StartRequest request;
        request.job = *job;
        request.jobDir = info->runDir;
        request.runId = id;
        request.resume = id;
        launch(request, tr("Resume"));
    }

    void remove(const QString &run)
    {
        const QString what = RunActions::nameOf(Verb::Remove);
        const std::string id = run.toStdString();
#ifdef RANKYARD_WITH_SESSION
        if (session::RunService *service = connectService(what)) {
            // A run that the node has forgotten is only in the store.
            if (const Status status = service->session().remove(id);
                !status && status.error().code != Code::NotFound)
                return fail(what, status.error());
        }
#endif
        if (store::RunStore *runs = connectStore(what)) {
            if (const Status status = runs->removeRun(id); !status)
                return fail(what, status.error());
            emit m_actions->done(Verb::Remove, run);
        }
    }

    ServiceActions *m_actions;
    std::filesystem::path m_file;
    std::unique_ptr<session::RunService> m_service;
    std::unique_ptr<store::RunStore> m_store;
};

ServiceActions::ServiceActions(std::filesystem::path storeFile)
    : m_worker(new Worker(this, std::move(storeFile)))
{
    qRegisterMetaType<Error>();
    qRegisterMetaType<Verb>();
    m_thread.setObjectName(QStringLiteral("service"));
    m_worker->moveToThread(&m_thread);
    connect(&m_thread, &QThread::finished, m_worker, &QObject::deleteLater);
    m_thread.start();
}

ServiceActions::~ServiceActions()
{
    m_thread.quit();
    m_thread.wait();
}

void ServiceActions::startJob(const QString &jobFile)
{
    QMetaObject::invokeMethod(m_worker, [worker = m_worker, jobFile] { worker->start(jobFile); });
}

void ServiceActions::perform(Verb verb, const QString &run)
{
    QMetaObject::invokeMethod(m_worker, [worker = m_worker, verb, run] { worker->perform(verb, run); });
}

QString ServiceActions::sampleJob() const { return findSampleJob(); }

QString findSampleJob()
{
    const QString given = qEnvironmentVariable("RANKYARD_SAMPLE_JOB");
    if (!given.isEmpty())
        return QFileInfo::exists(given) ? QFileInfo(given).absoluteFilePath() : QString();
    QDir dir(QCoreApplication::applicationDirPath());
    const QString installed = dir.filePath(QStringLiteral("../share/rankyard/sample/job.json"));
    if (QFileInfo::exists(installed))
        return QFileInfo(installed).canonicalFilePath();
    // A build folder inside the tree.
    for (int up = 0; up < 5; ++up) {
        const QString here = dir.filePath(QStringLiteral("resources/sample/job.json"));
        if (QFileInfo::exists(here))
            return QFileInfo(here).canonicalFilePath();
        if (!dir.cdUp())
            break;
    }
    return {};
}

} // namespace rankyard::app
