// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "ui/common/theme.h"

#include <QFrame>

class QLabel;
class QPushButton;

namespace rankyard::ui {

/// One line above a page: why a run failed, what is still loading, that the data are old. Hidden when there is nothing to say.
class Banner : public QFrame
{
    Q_OBJECT
public:
    explicit Banner(QWidget *parent = nullptr);
    void show(const QString &iconName, Token tone, const QString &text, const QString &verb = {});
    void clear();
    QString text() const;

signals:
    void acted();

protected:
    void paintEvent(QPaintEvent *event) override;

private:
    void restyle();

    QString m_icon;
    Token m_tone = Token::Muted;
    QLabel *m_picture;
    QLabel *m_text;
    QPushButton *m_verb;
};

} // namespace rankyard::ui
