// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <QTranslator>

namespace rankyard::ui {

/// The sources are English, and written for many: this says what they are for one ("%n ranks" → "1 rank").
class English : public QTranslator
{
    Q_OBJECT
public:
    using QTranslator::QTranslator;
    bool isEmpty() const override { return false; }
    QString translate(const char *context, const char *source, const char *disambiguation,
                      int count) const override;
    /// Null when there is none.
    static const char *singularOf(const char *source);
};

} // namespace rankyard::ui
