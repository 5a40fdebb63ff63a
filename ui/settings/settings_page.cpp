// SPDX-License-Identifier: GPL-3.0-or-later
#include "ui/settings/settings_page.h"

#include "engine/base/build_id.h"
#include "ui/common/actions.h"
#include "ui/common/panel.h"
#include "ui/common/segmented.h"
#include "ui/common/settings.h"
#include "ui/common/shortcut_table.h"
#include "ui/common/theme.h"

#include <QClipboard>
#include <QGridLayout>
#include <QGuiApplication>
#include <QHBoxLayout>
#include <QLabel>
#include <QPushButton>
#include <QScrollArea>
#include <QSignalBlocker>
#include <QSlider>
#include <QVBoxLayout>

#include <cmath>

namespace rankyard::ui {

namespace {

/// Rows of a form: name and explanation at the left, control at the right.
class Form
{
public:
    explicit Form(Panel *panel)
    {
        panel->headLayout()->addStretch(1);
        m_grid = new QGridLayout;
        m_grid->setContentsMargins(12, 4, 12, 14);
        m_grid->setHorizontalSpacing(24);
        m_grid->setVerticalSpacing(16);
        m_grid->setColumnStretch(0, 1);
        panel->body()->addLayout(m_grid);
        panel->body()->addStretch(1);
    }

    void add(const QString &name, const QString &hint, QWidget *control, bool below = false)
    {
        auto *text = new QVBoxLayout;
        text->setSpacing(2);
        text->addWidget(new QLabel(name));
        if (!hint.isEmpty()) {
            auto *label = new QLabel(hint);
            label->setWordWrap(true);
            label->setProperty("tone", "muted");
            setRole(label, FontRole::Small);
            text->addWidget(label);
        }
        if (below) {
            text->addSpacing(4);
            text->addWidget(control);
            m_grid->addLayout(text, m_row++, 0, 1, 2);
        } else {
            m_grid->addLayout(text, m_row, 0);
            m_grid->addWidget(control, m_row++, 1, Qt::AlignRight | Qt::AlignVCenter);
        }
    }

private:
    QGridLayout *m_grid;
    int m_row = 0;
};

} // namespace

SettingsPage::SettingsPage(Settings *settings, ActionRegistry *registry, const QString &storeFile,
                           QWidget *parent)
    : QWidget(parent),
      m_settings(settings),
      m_registry(registry)
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
    auto *outermost = new QVBoxLayout(content);
    outermost->setContentsMargins(12, 12, 12, 12);
    outermost->setSpacing(12);
    auto *row = new QHBoxLayout;
    row->setSpacing(12);
    auto *left = new QVBoxLayout;
    left->setSpacing(12);
    left->addWidget(look());
    left->addWidget(charts(), 1);
    auto *right = new QVBoxLayout;
    right->setSpacing(12);
    right->addWidget(data(storeFile));
    right->addWidget(about(), 1);
    row->addLayout(left, 1);
    row->addLayout(right, 1);
    outermost->addLayout(row);
    // Large text has no room for two columns.
    const auto turn = [row] {
        row->setDirection(Theme::instance().textPercent() <= 140 ? QBoxLayout::LeftToRight
                                                                 : QBoxLayout::TopToBottom);
    };
    connect(&Theme::instance(), &Theme::changed, this, turn);
    turn();
    auto *keys = new Panel(tr("Keyboard shortcuts"));
    keys->headLayout()->addStretch(1);
    m_keys = new ShortcutTable(registry);
    keys->body()->addWidget(m_keys);
    keys->body()->addStretch(1);
    outermost->addWidget(keys, 1);
}

Panel *SettingsPage::look()
{
    auto *panel = new Panel(tr("Look"));
    Form form(panel);
    auto *theme = new Segmented(tr("Theme"), {tr("System"), tr("Light"), tr("Dark")});
    theme->setCurrent(static_cast<int>(m_settings->themeMode()));
    connect(theme, &Segmented::changed, this,
            [this](int index) { m_settings->setThemeMode(static_cast<ThemeMode>(index)); });
    form.add(tr("Theme"), tr("Changes at once, charts included."), theme);

    auto *holder = new QWidget;
    auto *line = new QHBoxLayout(holder);
    line->setContentsMargins(0, 0, 0, 0);
    auto *slider = new QSlider(Qt::Horizontal);
    slider->setRange(10, 20);
    slider->setPageStep(1);
    slider->setTickInterval(1);
    slider->setAccessibleName(tr("Text size"));
    slider->setMinimumWidth(160);
    auto *value = new QLabel;
    setRole(value, FontRole::Mono);
    const auto say = [value](int percent) { value->setText(QStringLiteral("%1 %").arg(percent)); };
    slider->setValue(m_settings->textPercent() / 10);
    say(m_settings->textPercent());
    // Text grows when the handle is let go, or at once by keys: a slider that moves under the pointer cannot be used.
    connect(slider, &QSlider::valueChanged, this, [this, slider, say](int tenth) {
        say(tenth * 10);
        if (!slider->isSliderDown())
            m_settings->setTextPercent(tenth * 10);
    });
    connect(slider, &QSlider::sliderReleased, this,
            [this, slider] { m_settings->setTextPercent(slider->value() * 10); });
    line->addWidget(slider);
    line->addWidget(value);
    form.add(tr("Text size"), tr("Of everything, from 100 to 200 %."), holder);
    connect(m_settings, &Settings::changed, this, [this, theme, slider, say] {
        theme->setCurrent(static_cast<int>(m_settings->themeMode()));
        const QSignalBlocker blocker(slider);
        slider->setValue(m_settings->textPercent() / 10);
        say(m_settings->textPercent());
    });
    return panel;
}

Panel *SettingsPage::charts()
{
    auto *panel = new Panel(tr("Charts"));
    Form form(panel);
    auto *holder = new QWidget;
    auto *line = new QHBoxLayout(holder);
    line->setContentsMargins(0, 0, 0, 0);
    auto *slider = new QSlider(Qt::Horizontal);
    slider->setRange(0, 99);
    slider->setAccessibleName(tr("Smoothing"));
    slider->setMinimumWidth(160);
    auto *value = new QLabel;
    setRole(value, FontRole::Mono);
    const auto say = [value](double weight) { value->setText(QString::number(weight, 'f', 2)); };
    slider->setValue(static_cast<int>(std::lround(m_settings->smoothing() * 100)));
    say(m_settings->smoothing());
    connect(slider, &QSlider::valueChanged, this,
            [this](int percent) { m_settings->setSmoothing(percent / 100.0); });
    line->addWidget(slider);
    line->addWidget(value);
    form.add(tr("Smoothing"),
             tr("Weight of the debiased moving average. The raw line always stays behind it."), holder);
    auto *columns = new Segmented(
        tr("Columns"),
        {tr("Auto"), QStringLiteral("1"), QStringLiteral("2"), QStringLiteral("3"), QStringLiteral("4")});
    columns->setCurrent(m_settings->columns());
    connect(columns, &Segmented::changed, m_settings, &Settings::setColumns);
    form.add(tr("Columns in the Monitor"), tr("Auto chooses by the width of the window."), columns);
    connect(m_settings, &Settings::changed, this, [this, slider, say, columns] {
        slider->setValue(static_cast<int>(std::lround(m_settings->smoothing() * 100)));
        say(m_settings->smoothing());
        columns->setCurrent(m_settings->columns());
    });
    return panel;
}

Panel *SettingsPage::data(const QString &storeFile)
{
    auto *panel = new Panel(tr("Data"));
    Form form(panel);
    auto *holder = new QWidget;
    auto *line = new QHBoxLayout(holder);
    line->setContentsMargins(0, 0, 0, 0);
    line->setSpacing(12);
    auto *path = new QLabel(storeFile);
    path->setProperty("data", true);
    path->setWordWrap(true);
    path->setTextInteractionFlags(Qt::TextSelectableByMouse | Qt::TextSelectableByKeyboard);
    path->setAccessibleName(tr("Path of the run store"));
    setRole(path, FontRole::Mono);
    auto *copy = new QPushButton(tr("Copy path"));
    connect(copy, &QPushButton::clicked, this,
            [storeFile] { QGuiApplication::clipboard()->setText(storeFile); });
    line->addWidget(path, 1);
    line->addWidget(copy);
    form.add(
        tr("Run store"),
        tr("Metrics, logs and events of every run that this machine has seen. Checkpoints lie in each run's own folder."),
        holder, true);
    return panel;
}

Panel *SettingsPage::about()
{
    auto *panel = new Panel(tr("About"));
    Form form(panel);
    const auto mono = [](const QString &text) {
        auto *label = new QLabel(text);
        label->setTextInteractionFlags(Qt::TextSelectableByMouse);
        setRole(label, FontRole::Mono);
        return label;
    };
    form.add(tr("Rankyard"), tr("A workbench for distributed LLM training."),
             mono(QString::fromLatin1(buildId())));
    form.add(tr("Licence"), tr("GPL-3.0-or-later. Charts by QCustomPlot, interface by Qt."),
             mono(QStringLiteral("Qt %1").arg(QString::fromLatin1(qVersion()))));
    QAction *sheet = m_registry->action(QStringLiteral("help.sheet"));
    auto *button = new QPushButton(tr("Show shortcuts"));
    button->setToolTip(sheet->toolTip());
    connect(button, &QPushButton::clicked, sheet, &QAction::trigger);
    form.add(tr("Keyboard"), tr("Everything can be reached without a mouse."), button);
    return panel;
}

void SettingsPage::showEvent(QShowEvent *event)
{
    QWidget::showEvent(event);
    m_keys->fill();
}

} // namespace rankyard::ui
