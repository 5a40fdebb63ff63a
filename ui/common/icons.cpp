// SPDX-License-Identifier: GPL-3.0-or-later
#include "ui/common/icons.h"

#include <QFile>
#include <QHash>
#include <QIconEngine>
#include <QPainter>
#include <QSvgRenderer>
#include <QTemporaryDir>

#include <memory>

namespace rankyard::ui {

namespace {

QByteArray source(const QString &name)
{
    static QHash<QString, QByteArray> cache;
    auto found = cache.constFind(name);
    if (found != cache.constEnd())
        return *found;
    QFile file(QStringLiteral(":/rankyard/icons/") + name + QStringLiteral(".svg"));
    QByteArray bytes;
    if (file.open(QIODevice::ReadOnly))
        bytes = file.readAll();
    else
        qWarning("no icon named %s", qPrintable(name));
    cache.insert(name, bytes);
    return bytes;
}

QSvgRenderer &renderer(const QString &name, const QColor &color)
{
    static QHash<QString, std::shared_ptr<QSvgRenderer>> cache;
    auto &entry = cache[name + color.name()];
    if (!entry) {
        QByteArray svg = source(name);
        svg.replace("currentColor", color.name().toLatin1());
        entry = std::make_shared<QSvgRenderer>(svg);
    }
    return *entry;
}

class TintedEngine : public QIconEngine
{
public:
    TintedEngine(QString name, Token tint) : m_name(std::move(name)), m_tint(tint) {}

    void paint(QPainter *painter, const QRect &rect, QIcon::Mode mode, QIcon::State state) override
    {
        const Theme &theme = Theme::instance();
        QColor color = theme.color(m_tint);
        if (mode == QIcon::Disabled)
            color = mixed(theme.color(Token::Surface), theme.color(Token::Muted), 0.5);
        else if (state == QIcon::On)
            color = theme.color(Token::Accent);
        paintIcon(*painter, m_name, rect, color);
    }

    QPixmap pixmap(const QSize &size, QIcon::Mode mode, QIcon::State state) override
    {
        QPixmap map(size);
        map.fill(Qt::transparent);
        QPainter painter(&map);
        paint(&painter, QRect(QPoint(), size), mode, state);
        return map;
    }

    QIconEngine *clone() const override { return new TintedEngine(m_name, m_tint); }
    bool isNull() override { return source(m_name).isEmpty(); }

private:
    QString m_name;
    Token m_tint;
};

} // namespace

QIcon icon(const QString &name, Token tint) { return QIcon(new TintedEngine(name, tint)); }

void paintIcon(QPainter &painter, const QString &name, const QRectF &rect, const QColor &color)
{
    painter.save();
    painter.setRenderHint(QPainter::Antialiasing);
    const double side = std::min(rect.width(), rect.height());
    renderer(name, color)
        .render(&painter, QRectF(rect.center().x() - side / 2, rect.center().y() - side / 2, side, side));
    painter.restore();
}

QPixmap iconPixmap(const QString &name, const QColor &color, int size, double ratio)
{
    QPixmap map(QSize(size, size) * ratio);
    map.setDevicePixelRatio(ratio);
    map.fill(Qt::transparent);
    QPainter painter(&map);
    paintIcon(painter, name, QRectF(0, 0, size, size), color);
    return map;
}

bool hasIcon(const QString &name)
{
    return QFile::exists(QStringLiteral(":/rankyard/icons/") + name + QStringLiteral(".svg"));
}

QString iconFile(const QString &name, const QColor &color)
{
    static QTemporaryDir folder;
    const QString path = folder.filePath(name + color.name().mid(1) + QStringLiteral(".svg"));
    if (!QFile::exists(path)) {
        QByteArray svg = source(name);
        svg.replace("currentColor", color.name().toLatin1());
        QFile file(path);
        if (file.open(QIODevice::WriteOnly))
            file.write(svg);
    }
    return path;
}

} // namespace rankyard::ui
