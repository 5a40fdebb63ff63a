// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "ui/common/theme.h"

#include <QIcon>
#include <QPixmap>
#include <QString>

namespace rankyard::ui {

/// A line icon of resources/icons, tinted when it is painted: it follows the theme and any device pixel ratio.
/// Disabled icons are faint; checked ones take the accent.
QIcon icon(const QString &name, Token tint = Token::Muted);
QPixmap iconPixmap(const QString &name, const QColor &color, int size, double ratio);
/// Draws into `rect` of the painter.
void paintIcon(QPainter &painter, const QString &name, const QRectF &rect, const QColor &color);
bool hasIcon(const QString &name);
/// A file with the tinted icon, for style sheets, which know only files. Lives as long as the program.
QString iconFile(const QString &name, const QColor &color);

} // namespace rankyard::ui
