// SPDX-License-Identifier: GPL-3.0-or-later
#include "ui/designer/verdict_panel.h"

#include "ui/cluster/device_text.h"
#include "ui/common/format.h"
#include "ui/common/rows.h"
#include "ui/common/theme.h"
#include "ui/designer/figure_row.h"
#include "ui/designer/import_list.h"
#include "ui/designer/kinds.h"
#include "ui/designer/memory_bars.h"
#include "ui/designer/problem_note.h"

#include <QEvent>
#include <QGridLayout>
#include <QHBoxLayout>
#include <QLabel>
#include <QLineEdit>
#include <QSet>
#include <QVBoxLayout>

#include <cmath>
#include <utility>

namespace rankyard::ui {

namespace {

QString shortBytes(double bytes) { return bytes > 0 ? formatValue(bytes, Unit::Bytes) : QStringLiteral("–"); }

QString nameOfGroup(const std::string &group)
{
    const std::pair<const char *, QString> names[] = {
        {"tp", VerdictPanel::tr("tensor")},           {"dp", VerdictPanel::tr("data")},
        {"pp", VerdictPanel::tr("pipeline")},         {"cp", VerdictPanel::tr("context")},
        {"dp-cp", VerdictPanel::tr("data, context")}, {"world", VerdictPanel::tr("all ranks")},
        {"embedding", VerdictPanel::tr("embedding")}, {"tp-dp", VerdictPanel::tr("tensor, data")},
        {"kv", VerdictPanel::tr("key heads")}};
    for (const auto &[id, name] : names) {
        if (group == id)
            return name;
    }
    return QString::fromStdString(group);
}

} // namespace

namespace {

/// A verdict in closed form with what only a program tells, as it was before.
std::shared_ptr<const predict::Verdict> withRest(const predict::Verdict &closed,
                                                 const predict::Verdict &before)
{
    predict::Verdict merged = closed;
    merged.flows = before.flows;
    for (const predict::Figure &old : before.figures) {
        if (old.key == "work" && !merged.figure(old.key))
            merged.figures.push_back(old);
    }
    return std::make_shared<const predict::Verdict>(std::move(merged));
}

} // namespace

std::optional<double> tokensOf(const QString &text)
{
    QString number = text.simplified().remove(QLatin1Char(',')).remove(QLatin1Char(' '));
    double factor = 1;
    const std::pair<char, double> units[] = {{'K', 1e3}, {'M', 1e6}, {'B', 1e9}, {'G', 1e9}, {'T', 1e12}};
    for (const auto &[letter, value] : units) {
        if (number.endsWith(QLatin1Char(letter), Qt::CaseInsensitive)) {
            factor = value;
            number.chop(1);
            break;
        }
    }
    bool ok = false;
    const double tokens = number.toDouble(&ok) * factor;
    return ok && tokens > 0 && tokens < 1e24 ? std::optional(tokens) : std::nullopt;
}

QString textOfFigure(const predict::Figure &figure)
{
    using predict::Measure;
    QString text;
    switch (figure.measure) {
    case Measure::Seconds:
        text = formatSeconds(figure.value);
        break;
    case Measure::Bytes:
        text = (figure.value < 0 ? QStringLiteral("−") : QString())
            + formatValue(std::fabs(figure.value), Unit::Bytes);
        break;
    case Measure::Count:
        // Tokens and parameters are counted in thousands, millions, billions.
        text = formatValue(figure.value, Unit::Count);
        text.replace(QLatin1Char('G'), QLatin1Char('B')).replace(QLatin1Char('k'), QLatin1Char('K'));
        break;
    case Measure::Flop:
        text = formatValue(figure.value, Unit::Count) + QStringLiteral("FLOP");
        break;
    case Measure::Share:
        text = formatShort(100 * figure.value, Unit::Percent);
        break;
    case Measure::FlopRate:
        text = QString::number(figure.value / 1e12, 'f', figure.value < 1e13 ? 1 : 0)
            + QStringLiteral(" TFLOP/s");
        break;
    case Measure::Days:
        text = figure.value < 1
            ? formatSeconds(figure.value * 86400)
            : QCoreApplication::translate("Figure", "%1 days")
                  .arg(figure.value < 1000 ? QString::number(figure.value, 'f', figure.value < 100 ? 1 : 0)
                                           : formatStep(std::llround(figure.value)));
        break;
    }
    if (figure.spread > 0 && figure.measure == Measure::Seconds)
        text += QStringLiteral(" ± ") + formatSeconds(figure.spread);
    return text;
}

VerdictPanel::VerdictPanel(QWidget *parent) : QScrollArea(parent)
{
    const auto widen = [this] { setMinimumWidth(Theme::instance().scaled(220)); };
    connect(&Theme::instance(), &Theme::changed, this, widen);
    widen();
    setObjectName(QStringLiteral("side"));
    setWidgetResizable(true);
    setFrameShape(QFrame::NoFrame);
    setHorizontalScrollBarPolicy(Qt::ScrollBarAlwaysOff);
    setFocusPolicy(Qt::NoFocus);
    auto *content = new QWidget;
    content->setObjectName(QStringLiteral("sideContent"));
    setWidget(content);
    m_column = new QVBoxLayout(content);
    m_column->setContentsMargins(14, 12, 14, 12);
    m_column->setSpacing(8);
    m_headline = new QLabel(content);
    setRole(m_headline, FontRole::Title);
    m_headline->setWordWrap(true);
    m_column->addWidget(m_headline);
    m_aside = new QLabel(content);
    m_aside->setProperty("tone", "muted");
    m_aside->setProperty("data", true);
    m_aside->setWordWrap(true);
    m_column->addWidget(m_aside);
    m_busy = new QLabel(tr("Working out the newest change"), content);
    m_busy->setProperty("tone", "muted");
    setRole(m_busy, FontRole::Small);
    m_busy->hide();
    m_column->addWidget(m_busy);
    m_imported = new ImportList(content);
    m_column->addWidget(m_imported);
    m_figures = new QVBoxLayout;
    m_figures->setSpacing(0);
    m_column->addLayout(m_figures);
    buildTarget();
    m_problemsTitle = heading(tr("Problems"));
    m_problems = new QVBoxLayout;
    m_problems->setSpacing(10);
    m_column->addLayout(m_problems);
    m_memoryTitle = heading({});
    m_bars = new MemoryBars(content);
    m_column->addWidget(m_bars);
    m_partsTitle = new QLabel(content);
    m_partsTitle->setProperty("tone", "muted");
    setRole(m_partsTitle, FontRole::Small);
    m_column->addWidget(m_partsTitle);
    m_parts = new QVBoxLayout;
    m_parts->setSpacing(0);
    m_column->addLayout(m_parts);
    connect(m_bars, &MemoryBars::currentChanged, this, &VerdictPanel::fillParts);
    m_trafficTitle = heading({});
    m_trafficHolder = new QWidget(content);
    m_traffic = new QGridLayout(m_trafficHolder);
    m_traffic->setContentsMargins(0, 0, 0, 0);
    m_traffic->setHorizontalSpacing(10);
    m_traffic->setVerticalSpacing(6);
    m_traffic->setColumnStretch(0, 1);
    m_column->addWidget(m_trafficHolder);
    m_notesTitle = heading(tr("Where this comes from"));
    m_notes = new QVBoxLayout;
    m_notes->setSpacing(6);
    m_column->addLayout(m_notes);
    m_column->addStretch(1);
    setVerdict(nullptr, tr("GPU"));
}

void VerdictPanel::buildTarget()
{
    m_targetRow = new QWidget(widget());
    auto *row = new QHBoxLayout(m_targetRow);
    row->setContentsMargins(0, 0, 0, 0);
    auto *name = new QLabel(tr("Tokens to see"), m_targetRow);
    name->setProperty("tone", "muted");
    m_target = new QLineEdit(m_targetRow);
    m_target->setAlignment(Qt::AlignRight);
    m_target->setAccessibleName(name->text());
    m_target->setToolTip(tr("Of the whole training: 300 B, 1.5 T, 2e12"));
    setRole(m_target, FontRole::Mono);
    name->setBuddy(m_target);
    row->addWidget(name, 1);
    row->addWidget(m_target);
    const auto narrow = [this] { m_target->setFixedWidth(Theme::instance().scaled(96)); };
    connect(&Theme::instance(), &Theme::changed, m_target, narrow);
    narrow();
    m_column->addWidget(m_targetRow);
    connect(m_target, &QLineEdit::editingFinished, this, [this] {
        const auto tokens = tokensOf(m_target->text());
        if (!tokens)
            return setTargetTokens(m_tokens); // what is no number goes back
        if (*tokens == m_tokens)
            return;
        setTargetTokens(*tokens);
        emit targetTokensChanged(*tokens);
    });
    setTargetTokens(m_tokens);
}

void VerdictPanel::setTargetTokens(double tokens)
{
    m_tokens = tokens;
    m_target->setText(textOfFigure({"", "", predict::Measure::Count, tokens}));
}

QLabel *VerdictPanel::heading(const QString &text)
{
    auto *label = new QLabel(text, widget());
    label->setContentsMargins(0, 8, 0, 0);
    label->setWordWrap(true);
    setRole(label, FontRole::Strong);
    m_column->addWidget(label);
    return label;
}

void VerdictPanel::setVerdict(std::shared_ptr<const predict::Verdict> verdict, const QString &device)
{
    const auto before = std::exchange(m_verdict, std::move(verdict));
    if (before && m_verdict && m_verdict->depth == predict::Depth::Closed)
        m_verdict = withRest(*m_verdict, *before);
    using Answer = predict::Verdict::Answer;
    QString aside;
    if (!m_verdict) {
        m_headline->setText(tr("Nothing is designed yet"));
        setTone(m_headline, "");
    } else if (m_verdict->answer == Answer::Fits) {
        m_headline->setText(m_verdict->isPlanOnly() ? tr("Would fit") : tr("Fits"));
        setTone(m_headline, "good");
    } else if (m_verdict->answer == Answer::DoesNotFit) {
        m_headline->setText(m_verdict->isPlanOnly() ? tr("Would not fit") : tr("Does not fit"));
        setTone(m_headline, "bad");
    } else if (m_verdict->answer == Answer::NotKnown) {
        m_headline->setText(tr("Runs"));
        setTone(m_headline, "");
        aside = tr("The cluster does not say how much memory it has");
    } else {
        m_headline->setText(tr("Cannot run"));
        setTone(m_headline, "bad");
    }
    if (const auto *headroom = m_verdict ? m_verdict->figure("headroom") : nullptr)
        aside = headroom->value >= 0
            ? tr("%1 left on the fullest stage").arg(formatValue(headroom->value, Unit::Bytes))
            : tr("%1 are missing on the fullest stage").arg(formatValue(-headroom->value, Unit::Bytes));
    m_aside->setText(aside);
    m_aside->setVisible(!aside.isEmpty());
    m_memoryTitle->setText(tr("Memory of a %1, by stage").arg(device));
    if (m_verdict && !m_verdict->stages.empty() && m_verdict->stages[0].capacity > 0)
        m_memoryTitle->setText(
            tr("Memory of a %1, of %2")
                .arg(device, formatValue(static_cast<double>(m_verdict->stages[0].capacity), Unit::Bytes)));
    m_trafficTitle->setText(tr("Sent by a %1 in a step").arg(device));
    const bool known = m_verdict && !m_verdict->stages.empty();
    for (QWidget *part : std::initializer_list<QWidget *>{m_memoryTitle, m_bars, m_notesTitle})
        part->setVisible(known);
    for (QWidget *part : std::initializer_list<QWidget *>{m_trafficTitle, m_trafficHolder})
        part->setVisible(known && !m_verdict->isPlanOnly()); // no program counts its bytes
    m_targetRow->setVisible(m_verdict && m_verdict->time);   // without times there is nothing to ask
    m_bars->setVerdict(m_verdict);
    fillFigures();
    fillParts();
    fillTraffic();
    fillProblems(m_verdict ? m_verdict->problems : std::vector<predict::Problem>());
    fillNotes();
}

void VerdictPanel::setProblems(std::vector<predict::Problem> problems)
{
    auto verdict = std::make_shared<predict::Verdict>();
    verdict->problems = std::move(problems);
    setVerdict(std::move(verdict), tr("GPU"));
}

void VerdictPanel::setBusy(bool busy) { m_busy->setVisible(busy); }

QString VerdictPanel::headline() const { return m_headline->text(); }

namespace {

/// What stays with the device is drawn as workspace.
std::optional<Kind> swatchOf(const std::string &key, bool hostApart)
{
    if (hostApart && key == plan::nameOf(plan::MemoryKind::Host))
        return std::nullopt;
    for (int i = 0; i < plan::memoryKindCount; ++i) {
        if (key == plan::nameOf(static_cast<plan::MemoryKind>(i)))
            return kindOf(static_cast<plan::MemoryKind>(i));
    }
    return kindOf(plan::MemoryKind::Workspace);
}

} // namespace

/// Rows that are open stay open, the focus where it is.
void VerdictPanel::fillRows(QVBoxLayout *layout, const std::vector<predict::Figure> &figures,
                            QWidget *otherwise, const predict::StageMemory *stage)
{
    QSet<QString> open;
    for (int i = 0; i < layout->count(); ++i) {
        const auto *row = qobject_cast<FigureRow *>(layout->itemAt(i)->widget());
        if (row && row->isOpen())
            open.insert(QString::fromStdString(row->key()));
    }
    const FocusKeeper keeper(layout, otherwise);
    clear(layout);
    for (const predict::Figure &figure : figures) {
        if (figure.key == "headroom")
            continue; // said above
        auto *row =
            new FigureRow(figure, widget(), stage ? swatchOf(figure.key, stage->hostApart()) : std::nullopt);
        row->setOpen(open.contains(QString::fromStdString(figure.key)));
        layout->addWidget(row);
    }
}

void VerdictPanel::fillFigures()
{
    fillRows(m_figures, m_verdict ? m_verdict->figures : std::vector<predict::Figure>(),
             m_targetRow->isHidden() ? m_bars : static_cast<QWidget *>(m_target));
}

/// Of the stage that is chosen in the bars, or else the fullest.
void VerdictPanel::fillParts()
{
    const int stage = m_bars->current() >= 0 ? m_bars->current() : m_bars->fullest();
    const bool known = stage >= 0 && m_verdict && stage < static_cast<int>(m_verdict->stages.size());
    m_partsTitle->setVisible(known && m_verdict->stages.size() > 1);
    m_partsTitle->setText(stage == m_bars->fullest() ? tr("Stage %1, the fullest").arg(stage)
                                                     : tr("Stage %1").arg(stage));
    const predict::StageMemory none;
    const auto &memory = known ? m_verdict->stages[static_cast<std::size_t>(stage)] : none;
    fillRows(m_parts, memory.figures, m_bars, &memory);
}

void VerdictPanel::fillTraffic()
{
    clear(m_traffic);
    if (!m_verdict)
        return;
    const bool timed = m_verdict->basis == predict::Basis::Model;
    const auto put = [this](int row, int column, const QString &text, bool head) {
        auto *label = new QLabel(text, m_trafficHolder);
        setRole(label, head || column == 0 ? FontRole::Small : FontRole::MonoSmall);
        if (head)
            label->setProperty("tone", "muted");
        label->setProperty("data", !head);
        label->setAlignment((column == 0 ? Qt::AlignLeft : Qt::AlignRight) | Qt::AlignTop);
        if (column == 0)
            label->setWordWrap(true);
        m_traffic->addWidget(label, row, column);
        return label;
    };
    if (m_verdict->flows.empty()) {
        put(0, 0, tr("One rank sends nothing."), true);
        return;
    }
    put(0, 0, tr("group"), true);
    put(0, 1, tr("bytes"), true);
    if (timed) {
        put(0, 2, tr("time"), true);
        put(0, 3, tr("exposed"), true);
    }
    int row = 1;
    for (const predict::Flow &flow : m_verdict->flows) {
        QString name = QStringLiteral("%1 (%2)").arg(nameOfGroup(flow.group)).arg(flow.size);
        const QString link = flow.placed ? wordsOfLink(flow.worst.link) : QString();
        QLabel *first = put(row, 0, name, false);
        const QString tip = tr("Wire %1, payload %2. Worst link between ranks %3 and %4, over %5 nodes")
                                .arg(shortBytes(static_cast<double>(flow.wire)),
                                     shortBytes(static_cast<double>(flow.payload)))
                                .arg(flow.worst.a)
                                .arg(flow.worst.b)
                                .arg(flow.worst.nodes);
        const bool leaves = flow.group == "tp" && flow.placed && !flow.worst.island;
        first->setToolTip(tip);
        put(row, 1, shortBytes(static_cast<double>(flow.wire)), false)->setToolTip(tip);
        if (timed) {
            put(row, 2, formatSeconds(flow.seconds), false);
            put(row, 3, formatSeconds(flow.exposed), false);
        }
        ++row;
        if (link.isEmpty())
            continue;
        QLabel *below = put(row++, 0, link, false);
        below->setProperty("tone", leaves ? "warn" : "muted");
        below->setToolTip(tip);
        m_traffic->addWidget(below, row - 1, 0, 1, timed ? 4 : 2);
    }
}

QStringList VerdictPanel::trafficRows() const
{
    QStringList rows;
    for (int row = 0; row < m_traffic->rowCount(); ++row) {
        QStringList cells;
        for (int column = 0; column < m_traffic->columnCount(); ++column) {
            const QLayoutItem *item = m_traffic->itemAtPosition(row, column);
            if (const auto *label = item ? qobject_cast<QLabel *>(item->widget()) : nullptr)
                cells << label->text();
        }
        if (!cells.isEmpty())
            rows << cells.join(QStringLiteral(" | "));
    }
    return rows;
}

void VerdictPanel::fillProblems(const std::vector<predict::Problem> &problems)
{
    const FocusKeeper keeper(m_problems, m_bars);
    clear(m_problems);
    const bool wrong = std::any_of(problems.begin(), problems.end(),
                                   [](const auto &p) { return p.severity >= predict::Severity::Warning; });
    m_problemsTitle->setText(wrong ? tr("Problems") : tr("Worth knowing"));
    m_problemsTitle->setVisible(!problems.empty());
    for (const predict::Problem &problem : problems) {
        auto *note = new ProblemNote(problem, true, widget());
        connect(note, &ProblemNote::fixChosen, this, &VerdictPanel::fixChosen);
        m_problems->addWidget(note);
    }
}

void VerdictPanel::fillNotes()
{
    clear(m_notes);
    if (!m_verdict)
        return;
    for (const std::string &note : m_verdict->notes) {
        QLabel *label = remark(QString::fromStdString(note), widget());
        setRole(label, FontRole::Small);
        m_notes->addWidget(label);
    }
}

bool VerdictPanel::viewportEvent(QEvent *event)
{
    // The column is as wide as there is room: nothing scrolls sideways.
    if (event->type() == QEvent::Resize && widget())
        widget()->setMaximumWidth(viewport()->width());
    return QScrollArea::viewportEvent(event);
}

} // namespace rankyard::ui
