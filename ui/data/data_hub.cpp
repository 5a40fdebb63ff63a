// SPDX-License-Identifier: GPL-3.0-or-later
#include "ui/data/data_hub.h"

#include <QPointer>

namespace rankyard::ui {

DataHub::DataHub(std::filesystem::path storeFile, MemoryPredictor predict, QObject *parent)
    : QObject(parent),
      m_file(storeFile),
      m_reader(new RunReader(std::move(storeFile), predict))
{
    qRegisterMetaType<RunListPtr>();
    qRegisterMetaType<RunUpdatePtr>();
    qRegisterMetaType<std::vector<double>>();
    qRegisterMetaType<Error>();
    m_thread.setObjectName(QStringLiteral("store"));
    m_reader->moveToThread(&m_thread);
    connect(&m_thread, &QThread::finished, m_reader, &QObject::deleteLater);
    connect(m_reader, &RunReader::runs, this, [this](const RunListPtr &list) {
        m_runs = list;
        emit runsChanged();
    });
    connect(m_reader, &RunReader::update, this, &DataHub::take);
    connect(m_reader, &RunReader::previewed, this, &DataHub::previewed);
    connect(m_reader, &RunReader::failed, this, &DataHub::failed);
    m_thread.start();
    QMetaObject::invokeMethod(m_reader, &RunReader::start);
}

DataHub::~DataHub()
{
    // The reader's timers and its connection end on its own thread.
    QMetaObject::invokeMethod(m_reader, &RunReader::stop);
    m_thread.quit();
    m_thread.wait();
}

const store::RunInfo *DataHub::find(const QString &run) const
{
    if (!m_runs)
        return nullptr;
    const std::string id = run.toStdString();
    for (const store::RunInfo &each : *m_runs) {
        if (each.id == id)
            return &each;
    }
    return nullptr;
}

std::shared_ptr<RunData> DataHub::open(const QString &run)
{
    if (auto known = m_open.value(run).lock())
        return known;
    // The last holder ends the reading; the hub may be gone by then.
    QPointer<DataHub> hub(this);
    std::shared_ptr<RunData> data(new RunData(run), [hub](RunData *dying) {
        if (hub) {
            const QString id = dying->id();
            hub->m_open.remove(id);
            RunReader *reader = hub->m_reader;
            QMetaObject::invokeMethod(reader, [reader, id] { reader->closeRun(id); });
        }
        dying->deleteLater();
    });
    m_open.insert(run, data);
    RunReader *reader = m_reader;
    QMetaObject::invokeMethod(reader, [reader, run] { reader->openRun(run); });
    return data;
}

void DataHub::requestPreview(const QString &run, int points)
{
    RunReader *reader = m_reader;
    QMetaObject::invokeMethod(reader, [reader, run, points] { reader->preview(run, points); });
}

void DataHub::poke() { QMetaObject::invokeMethod(m_reader, &RunReader::poke); }

void DataHub::take(const RunUpdatePtr &update)
{
    if (auto data = m_open.value(QString::fromStdString(update->run)).lock())
        data->apply(*update);
}

} // namespace rankyard::ui
