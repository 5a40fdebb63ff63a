// SPDX-License-Identifier: GPL-3.0-or-later
#include "ui/designer/axis_board.h"

#include "ui/common/format.h"
#include "ui/common/rows.h"
#include "ui/common/theme.h"

#include <QLabel>
#include <QSignalBlocker>
#include <QSlider>
#include <QVBoxLayout>

#include <algorithm>

namespace rankyard::ui {

namespace {

constexpr int dpAxis = 3;

std::string pathOf(int axis)
{
    return std::string("layout.") + FactorBoard::names[static_cast<std::size_t>(axis)];
}

std::string change(int axis, std::int64_t size) { return pathOf(axis) + "=" + std::to_string(size); }

std::vector<std::int64_t> divisors(std::int64_t value)
{
    std::vector<std::int64_t> list;
    for (std::int64_t d = 1; d * d <= value; ++d) {
        if (value % d != 0)
            continue;
        list.push_back(d);
        if (d != value / d)
            list.push_back(value / d);
    }
    return list;
}

} // namespace

AxisBoard::AxisBoard(DesignDocument *document, QWidget *parent)
    : QWidget(parent),
      m_document(document),
      m_equation(new QLabel(this)),
      m_factors(new FactorBoard(this))
{
    auto *column = new QVBoxLayout(this);
    column->setContentsMargins(0, 0, 0, 0);
    column->setSpacing(8);
    setRole(m_equation, FontRole::Mono);
    m_equation->setProperty("data", true);
    m_equation->setWordWrap(true);
    column->addWidget(m_equation);
    column->addWidget(m_factors);
    const std::array<QString, FactorBoard::axes> labels = {tr("Tensor"), tr("Context"), tr("Pipeline"),
                                                           tr("Data")};
    for (int axis = 0; axis < FactorBoard::axes; ++axis) {
        const auto i = static_cast<std::size_t>(axis);
        m_rows[i] = new FieldRow(document, pathOf(axis), labels[i], FieldRow::Editor::Value, this);
        m_sliders[i] = new QSlider(Qt::Horizontal, this);
        m_sliders[i]->setAccessibleName(tr("%1 parallel ranks").arg(labels[i]));
        m_sliders[i]->setPageStep(1);
        m_sliders[i]->setMinimumWidth(40);
        m_rows[i]->insert(m_sliders[i], 64);
        column->addWidget(m_rows[i]);
        connect(m_sliders[i], &QSlider::valueChanged, this, [this, axis](int at) { slide(axis, at); });
        connect(m_sliders[i], &QSlider::sliderPressed, this,
                [this, axis] { m_heldRanks = size(axis) * size(dpAxis); });
        connect(m_sliders[i], &QSlider::sliderReleased, document, &DesignDocument::closeMerge);
    }
    connect(m_factors, &FactorBoard::moved, this, [this](int from, int to) {
        const auto &sizes = m_factors->sizes();
        m_document->apply(
            {change(from, sizes[static_cast<std::size_t>(from)]),
             change(to, sizes[static_cast<std::size_t>(to)])},
            tr("Move a factor to %1").arg(QLatin1String(FactorBoard::names[static_cast<std::size_t>(to)])),
            QStringLiteral("drag a factor"));
    });
    connect(m_factors, &FactorBoard::dropped, document, &DesignDocument::closeMerge);
    refresh();
}

std::int64_t AxisBoard::size(int axis) const
{
    const Json value = m_document->value(pathOf(axis));
    return value.is_number_integer() ? std::clamp<std::int64_t>(value.get<std::int64_t>(), 1, 65536) : 1;
}

std::vector<FieldRow *> AxisBoard::rows() const { return {m_rows.begin(), m_rows.end()}; }

QString AxisBoard::equation() const { return m_equation->text(); }

void AxisBoard::setPlaces(int places, bool gpus)
{
    m_places = places;
    m_gpus = gpus;
    refresh();
}

std::vector<std::int64_t> AxisBoard::legal(int axis) const
{
    std::int64_t world = 1;
    for (int each = 0; each < FactorBoard::axes; ++each)
        world *= size(each);
    world = std::min<std::int64_t>(world, 1 << 20);
    const auto whole = [this](const char *path, std::int64_t fallback) {
        const Json value = m_document->value(path);
        return value.is_number_integer() ? std::max<std::int64_t>(1, value.get<std::int64_t>()) : fallback;
    };
    const std::int64_t heads = whole("model.heads", 1);
    const std::int64_t layers = whole("model.layers", 1);
    const std::int64_t seq = whole("model.seq", 1);
    const std::int64_t replica =
        std::max<std::int64_t>(1, whole("batch.global", 1) / whole("batch.micro", 1));
    std::vector<std::int64_t> list = divisors(world);
    if (m_places > 0) {
        const std::vector<std::int64_t> more = divisors(m_places);
        list.insert(list.end(), more.begin(), more.end());
    }
    std::erase_if(list, [&](std::int64_t value) {
        switch (axis) {
        case 0:
            return heads % value != 0;
        case 1:
            return seq % (2 * value) != 0;
        case 2:
            return value > layers;
        default:
            return replica % value != 0;
        }
    });
    list.push_back(size(axis));
    std::sort(list.begin(), list.end());
    list.erase(std::unique(list.begin(), list.end()), list.end());
    return list;
}

void AxisBoard::slide(int axis, int at)
{
    const std::int64_t now = m_legal[static_cast<std::size_t>(axis)][static_cast<std::size_t>(at)];
    std::vector<std::string> changes = {change(axis, now)};
    // dp takes what the others leave, when that is a whole number; of what there was before the drag.
    const bool held = m_sliders[static_cast<std::size_t>(axis)]->isSliderDown();
    const std::int64_t both = held ? m_heldRanks : size(axis) * size(dpAxis);
    if (axis != dpAxis && both % now == 0)
        changes.push_back(change(dpAxis, both / now));
    m_document->apply(changes,
                      tr("Slide %1").arg(QLatin1String(FactorBoard::names[static_cast<std::size_t>(axis)])),
                      QStringLiteral("slide ") + QString::fromStdString(pathOf(axis)));
}

void AxisBoard::refresh()
{
    std::array<std::int64_t, FactorBoard::axes> sizes{};
    QStringList terms;
    std::int64_t world = 1;
    for (int axis = 0; axis < FactorBoard::axes; ++axis) {
        const auto i = static_cast<std::size_t>(axis);
        sizes[i] = size(axis);
        world = std::min<std::int64_t>(world * sizes[i], 1LL << 40);
        m_rows[i]->refresh();
        QSlider *slider = m_sliders[i];
        const QSignalBlocker quiet(slider);
        // A slider that is held keeps its marks: they would move under the pointer.
        if (!slider->isSliderDown())
            m_legal[i] = legal(axis);
        slider->setRange(0, static_cast<int>(m_legal[i].size()) - 1);
        const auto found = std::find(m_legal[i].begin(), m_legal[i].end(), sizes[i]);
        if (found != m_legal[i].end())
            slider->setValue(static_cast<int>(found - m_legal[i].begin()));
        slider->setEnabled(m_legal[i].size() > 1);
        QStringList offers;
        for (const std::int64_t value : m_legal[i])
            offers << QString::number(value);
        slider->setToolTip(tr("Legal here: %1").arg(offers.join(QStringLiteral(", "))));
        terms << QStringLiteral("%1 %2").arg(QLatin1String(FactorBoard::names[i])).arg(sizes[i]);
    }
    m_factors->setSizes(sizes);
    QString text = terms.join(QStringLiteral(" × ")) + QStringLiteral(" = ") + formatStep(world);
    const char *tone = "";
    if (m_places > 0 && world > m_places) {
        text += m_gpus ? tr(", and there are %1 GPUs").arg(formatStep(m_places))
                       : tr(", and there are %1 cores").arg(formatStep(m_places));
        tone = "bad";
    } else if (m_places > 0 && m_gpus) {
        text += world == m_places ? tr(", all GPUs") : tr(" of %1 GPUs").arg(formatStep(m_places));
        tone = world == m_places ? "good" : "warn";
    }
    m_equation->setText(text);
    setTone(m_equation, tone);
}

} // namespace rankyard::ui
