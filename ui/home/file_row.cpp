// SPDX-License-Identifier: GPL-3.0-or-later
#include "ui/home/file_row.h"

#include "ui/common/icons.h"
#include "ui/common/theme.h"

#include <QDir>
#include <QFileInfo>
#include <QPainter>

#include <algorithm>

namespace rankyard::ui {

FileRow::FileRow(const QString &file, QWidget *parent) : QAbstractButton(parent), m_file(file)
{
    const QFileInfo info(file);
    m_name = info.fileName();
    m_folder = info.absolutePath();
    if (const QString home = QDir::homePath();
        m_folder == home || m_folder.startsWith(home + QLatin1Char('/')))
        m_folder.replace(0, home.size(), QStringLiteral("~"));
    setFocusPolicy(Qt::StrongFocus);
    setCursor(Qt::PointingHandCursor);
    setSizePolicy(QSizePolicy::Expanding, QSizePolicy::Fixed);
    setAttribute(Qt::WA_Hover);
    setAccessibleName(tr("Open %1").arg(m_name));
    setToolTip(QDir::toNativeSeparators(file));
    connect(&Theme::instance(), &Theme::changed, this, [this] {
        updateGeometry();
        update();
    });
}

QSize FileRow::sizeHint() const { return {200, Theme::instance().scaled(32)}; }

void FileRow::paintEvent(QPaintEvent *)
{
    const Theme &theme = Theme::instance();
    QPainter painter(this);
    painter.setRenderHint(QPainter::Antialiasing);
    if (underMouse())
        painter.fillRect(rect(), mixed(theme.color(Token::Surface), theme.color(Token::Text), 0.035));
    const int size = theme.scaled(16);
    paintIcon(painter, QStringLiteral("design"), QRectF(12, (height() - size) / 2.0, size, size),
              theme.color(Token::Muted));
    const QFont body = theme.font(FontRole::Body);
    const QFont small = theme.font(FontRole::Small);
    const QFontMetrics bodyMetrics(body);
    const QFontMetrics smallMetrics(small);
    const int left = 12 + size + 10;
    const int room = width() - left - 12;
    const int nameWidth =
        std::min(bodyMetrics.horizontalAdvance(m_name) + 2, std::max(room - theme.scaled(80), room * 2 / 3));
    painter.setFont(body);
    painter.setPen(theme.color(Token::Text));
    painter.drawText(QRect(left, 0, nameWidth, height()), Qt::AlignVCenter | Qt::AlignLeft,
                     bodyMetrics.elidedText(m_name, Qt::ElideMiddle, nameWidth));
    const int rest = room - nameWidth - 12;
    painter.setFont(small);
    painter.setPen(theme.color(Token::Muted));
    painter.drawText(QRect(left + nameWidth + 12, 0, rest, height()), Qt::AlignVCenter | Qt::AlignRight,
                     smallMetrics.elidedText(m_folder, Qt::ElideMiddle, rest));
    if (hasFocus()) {
        painter.setPen(QPen(theme.color(Token::Accent), 1.5));
        painter.setBrush(Qt::NoBrush);
        painter.drawRoundedRect(QRectF(rect()).adjusted(2, 2, -2, -2), 5, 5);
    }
}

} // namespace rankyard::ui
