// SPDX-License-Identifier: GPL-3.0-or-later
#include "ui/home/home_page.h"

#include "engine/base/units.h"
#include "ui/common/actions.h"
#include "ui/common/icons.h"
#include "ui/common/panel.h"
#include "ui/home/file_row.h"
#include "ui/home/machine_panel.h"
#include "ui/home/run_row.h"

#include <QFileInfo>
#include <QGridLayout>
#include <QHBoxLayout>
#include <QLabel>
#include <QPushButton>
#include <QScrollArea>
#include <QTimer>
#include <QVBoxLayout>

#include <algorithm>

namespace rankyard::ui {

namespace {
constexpr int recentRuns = 8;
constexpr int recentDesigns = 5;
constexpr int previewPoints = 96;
} // namespace

HomePage::HomePage(DataHub *hub, ActionRegistry *registry, QWidget *parent)
    : QWidget(parent),
      m_hub(hub),
      m_registry(registry),
      m_live(new Panel(tr("Running now"))),
      m_recent(new Panel(tr("Recent runs"))),
      m_designs(new Panel(tr("Recent designs")))
{
    auto *outer = new QVBoxLayout(this);
    outer->setContentsMargins(0, 0, 0, 0);
    auto *scroll = new QScrollArea(this);
    scroll->setWidgetResizable(true);
    scroll->setFrameShape(QFrame::NoFrame);
    scroll->setFocusPolicy(Qt::NoFocus);
    outer->addWidget(scroll);
    auto *content = new QWidget;
    scroll->setWidget(content);
    auto *grid = new QGridLayout(content);
    grid->setContentsMargins(12, 12, 12, 12);
    grid->setSpacing(12);
    auto *left = new QVBoxLayout;
    left->setSpacing(12);
    left->addWidget(cards());
    left->addWidget(m_live, 1);
    left->addWidget(m_recent);
    left->addStretch(0);
    m_left = left;
    auto *right = new QVBoxLayout;
    right->setSpacing(12);
    right->addWidget(new MachinePanel(content));
    right->addWidget(m_designs);
    right->addWidget(keysPanel());
    right->addStretch(1);
    m_grid = grid;
    m_right = right;
    grid->addLayout(left, 0, 0);
    connect(&Theme::instance(), &Theme::changed, this, &HomePage::layOut);
    layOut();
    for (Panel *panel : {m_live, m_recent, m_designs})
        panel->headLayout()->addStretch(1);
    connect(m_hub, &DataHub::runsChanged, this, &HomePage::refresh);
    connect(m_hub, &DataHub::previewed, this, [this](const QString &run, const std::vector<double> &losses) {
        m_previews[run] = losses;
        m_waiting = std::max(0, m_waiting - 1);
        for (RunRow *row : findChildren<RunRow *>()) {
            if (QString::fromStdString(row->run().id) == run)
                row->setPreview(losses);
        }
        if (m_waiting == 0)
            emit ready();
    });
    // Ages are told in seconds at first: they go on without news from the store.
    auto *clock = new QTimer(this);
    connect(clock, &QTimer::timeout, this, [this] {
        if (!isVisible())
            return;
        for (RunRow *row : findChildren<RunRow *>())
            row->setNow(wallNs());
    });
    clock->start(1000);
    m_designs->body()->addSpacing(8);
    setDesigns({});
    refresh();
}

QWidget *HomePage::cards()
{
    auto *row = new QWidget;
    m_cards = new QHBoxLayout(row);
    m_cards->setContentsMargins(0, 0, 0, 0);
    m_cards->setSpacing(12);
    m_cards->addWidget(
        card(
            tr("Train a small GPT on two ranks"),
            tr("The sample reads the King James Bible byte by byte, on two processes of this machine, data parallel with a "
               "partitioned optimizer (ZeRO 1). It takes about two minutes and shows every part of a training step."),
            "home.sample", tr("Run the sample"), true),
        1);
    m_cards->addWidget(
        card(
            tr("Design a layout"),
            tr("Choose a model, a batch and a cluster, and see what each rank needs in memory, time and traffic, why, and what "
               "would be better, before anything runs."),
            "go.design", tr("Open the designer"), false),
        1);
    return row;
}

QWidget *HomePage::card(const QString &title, const QString &text, const char *action, const QString &button,
                        bool primary)
{
    auto *card = new Panel({});
    auto *column = new QVBoxLayout;
    column->setContentsMargins(12, 4, 16, 16);
    column->setSpacing(4);
    auto *head = new QLabel(title);
    setRole(head, FontRole::Head);
    auto *body = new QLabel(text);
    body->setWordWrap(true);
    body->setAlignment(Qt::AlignTop | Qt::AlignLeft);
    body->setProperty("tone", "muted");
    column->addWidget(head);
    column->addWidget(body, 1);
    QAction *what = m_registry->action(QLatin1String(action));
    auto *push = new QPushButton(button);
    if (primary)
        push->setProperty("tone", "primary");
    push->setToolTip(what->toolTip());
    connect(push, &QPushButton::clicked, what, &QAction::trigger);
    column->addSpacing(8);
    column->addWidget(push, 0, Qt::AlignLeft);
    card->body()->addLayout(column);
    return card;
}

void HomePage::setDesigns(const QStringList &files)
{
    qDeleteAll(m_designs->findChildren<FileRow *>());
    int count = 0;
    for (const QString &file : files) {
        if (count == recentDesigns || !QFileInfo(file).isFile())
            continue;
        auto *row = new FileRow(file, m_designs);
        connect(row, &FileRow::clicked, this, [this, file] { emit designRequested(file); });
        m_designs->body()->insertWidget(count++, row);
    }
    m_designs->setVisible(count > 0);
}

QWidget *HomePage::keysPanel()
{
    auto *panel = new Panel(tr("Get around"));
    panel->headLayout()->addStretch(1);
    auto *grid = new QGridLayout;
    grid->setContentsMargins(12, 4, 12, 12);
    grid->setHorizontalSpacing(12);
    grid->setVerticalSpacing(8);
    grid->setColumnStretch(0, 1);
    int at = 0;
    for (const char *id : {"view.palette", "view.quickopen", "go.runs", "go.cluster", "go.design",
                           "go.monitor", "help.sheet"}) {
        const QAction *action = m_registry->action(QLatin1String(id));
        if (!action)
            continue;
        auto *name = new QLabel(action->text());
        name->setProperty("tone", "muted");
        auto *key = new QLabel(action->shortcut().toString(QKeySequence::NativeText));
        setRole(key, FontRole::Mono);
        grid->addWidget(name, at, 0);
        grid->addWidget(key, at++, 1, Qt::AlignRight);
    }
    panel->body()->addLayout(grid);
    panel->body()->addStretch(1);
    return panel;
}

void HomePage::fill(Panel *panel, const std::vector<store::RunInfo> &runs, const QString &nothing)
{
    // Rows are reused: focus stays where it is while numbers change.
    QList<RunRow *> rows = panel->findChildren<RunRow *>();
    while (rows.size() > static_cast<qsizetype>(runs.size()))
        delete rows.takeLast();
    while (rows.size() < static_cast<qsizetype>(runs.size())) {
        auto *row = new RunRow(panel);
        row->setTall(panel == m_live);
        connect(row, &RunRow::clicked, this,
                [this, row] { emit openRequested(QString::fromStdString(row->run().id)); });
        panel->body()->insertWidget(static_cast<int>(rows.size()), row);
        rows << row;
    }
    const std::int64_t now = wallNs();
    for (std::size_t i = 0; i < runs.size(); ++i) {
        RunRow *row = rows[static_cast<qsizetype>(i)];
        row->setRun(runs[i], now);
        const QString id = QString::fromStdString(runs[i].id);
        row->setPreview(m_previews.value(id));
        const qint64 asked = m_asked.value(id, -1);
        // Again when the curve has grown by a twentieth.
        if (asked < 0 || runs[i].step > asked + std::max<qint64>(10, asked / 20)) {
            m_asked[id] = runs[i].step;
            ++m_waiting;
            m_hub->requestPreview(id, previewPoints);
        }
    }
    auto *hint = panel->findChild<QLabel *>(QStringLiteral("nothing"));
    if (!hint) {
        hint = new QLabel(panel);
        hint->setObjectName(QStringLiteral("nothing"));
        hint->setProperty("tone", "muted");
        hint->setContentsMargins(12, 4, 12, 12);
        hint->setWordWrap(true);
        hint->setAlignment(Qt::AlignTop | Qt::AlignLeft);
        panel->body()->addWidget(hint);
        if (panel != m_live) // its rows grow themselves
            panel->body()->addStretch(1);
    }
    hint->setText(nothing);
    hint->setVisible(runs.empty());
}

void HomePage::refresh()
{
    std::vector<store::RunInfo> live;
    std::vector<store::RunInfo> recent;
    if (m_hub->runs()) {
        for (const store::RunInfo &run : *m_hub->runs())
            (telemetry::isLive(run.state) ? live : recent).push_back(run);
    }
    const auto newest = [](const store::RunInfo &a, const store::RunInfo &b) {
        return a.startedNs > b.startedNs;
    };
    std::sort(live.begin(), live.end(), newest);
    std::sort(recent.begin(), recent.end(), newest);
    if (recent.size() > recentRuns)
        recent.resize(recentRuns);
    m_live->setVisible(!live.empty());
    // What runs takes the room that is left; else the list does.
    m_left->setStretchFactor(m_recent, live.empty() ? 1 : 0);
    fill(m_live, live, {});
    fill(m_recent, recent,
         m_hub->runs() ? tr("Runs that have ended are listed here. There are none yet.")
                       : tr("Reading the runs."));
    if (isReady())
        emit ready();
}

void HomePage::layOut()
{
    // Large text has no room for two columns.
    const bool beside = Theme::instance().textPercent() <= 140;
    m_cards->setDirection(beside ? QBoxLayout::LeftToRight : QBoxLayout::TopToBottom);
    m_grid->removeItem(m_right);
    m_right->setParent(nullptr); // or the grid refuses it
    m_grid->addLayout(m_right, beside ? 0 : 1, beside ? 1 : 0);
    m_grid->setColumnStretch(0, 7);
    m_grid->setColumnStretch(1, beside ? 3 : 0);
}

bool HomePage::isReady() const { return m_hub->runs() && m_waiting == 0; }

} // namespace rankyard::ui
