// SPDX-License-Identifier: GPL-3.0-or-later
#include "ui/common/theme.h"

#include "ui/common/icons.h"

#include <QApplication>
#include <QEvent>
#include <QFile>
#include <QFontDatabase>
#include <QPainter>
#include <QPalette>
#include <QPixmapCache>
#include <QStyleFactory>
#include <QWidget>

#include <algorithm>
#include <cmath>

namespace rankyard::ui {

namespace {

struct Pair {
    QRgb light;
    QRgb dark;
};

constexpr std::array<Pair, tokenCount> tokenTable = {{
    {0xFFF5F6F8, 0xFF131519}, // Background
    {0xFFFFFFFF, 0xFF1A1D23}, // Surface
    {0xFFFFFFFF, 0xFF23272F}, // Raised
    {0xFFD8DDE4, 0xFF323843}, // Border
    {0xFF1A2028, 0xFFE7EAF0}, // Text
    {0xFF5A6472, 0xFF9CA5B4}, // Muted
    {0xFF1F6FEB, 0xFF5AA2FF}, // Accent
    {0xFF1A7F57, 0xFF46C08F}, // Good
    {0xFF966400, 0xFFE3A93C}, // Warn
    {0xFFC0362C, 0xFFF0716A}, // Bad
    {0xFFAEB6C2, 0xFF596273}, // Bubble
    {0xFFDCE9FD, 0xFF22395A}, // Selection
    {0xFFFFFFFF, 0xFF0B1320}, // OnAccent
}};

constexpr std::array<Pair, seriesCount> seriesTable = {{
    {0xFF0072B2, 0xFF56A8E8},
    {0xFFD55E00, 0xFFFF8A3D},
    {0xFF009E73, 0xFF3CC79B},
    {0xFFA64D86, 0xFFD98BBE},
    {0xFFB8860B, 0xFFE6B93C},
    {0xFF5B5FC7, 0xFF9A9DF2},
    {0xFF7A7A7A, 0xFFA8A8A8},
}};

constexpr std::array<Pair, kindCount> kindTable = {{
    {0xFF0072B2, 0xFF4A9BDC}, // Forward: blue
    {0xFFD55E00, 0xFFF08A3E}, // InputGradient: orange
    {0xFFB58900, 0xFFF6C08F}, // WeightGradient: amber
    {0xFF0072B2, 0xFF4A9BDC}, // Recompute: blue, hatched
    {0xFFA64D86, 0xFFC97FB0}, // TensorParallel: purple
    {0xFF009E73, 0xFF3CC79B}, // DataParallel: green
    {0xFF2A8CC8, 0xFF7CC7F2}, // Pipeline: sky
    {0xFF7E8896, 0xFF8A93A1}, // Copy: grey
    {0xFF8C6239, 0xFFB58A5E}, // OptimizerStep: brown
    {0xFFAEB6C2, 0xFF596273}, // Bubble: hatched
    {0xFF0072B2, 0xFF4A9BDC}, // Parameters: blue
    {0xFFD55E00, 0xFFF08A3E}, // Gradients: orange
    {0xFF8C6239, 0xFFB58A5E}, // OptimizerState: brown
    {0xFF259896, 0xFF4FC3C0}, // Activations: teal
    {0xFF2A8CC8, 0xFF7CC7F2}, // Gathered: sky
    {0xFF009E73, 0xFF3CC79B}, // Buckets: green
    {0xFF7E8896, 0xFF8A93A1}, // Workspace: grey
    {0xFF5B5FC7, 0xFF9A9DF2}, // Host: violet
}};

QString firstFamily(std::initializer_list<const char *> names, const QString &fallback)
{
    const QStringList families = QFontDatabase::families();
    for (const char *name : names) {
        if (families.contains(QLatin1String(name)))
            return QLatin1String(name);
    }
    return fallback;
}

double luminance(const QColor &color)
{
    const auto linear = [](double c) {
        return c <= 0.03928 ? c / 12.92 : std::pow((c + 0.055) / 1.055, 2.4);
    };
    return 0.2126 * linear(color.redF()) + 0.7152 * linear(color.greenF()) + 0.0722 * linear(color.blueF());
}

} // namespace

double contrast(const QColor &a, const QColor &b)
{
    const double la = luminance(a);
    const double lb = luminance(b);
    return (std::max(la, lb) + 0.05) / (std::min(la, lb) + 0.05);
}

QColor mixed(const QColor &under, const QColor &over, double alpha)
{
    const auto mix = [alpha](double u, double o) { return u + (o - u) * alpha; };
    return QColor::fromRgbF(static_cast<float>(mix(under.redF(), over.redF())),
                            static_cast<float>(mix(under.greenF(), over.greenF())),
                            static_cast<float>(mix(under.blueF(), over.blueF())));
}

void setRole(QWidget *widget, FontRole role)
{
    static const char *const names[] = {"small", "body", "strong", "head", "title", "mono", "monosmall"};
    widget->setProperty("role", QLatin1String(names[static_cast<int>(role)]));
}

Theme &Theme::instance()
{
    static Theme theme;
    return theme;
}

Theme::Theme() = default;

QColor Theme::colorIn(Token token, bool dark)
{
    const Pair &pair = tokenTable[static_cast<std::size_t>(token)];
    return QColor(dark ? pair.dark : pair.light);
}

QColor Theme::seriesIn(int index, bool dark)
{
    const Pair &pair = seriesTable[static_cast<std::size_t>(index % seriesCount)];
    return QColor(dark ? pair.dark : pair.light);
}

QColor Theme::kindIn(Kind kind, bool dark)
{
    const Pair &pair = kindTable[static_cast<std::size_t>(kind)];
    return QColor(dark ? pair.dark : pair.light);
}

QColor Theme::color(Ink ink) const
{
    switch (ink.from) {
    case Ink::From::Token:
        return colorIn(static_cast<Token>(ink.index), m_dark);
    case Ink::From::Kind:
        return kindIn(static_cast<Kind>(ink.index), m_dark);
    case Ink::From::Series:
        break;
    }
    return seriesIn(ink.index, m_dark);
}

bool Theme::isHatched(Ink ink)
{
    return ink == Ink::of(Kind::Recompute) || ink == Ink::of(Kind::Bubble) || ink == Ink::of(Token::Bubble);
}

QBrush Theme::brush(Ink ink, double alpha) const
{
    QColor fill = color(ink);
    if (isHatched(ink)) {
        // The hatch carries the contrast; the fill alone would be too faint to tell.
        const int size = 8;
        QPixmap tile(size, size);
        tile.fill(mixed(color(Token::Surface), fill, 0.45));
        QPainter painter(&tile);
        painter.setRenderHint(QPainter::Antialiasing);
        painter.setPen(QPen(color(Token::Muted), 1));
        for (int offset : {-size, 0, size})
            painter.drawLine(QPointF(offset, size), QPointF(offset + size, 0));
        painter.end();
        return QBrush(tile);
    }
    fill.setAlphaF(static_cast<float>(alpha));
    return fill;
}

QFont Theme::font(FontRole role) const
{
    const bool mono = role == FontRole::Mono || role == FontRole::MonoSmall;
    QFont font(mono ? m_mono : m_text);
    if (mono)
        font.setStyleHint(QFont::Monospace, QFont::PreferMatch);
    int size = 13;
    switch (role) {
    case FontRole::Small:
    case FontRole::Mono:
        size = 12;
        break;
    case FontRole::MonoSmall:
        size = 11;
        break;
    case FontRole::Body:
    case FontRole::Strong:
        break;
    case FontRole::Head:
        size = 16;
        break;
    case FontRole::Title:
        size = 22;
        break;
    }
    font.setPixelSize(scaled(size));
    if (role == FontRole::Strong || role == FontRole::Head || role == FontRole::Title)
        font.setWeight(QFont::DemiBold);
    return font;
}

void Theme::setMode(ThemeMode mode)
{
    m_mode = mode;
    if (m_applied)
        apply();
}

void Theme::setTextPercent(int percent)
{
    m_percent = std::clamp(percent, 100, 200);
    if (m_applied)
        apply();
}

void Theme::apply()
{
    if (!m_applied) {
        m_applied = true;
        const QPalette before = QApplication::palette();
        m_systemDark =
            before.color(QPalette::Window).lightness() < before.color(QPalette::WindowText).lightness();
        QApplication::setStyle(QStyleFactory::create(QStringLiteral("Fusion")));
        m_text = firstFamily({"Inter", "Noto Sans", "DejaVu Sans"}, QStringLiteral("sans-serif"));
        m_mono = firstFamily({"JetBrains Mono", "Noto Sans Mono", "DejaVu Sans Mono"},
                             QStringLiteral("monospace"));
    }
    m_dark = m_mode == ThemeMode::Dark || (m_mode == ThemeMode::System && m_systemDark);

    QPalette palette;
    const auto set = [&](QPalette::ColorRole role, Token token) { palette.setColor(role, color(token)); };
    set(QPalette::Window, Token::Background);
    set(QPalette::WindowText, Token::Text);
    set(QPalette::Base, Token::Surface);
    set(QPalette::AlternateBase, Token::Background);
    set(QPalette::Text, Token::Text);
    set(QPalette::Button, Token::Raised);
    set(QPalette::ButtonText, Token::Text);
    set(QPalette::BrightText, Token::Bad);
    set(QPalette::ToolTipBase, Token::Raised);
    set(QPalette::ToolTipText, Token::Text);
    set(QPalette::PlaceholderText, Token::Muted);
    set(QPalette::Highlight, Token::Selection);
    set(QPalette::HighlightedText, Token::Text);
    set(QPalette::Link, Token::Accent);
    set(QPalette::LinkVisited, Token::Accent);
    set(QPalette::Light, Token::Raised);
    set(QPalette::Midlight, Token::Border);
    set(QPalette::Mid, Token::Border);
    set(QPalette::Dark, Token::Border);
    set(QPalette::Shadow, Token::Border);
    for (QPalette::ColorRole role : {QPalette::WindowText, QPalette::Text, QPalette::ButtonText})
        palette.setColor(QPalette::Disabled, role, mixed(color(Token::Surface), color(Token::Muted), 0.6));
    QApplication::setPalette(palette);
    QApplication::setFont(font(FontRole::Body));
    QPixmapCache::clear();
    qApp->setStyleSheet(styleSheet());
    emit changed();
}

QString Theme::styleSheet() const
{
    QFile file(QStringLiteral(":/rankyard/style/workbench.qss"));
    if (!file.open(QIODevice::ReadOnly))
        return {};
    QString sheet = QString::fromUtf8(file.readAll());
    static const std::pair<const char *, Token> names[] = {
        {"@background", Token::Background},
        {"@surface", Token::Surface},
        {"@raised", Token::Raised},
        {"@border", Token::Border},
        {"@text", Token::Text},
        {"@muted", Token::Muted},
        {"@accent", Token::Accent},
        {"@good", Token::Good},
        {"@warn", Token::Warn},
        {"@bad", Token::Bad},
        {"@selection", Token::Selection},
        {"@onaccent", Token::OnAccent},
    };
    for (const auto &[name, token] : names)
        sheet.replace(QLatin1String(name), color(token).name());
    sheet.replace(QLatin1String("@hover"),
                  mixed(color(Token::Raised), color(Token::Text), m_dark ? 0.08 : 0.05).name());
    sheet.replace(QLatin1String("@pressed"),
                  mixed(color(Token::Raised), color(Token::Text), m_dark ? 0.14 : 0.1).name());
    sheet.replace(QLatin1String("@disabled"), mixed(color(Token::Surface), color(Token::Muted), 0.6).name());
    sheet.replace(QLatin1String("@strongaccent"),
                  mixed(color(Token::Accent), color(Token::Text), 0.15).name());
    const auto fontOf = [this](FontRole role) {
        const QFont each = font(role);
        return QStringLiteral("font-family: \"%1\"; font-size: %2px; font-weight: %3;")
            .arg(each.family())
            .arg(each.pixelSize())
            .arg(each.weight());
    };
    const std::pair<const char *, FontRole> roles[] = {
        {"small", FontRole::Small}, {"body", FontRole::Body},   {"strong", FontRole::Strong},
        {"head", FontRole::Head},   {"title", FontRole::Title}, {"monosmall", FontRole::MonoSmall},
        {"mono", FontRole::Mono}};
    for (const auto &[name, role] : roles)
        sheet += QStringLiteral("*[role=\"%1\"] { %2 }\n").arg(QLatin1String(name), fontOf(role));
    sheet.replace(QLatin1String("@small"), QString::number(scaled(12)) + QLatin1String("px"));
    sheet.replace(QLatin1String("@body"), QString::number(scaled(13)) + QLatin1String("px"));
    sheet.replace(QLatin1String("@chevron"), iconFile(QStringLiteral("chevron"), color(Token::Muted)));
    sheet.replace(QLatin1String("@upchevron"), iconFile(QStringLiteral("chevron_up"), color(Token::Muted)));
    sheet.replace(QLatin1String("@check"), iconFile(QStringLiteral("check"), color(Token::OnAccent)));
    return sheet;
}

} // namespace rankyard::ui
