// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <QBrush>
#include <QColor>
#include <QFont>
#include <QObject>

#include <array>

class QWidget;

/// Colours, fonts and distances of the workbench. One table for both themes; widgets, charts and icons all read from it.
namespace rankyard::ui {

enum class Token {
    Background,
    Surface,
    Raised,
    Border,
    Text,
    Muted,
    Accent,
    Good,
    Warn,
    Bad,
    Bubble,
    Selection,
    OnAccent, ///< text on a filled accent
};
constexpr int tokenCount = 13;

/// What a block of time or memory is. A kind has the same colour on every page.
enum class Kind {
    Forward,
    InputGradient,
    WeightGradient,
    Recompute,
    TensorParallel,
    DataParallel,
    Pipeline,
    Copy,
    OptimizerStep,
    Bubble,
    Parameters,
    Gradients,
    OptimizerState,
    Activations,
    Gathered,
    Buckets,
    Workspace,
    Host,
};
constexpr int kindCount = 18;
constexpr int seriesCount = 7;

/// A colour by meaning, resolved when it is painted, so that a change of theme reaches everything.
struct Ink {
    enum class From { Token, Series, Kind };
    From from = From::Series;
    int index = 0;

    static Ink of(Token token) { return {From::Token, static_cast<int>(token)}; }
    static Ink of(Kind kind) { return {From::Kind, static_cast<int>(kind)}; }
    /// Series beyond the palette start again; the caller dashes them.
    static Ink series(int index) { return {From::Series, index}; }
    bool operator==(const Ink &) const = default;
};

enum class ThemeMode { System, Light, Dark };

/// Text roles. Sizes at 100 %: 12, 13, 16, 22.
enum class FontRole { Small, Body, Strong, Head, Title, Mono, MonoSmall };

/// The theme of the program: one object on the GUI thread. `apply` sets palette, style sheet and fonts on the application;
/// `changed` tells custom painters to draw again.
class Theme : public QObject
{
    Q_OBJECT
public:
    static Theme &instance();

    void setMode(ThemeMode mode);
    ThemeMode mode() const { return m_mode; }
    bool isDark() const { return m_dark; }
    /// 100 … 200.
    void setTextPercent(int percent);
    int textPercent() const { return m_percent; }
    /// Fusion, palette, fonts and style sheet. Call once after QApplication; later changes come by themselves.
    void apply();

    QColor color(Token token) const { return colorIn(token, m_dark); }
    QColor color(Ink ink) const;
    static QColor colorIn(Token token, bool dark);
    static QColor seriesIn(int index, bool dark);
    static QColor kindIn(Kind kind, bool dark);
    /// Plain or hatched: recompute, bubble and whatever must not be told by colour alone.
    QBrush brush(Ink ink, double alpha = 1) const;
    static bool isHatched(Ink ink);

    QFont font(FontRole role) const;
    /// Pixels that grow with the text size: heights of rows, widths of columns.
    int scaled(int pixels) const { return (pixels * m_percent + 50) / 100; }

signals:
    void changed();

private:
    Theme();
    QString styleSheet() const;

    ThemeMode m_mode = ThemeMode::System;
    bool m_dark = false;
    int m_percent = 100;
    bool m_applied = false;
    bool m_systemDark = false;
    QString m_text; ///< families that exist
    QString m_mono;
};

/// Gives a widget the font of a role through the style sheet: unlike setFont, it survives reparenting and changes of text size.
void setRole(QWidget *widget, FontRole role);

/// WCAG 2 contrast of two opaque colours, 1 … 21.
double contrast(const QColor &a, const QColor &b);
/// `over` painted with `alpha` on `under`.
QColor mixed(const QColor &under, const QColor &over, double alpha);

} // namespace rankyard::ui
