// SPDX-License-Identifier: GPL-3.0-or-later
#include "ui/designer/figure_row.h"

#include "ui/designer/verdict_panel.h"

#include <QHBoxLayout>
#include <QKeyEvent>
#include <QLabel>
#include <QMouseEvent>
#include <QPainter>
#include <QVBoxLayout>

namespace rankyard::ui {

namespace {

class Swatch : public QWidget
{
public:
    Swatch(Kind kind, QWidget *parent) : QWidget(parent), m_kind(kind) { setFixedSize(9, 9); }

protected:
    void paintEvent(QPaintEvent *) override
    {
        QPainter(this).fillRect(rect(), Theme::instance().brush(Ink::of(m_kind)));
    }

private:
    Kind m_kind;
};

} // namespace

FigureRow::FigureRow(const predict::Figure &figure, QWidget *parent, std::optional<Kind> swatch)
    : QFrame(parent),
      m_key(figure.key),
      m_detail(new QLabel(this))
{
    setObjectName(QStringLiteral("figure"));
    setFocusPolicy(Qt::StrongFocus);
    setCursor(Qt::PointingHandCursor);
    auto *column = new QVBoxLayout(this);
    column->setContentsMargins(0, 2, 0, 2); // flush with the rest of its column
    column->setSpacing(4);
    auto *row = new QHBoxLayout;
    row->setSpacing(8);
    auto *name = new QLabel(QString::fromStdString(figure.name), this);
    name->setProperty("tone", "muted");
    name->setWordWrap(true);
    name->setProperty("data", true);
    auto *value = new QLabel(textOfFigure(figure), this);
    value->setProperty("data", true);
    setRole(value, FontRole::Mono);
    if (swatch)
        row->addWidget(new Swatch(*swatch, this));
    row->addWidget(name, 1);
    row->addWidget(value);
    column->addLayout(row);
    QStringList lines{QString::fromStdString(figure.formula)};
    for (const auto &[input, what] : figure.inputs)
        lines << QStringLiteral("  %1: %2").arg(QString::fromStdString(input), QString::fromStdString(what));
    lines << QString::fromStdString(figure.source);
    m_detail->setText(lines.join(QLatin1Char('\n')));
    m_detail->setWordWrap(true);
    m_detail->setProperty("tone", "muted");
    m_detail->setProperty("data", true);
    setRole(m_detail, FontRole::Small);
    m_detail->hide();
    column->addWidget(m_detail);
    setToolTip(tr("Opens the formula"));
    setAccessibleName(name->text() + QLatin1Char(' ') + value->text());
    setAccessibleDescription(m_detail->text());
}

void FigureRow::setOpen(bool open) { m_detail->setVisible(open); }

bool FigureRow::isOpen() const { return !m_detail->isHidden(); }

void FigureRow::mouseReleaseEvent(QMouseEvent *event)
{
    if (event->button() == Qt::LeftButton && rect().contains(event->position().toPoint()))
        setOpen(!isOpen());
}

void FigureRow::keyPressEvent(QKeyEvent *event)
{
    if (event->key() == Qt::Key_Space || event->key() == Qt::Key_Return || event->key() == Qt::Key_Enter)
        return setOpen(!isOpen());
    QFrame::keyPressEvent(event);
}

} // namespace rankyard::ui
