// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/store/run_store.h"
#include "ui/data/job_summary.h"

#include <QAbstractButton>

#include <vector>

namespace rankyard::ui {

/// One run as a line that opens it: state, name, layout, how its loss fell, where it stands.
class RunRow : public QAbstractButton
{
    Q_OBJECT
public:
    explicit RunRow(QWidget *parent = nullptr);
    void setNow(std::int64_t nowNs); ///< what its age is told by
    void setRun(const store::RunInfo &run, std::int64_t nowNs);
    /// A larger row with the loss curve over its whole width.
    void setTall(bool tall);
    void setPreview(std::vector<double> losses);
    const store::RunInfo &run() const { return m_run; }
    QSize sizeHint() const override;

protected:
    void paintEvent(QPaintEvent *event) override;

private:
    void paintCurve(QPainter &painter, const QRectF &area) const;

    store::RunInfo m_run;
    JobSummary m_job;
    std::vector<double> m_losses;
    std::int64_t m_now = 0;
    bool m_tall = false;
};

} // namespace rankyard::ui
