// SPDX-License-Identifier: GPL-3.0-or-later
#include "ui/runs/run_delegate.h"

#include "ui/common/icons.h"
#include "ui/runs/runs_model.h"

#include <QPainter>

#include <algorithm>

namespace rankyard::ui {

namespace {

constexpr int inset = 8; ///< between a cell's edge and what is in it
constexpr int gap = 12;  ///< between icon or bar and text
constexpr int shortestBar = 40;

/// Of the words beside the bar; those of most runs are alike, so that their bars are.
int progressWidth(const QString &text)
{
    const QFontMetrics metrics(Theme::instance().font(FontRole::Mono));
    return std::max(metrics.horizontalAdvance(QStringLiteral("00,000 / 00,000")),
                    metrics.horizontalAdvance(text));
}

} // namespace

void RunDelegate::paint(QPainter *painter, const QStyleOptionViewItem &option, const QModelIndex &index) const
{
    const Theme &theme = Theme::instance();
    painter->save();
    painter->setRenderHint(QPainter::Antialiasing);
    const QRect rect = option.rect;
    const bool selected = option.state & QStyle::State_Selected;
    if (selected)
        painter->fillRect(rect, theme.color(Token::Selection));
    else if (option.state & QStyle::State_MouseOver)
        painter->fillRect(rect, mixed(theme.color(Token::Surface), theme.color(Token::Text), 0.035));
    painter->setPen(QPen(mixed(theme.color(Token::Surface), theme.color(Token::Border), 0.7), 1));
    painter->drawLine(rect.left(), rect.bottom(), rect.right(), rect.bottom());
    const QRect inner = rect.adjusted(inset, 0, -inset, 0);
    const QString text = index.data().toString();
    const int column = index.column();
    if (column == RunsModel::State) {
        const QColor tone = theme.color(static_cast<Token>(index.data(RunsModel::ToneRole).toInt()));
        const int size = theme.scaled(16);
        paintIcon(*painter, index.data(RunsModel::IconRole).toString(),
                  QRectF(inner.left() + 4, inner.center().y() - size / 2.0 + 0.5, size, size), tone);
        painter->setFont(theme.font(FontRole::Body));
        // The word stays readable on the selection; the icon carries the tone.
        painter->setPen(selected ? theme.color(Token::Text) : tone);
        painter->drawText(
            inner.adjusted(size + gap, 0, 0, 0), Qt::AlignVCenter | Qt::AlignLeft,
            QFontMetrics(painter->font()).elidedText(text, Qt::ElideRight, inner.width() - size - gap));
    } else if (column == RunsModel::Progress) {
        const double fraction = index.data(RunsModel::FractionRole).toDouble();
        const QFont font = theme.font(FontRole::Mono);
        const int bar = std::max(shortestBar, inner.width() - progressWidth(text) - gap);
        const QRectF track(inner.left(), rect.center().y() - 2, bar, 4);
        painter->setPen(Qt::NoPen);
        painter->setBrush(theme.color(Token::Border));
        painter->drawRoundedRect(track, 2, 2);
        painter->setBrush(index.data(RunsModel::LiveRole).toBool() ? theme.color(Token::Good)
                              : fraction >= 1                      ? theme.color(Token::Accent)
                                                                   : theme.color(Token::Muted));
        painter->drawRoundedRect(QRectF(track.left(), track.top(),
                                        std::max(fraction > 0 ? 4.0 : 0.0, track.width() * fraction), 4),
                                 2, 2);
        painter->setFont(font);
        painter->setPen(theme.color(Token::Muted));
        painter->drawText(inner.adjusted(bar + gap, 0, 0, 0), Qt::AlignVCenter | Qt::AlignLeft, text);
    } else {
        const bool mono = column != RunsModel::Name;
        painter->setFont(theme.font(mono ? FontRole::Mono : FontRole::Body));
        QFont font = painter->font();
        if (column == RunsModel::Name)
            font.setWeight(QFont::Medium);
        painter->setFont(font);
        const bool faint =
            column == RunsModel::Started || column == RunsModel::Length || column == RunsModel::Layout;
        painter->setPen(theme.color(faint                              ? Token::Muted
                                        : text == QLatin1String("NaN") ? Token::Bad
                                                                       : Token::Text));
        const auto align = index.data(Qt::TextAlignmentRole).value<Qt::Alignment>();
        painter->drawText(inner, align, QFontMetrics(font).elidedText(text, Qt::ElideRight, inner.width()));
    }
    if (option.state & QStyle::State_HasFocus) {
        painter->setPen(QPen(theme.color(Token::Accent), 1));
        painter->setBrush(Qt::NoBrush);
        painter->drawRoundedRect(QRectF(rect).adjusted(1.5, 1.5, -1.5, -2.5), 3, 3);
    }
    painter->restore();
}

QSize RunDelegate::sizeHint(const QStyleOptionViewItem &, const QModelIndex &index) const
{
    const Theme &theme = Theme::instance();
    const QString text = index.data().toString();
    int width = 0;
    switch (index.column()) {
    case RunsModel::State:
        width = theme.scaled(16) + gap + QFontMetrics(theme.font(FontRole::Body)).horizontalAdvance(text);
        break;
    case RunsModel::Progress:
        width = shortestBar + gap + progressWidth(text);
        break;
    default:
        width = QFontMetrics(theme.font(FontRole::Mono)).horizontalAdvance(text);
    }
    return {width + 2 * inset + 1, theme.scaled(34)};
}

} // namespace rankyard::ui
