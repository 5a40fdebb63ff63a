// SPDX-License-Identifier: GPL-3.0-or-later
#include "ui/common/shortcut_table.h"

#include "ui/common/actions.h"
#include "ui/common/theme.h"

#include <QHBoxLayout>
#include <QLabel>
#include <QTimer>
#include <QVBoxLayout>

#include <vector>

namespace rankyard::ui {

namespace {

constexpr int between = 40; ///< columns
constexpr int gap = 16;     ///< at least, from words to key

struct Section {
    QString name;
    std::vector<std::pair<QString, QString>> rows;
};

std::vector<Section> sectionsOf(const ActionRegistry &registry)
{
    std::vector<Section> sections;
    for (const auto &entry : registry.entries()) {
        if (entry.spec.shortcut.isEmpty())
            continue;
        auto found = std::find_if(sections.begin(), sections.end(),
                                  [&](const Section &each) { return each.name == entry.spec.category; });
        if (found == sections.end())
            found = sections.insert(sections.end(), Section{entry.spec.category, {}});
        found->rows.emplace_back(entry.spec.text, entry.spec.shortcut.toString(QKeySequence::NativeText));
    }
    const auto tr = [](const char *text) { return ShortcutTable::tr(text); };
    sections.push_back({tr("Charts"),
                        {{tr("Zoom at the cursor"), tr("Wheel")},
                         {tr("Zoom x only"), tr("Shift + wheel")},
                         {tr("Zoom y only"), tr("Ctrl + wheel")},
                         {tr("Zoom to a box"), tr("Drag")},
                         {tr("Pan"), tr("Ctrl + drag")},
                         {tr("Fit"), tr("Double click")},
                         {tr("Move the cursor"), QStringLiteral("← →")},
                         {tr("Zoom x at the cursor"), QStringLiteral("+ −")}}});
    return sections;
}

} // namespace

ShortcutTable::ShortcutTable(ActionRegistry *registry, QWidget *parent)
    : QWidget(parent),
      m_registry(registry)
{
    auto *layout = new QVBoxLayout(this);
    layout->setContentsMargins(0, 0, 0, 0);
    connect(&Theme::instance(), &Theme::changed, this, [this] {
        if (m_content)
            fill();
    });
}

QSize ShortcutTable::minimumSizeHint() const { return {0, QWidget::minimumSizeHint().height()}; }

int ShortcutTable::columnsFor(int width) const
{
    const QFontMetrics words(Theme::instance().font(FontRole::Body));
    const QFontMetrics keys(Theme::instance().font(FontRole::Mono));
    int widest = 1;
    for (const Section &section : sectionsOf(*m_registry)) {
        for (const auto &[name, key] : section.rows)
            widest = std::max(widest, words.horizontalAdvance(name) + gap + keys.horizontalAdvance(key));
    }
    return std::clamp((width - 24 + between) / (widest + between), 1, 3);
}

void ShortcutTable::resizeEvent(QResizeEvent *event)
{
    QWidget::resizeEvent(event);
    // Not at once: a resize may come from a walk over all widgets, which must not lose any meanwhile.
    QTimer::singleShot(0, this, [this] {
        if (m_content && columnsFor(width()) != m_columns)
            fill();
    });
}

void ShortcutTable::fill()
{
    delete m_content;
    m_content = new QWidget(this);
    layout()->addWidget(m_content);
    auto *columns = new QHBoxLayout(m_content);
    columns->setContentsMargins(12, 8, 12, 12);
    columns->setSpacing(between);
    const auto sections = sectionsOf(*m_registry);
    std::size_t lines = 0;
    for (const Section &section : sections)
        lines += section.rows.size() + 2;
    // Columns of about equal length; a long section goes on in the next one.
    const int most = m_columns = columnsFor(width());
    const std::size_t perColumn =
        (lines + static_cast<std::size_t>(most) - 1) / static_cast<std::size_t>(most);
    std::size_t inColumn = perColumn;
    QVBoxLayout *column = nullptr;
    m_rows = 0;
    int columnCount = 0;
    const auto newColumn = [&] {
        if (++columnCount > most)
            return;
        if (column)
            column->addStretch(1);
        column = new QVBoxLayout;
        column->setSpacing(6);
        columns->addLayout(column, 1);
        inColumn = 0;
    };
    for (const Section &section : sections) {
        if (inColumn + 3 > perColumn)
            newColumn();
        else
            column->addSpacing(10);
        auto *head = new QLabel(section.name);
        setRole(head, FontRole::Strong);
        column->addWidget(head);
        inColumn += 2;
        for (const auto &[name, key] : section.rows) {
            if (inColumn >= perColumn)
                newColumn();
            auto *line = new QHBoxLayout;
            line->setSpacing(gap);
            auto *text = new QLabel(name);
            text->setProperty("tone", "muted");
            auto *keys = new QLabel(key);
            setRole(keys, FontRole::Mono);
            line->addWidget(text, 1);
            line->addWidget(keys);
            column->addLayout(line);
            ++inColumn;
            ++m_rows;
        }
    }
    if (column)
        column->addStretch(1);
}

} // namespace rankyard::ui
