// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "ui/common/theme.h"

#include <QAbstractButton>

namespace rankyard::ui {

/// A rounded label: state of a run, "following", "paused, 120 new". With setClickable it is a button.
class Chip : public QAbstractButton
{
    Q_OBJECT
public:
    explicit Chip(QWidget *parent = nullptr);

    /// `iconName` may be empty; the border takes the tone too unless it is Muted.
    void setLook(const QString &text, Token tone, const QString &iconName = {});
    void setClickable(bool clickable);

    QSize sizeHint() const override;
    QSize minimumSizeHint() const override { return sizeHint(); }

protected:
    void paintEvent(QPaintEvent *event) override;

private:
    Token m_tone = Token::Muted;
    QString m_icon;
    bool m_clickable = false;
};

} // namespace rankyard::ui
