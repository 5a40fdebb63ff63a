// SPDX-License-Identifier: GPL-3.0-or-later
#include "ui/cluster/probe_run.h"

#include <QCoreApplication>
#include <QDir>
#include <QProcess>
#include <QRegularExpression>

#include <csignal>
#include <utility>

namespace rankyard::ui {

ProbeRun::ProbeRun(QObject *parent, QString program)
    : LongWork(parent),
      m_program(program.isEmpty()
                    ? QDir(QCoreApplication::applicationDirPath()).filePath(QStringLiteral("rankyardctl"))
                    : std::move(program))
{}

ProbeRun::~ProbeRun()
{
    if (!m_process)
        return;
    m_process->disconnect(this);
    cancel();
    if (!m_process->waitForFinished(2000))
        m_process->kill();
    m_process->waitForFinished(2000);
}

void ProbeRun::start()
{
    if (m_process)
        return;
    m_cancelled = false;
    m_last.clear();
    m_process = new QProcess(this);
    m_process->setStandardOutputFile(QProcess::nullDevice());
    connect(m_process, &QProcess::readyReadStandardError, this, &ProbeRun::read);
    connect(m_process, &QProcess::finished, this, &ProbeRun::finish);
    connect(m_process, &QProcess::errorOccurred, this, [this](QProcess::ProcessError error) {
        if (error != QProcess::FailedToStart) // the others end in finished()
            return;
        m_last = tr("%1 cannot be started").arg(m_program);
        finish();
    });
    m_process->start(m_program, {QStringLiteral("cluster"), QStringLiteral("probe")});
    if (m_process)
        begin(tr("Measuring this machine"));
}

void ProbeRun::cancel()
{
    if (!m_process || m_process->processId() <= 0)
        return;
    m_cancelled = true;
    ::kill(static_cast<pid_t>(m_process->processId()), SIGINT); // as Ctrl-C: it stops at the next measurement
}

void ProbeRun::read()
{
    static const QRegularExpression progress(QStringLiteral("^(\\d+) %\\s+(.*)$"));
    m_process->setReadChannel(QProcess::StandardError);
    while (m_process->canReadLine()) {
        const QString line = QString::fromUtf8(m_process->readLine()).trimmed();
        const auto match = progress.match(line);
        if (match.hasMatch()) {
            tell(match.captured(1).toInt() / 100.0, match.captured(2));
        } else if (!line.isEmpty()) {
            m_last = line;
        }
    }
}

void ProbeRun::finish()
{
    if (!m_process)
        return;
    read();
    const bool measured = m_process->exitStatus() == QProcess::NormalExit && m_process->exitCode() == 0
        && m_process->error() != QProcess::FailedToStart;
    std::exchange(m_process, nullptr)->deleteLater();
    end();
    const bool failed = !measured && !m_cancelled;
    emit ended(measured, failed ? (m_last.isEmpty() ? tr("the probe ended early") : m_last) : QString());
}

} // namespace rankyard::ui
