// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <QAbstractButton>
#include <QString>

namespace rankyard::ui {

/// One file as a line that opens it: its name, and the folder that it lies in.
class FileRow : public QAbstractButton
{
    Q_OBJECT
public:
    explicit FileRow(const QString &file, QWidget *parent = nullptr);
    const QString &file() const { return m_file; }
    QSize sizeHint() const override;

protected:
    void paintEvent(QPaintEvent *event) override;

private:
    QString m_file;
    QString m_name;
    QString m_folder; ///< with "~" for the home
};

} // namespace rankyard::ui
