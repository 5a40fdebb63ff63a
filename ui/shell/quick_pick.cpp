// SPDX-License-Identifier: GPL-3.0-or-later
#include "ui/shell/quick_pick.h"

#include "ui/common/actions.h"
#include "ui/common/icons.h"

#include <QApplication>
#include <QKeyEvent>
#include <QLabel>
#include <QLineEdit>
#include <QListView>
#include <QPainter>
#include <QPointer>
#include <QStyledItemDelegate>
#include <QVBoxLayout>

#include <algorithm>

namespace rankyard::ui {

namespace {

class PickDelegate : public QStyledItemDelegate
{
public:
    using QStyledItemDelegate::QStyledItemDelegate;

    void paint(QPainter *painter, const QStyleOptionViewItem &option, const QModelIndex &index) const override
    {
        const Theme &theme = Theme::instance();
        painter->save();
        painter->setRenderHint(QPainter::Antialiasing);
        const bool enabled = index.flags() & Qt::ItemIsEnabled;
        QRect place = option.rect.adjusted(4, 0, -4, 0);
        if (option.state & QStyle::State_Selected) {
            painter->setPen(Qt::NoPen);
            painter->setBrush(theme.color(Token::Selection));
            painter->drawRoundedRect(place, 5, 5);
        }
        place.adjust(8, 0, -8, 0);
        const int size = theme.scaled(16);
        const QString name = index.data(PickModel::IconRole).toString();
        if (!name.isEmpty())
            paintIcon(*painter, name, QRectF(place.left(), place.center().y() - size / 2.0, size, size),
                      theme.color(Token::Muted));
        place.setLeft(place.left() + size + 10);
        const QString detail = index.data(PickModel::DetailRole).toString();
        painter->setFont(theme.font(FontRole::Mono));
        painter->setPen(theme.color(Token::Muted));
        painter->drawText(place, Qt::AlignVCenter | Qt::AlignRight, detail);
        place.setRight(place.right() - QFontMetrics(painter->font()).horizontalAdvance(detail) - 12);
        const QFont plain = theme.font(FontRole::Body);
        QFont strong = plain;
        strong.setWeight(QFont::DemiBold);
        const QString group = index.data(PickModel::GroupRole).toString();
        int left = place.left();
        if (!group.isEmpty()) {
            painter->setFont(plain);
            const QString text = group + QStringLiteral("  ");
            painter->drawText(place, Qt::AlignVCenter | Qt::AlignLeft, text);
            left += QFontMetrics(plain).horizontalAdvance(text);
        }
        // Letters that matched stand out.
        const auto match = index.data(PickModel::MatchRole).toList();
        const QString text = index.data().toString();
        painter->setPen(theme.color(enabled ? Token::Text : Token::Muted));
        for (int i = 0; i < text.size() && left < place.right();) {
            const bool hit = match.contains(i);
            int end = i + 1;
            while (end < text.size() && match.contains(end) == hit)
                ++end;
            const QString run = text.mid(i, end - i);
            painter->setFont(hit ? strong : plain);
            painter->drawText(QRect(left, place.top(), place.right() - left, place.height()),
                              Qt::AlignVCenter | Qt::AlignLeft, run);
            left += QFontMetrics(painter->font()).horizontalAdvance(run);
            i = end;
        }
        painter->restore();
    }

    QSize sizeHint(const QStyleOptionViewItem &, const QModelIndex &) const override
    {
        return {200, Theme::instance().scaled(30)};
    }
};

} // namespace

void PickModel::setItems(std::vector<PickItem> items)
{
    m_items = std::move(items);
    setPattern({});
}

void PickModel::setPattern(const QString &pattern)
{
    beginResetModel();
    m_shown.clear();
    std::vector<std::pair<int, std::size_t>> scored;
    std::vector<std::vector<int>> places(m_items.size());
    for (std::size_t i = 0; i < m_items.size(); ++i) {
        int score = fuzzyScore(pattern, m_items[i].text, &places[i]);
        if (score < 0) {
            // Words of the group count too, less.
            score = fuzzyScore(pattern, m_items[i].group + QLatin1Char(' ') + m_items[i].text);
            places[i].clear();
            score = score < 0 ? -1 : score / 2;
        }
        // As good as letters in a row: an id that was pasted means this one.
        if (!pattern.isEmpty() && m_items[i].alias.contains(pattern.trimmed(), Qt::CaseInsensitive))
            score = std::max(score, fuzzyScore(pattern, pattern));
        if (score >= 0)
            scored.emplace_back(score, i);
    }
    std::stable_sort(scored.begin(), scored.end(),
                     [](const auto &a, const auto &b) { return a.first > b.first; });
    for (const auto &[score, i] : scored)
        m_shown.emplace_back(i, std::move(places[i]));
    endResetModel();
}

const PickItem *PickModel::at(int row) const
{
    return row >= 0 && row < rowCount() ? &m_items[m_shown[static_cast<std::size_t>(row)].first] : nullptr;
}

int PickModel::rowCount(const QModelIndex &parent) const
{
    return parent.isValid() ? 0 : static_cast<int>(m_shown.size());
}

QVariant PickModel::data(const QModelIndex &index, int role) const
{
    const PickItem *item = index.isValid() ? at(index.row()) : nullptr;
    if (!item)
        return {};
    switch (role) {
    case Qt::DisplayRole:
        return item->text;
    case Qt::AccessibleTextRole:
        return item->text + QLatin1Char(' ') + item->detail;
    case GroupRole:
        return item->group;
    case DetailRole:
        return item->detail;
    case IconRole:
        return item->icon;
    case MatchRole: {
        QVariantList places;
        for (int place : m_shown[static_cast<std::size_t>(index.row())].second)
            places << place;
        return places;
    }
    default:
        return {};
    }
}

Qt::ItemFlags PickModel::flags(const QModelIndex &index) const
{
    const PickItem *item = index.isValid() ? at(index.row()) : nullptr;
    if (!item)
        return Qt::NoItemFlags;
    return item && item->enabled ? Qt::ItemIsEnabled | Qt::ItemIsSelectable | Qt::ItemNeverHasChildren
                                 : Qt::ItemNeverHasChildren;
}

QuickPick::QuickPick(QWidget *window)
    : QFrame(window),
      m_model(new PickModel(this)),
      m_line(new QLineEdit(this)),
      m_view(new QListView(this)),
      m_nothing(new QLabel(this))
{
    setObjectName(QStringLiteral("popup"));
    auto *layout = new QVBoxLayout(this);
    layout->setContentsMargins(8, 8, 8, 8);
    layout->setSpacing(8);
    layout->addWidget(m_line);
    layout->addWidget(m_view, 1);
    layout->addWidget(m_nothing);
    m_view->setModel(m_model);
    m_view->setItemDelegate(new PickDelegate(m_view));
    m_view->setUniformItemSizes(true);
    m_view->setFocusPolicy(Qt::NoFocus);
    m_view->setStyleSheet(QStringLiteral("QListView { background: transparent; }"));
    m_view->setHorizontalScrollBarPolicy(Qt::ScrollBarAlwaysOff);
    m_nothing->setProperty("tone", "muted");
    m_nothing->setContentsMargins(8, 4, 8, 8);
    m_line->installEventFilter(this);
    window->installEventFilter(this);
    connect(m_line, &QLineEdit::textChanged, this, [this](const QString &text) {
        m_model->setPattern(text);
        settle();
    });
    connect(m_view, &QListView::clicked, this, &QuickPick::accept);
    hide();
}

void QuickPick::open(const QString &placeholder, std::vector<PickItem> items, const QString &nothing)
{
    if (!isVisible())
        m_before = QApplication::focusWidget();
    m_line->setPlaceholderText(placeholder);
    m_line->setAccessibleName(placeholder);
    m_nothing->setText(nothing);
    m_line->clear();
    m_model->setItems(std::move(items));
    show();
    raise();
    settle();
    m_line->setFocus(Qt::PopupFocusReason);
}

void QuickPick::settle()
{
    m_nothing->setVisible(m_model->rowCount() == 0);
    m_view->setVisible(m_model->rowCount() > 0);
    for (int row = 0; row < m_model->rowCount(); ++row) {
        if (m_model->flags(m_model->index(row)) & Qt::ItemIsEnabled) {
            m_view->setCurrentIndex(m_model->index(row));
            break;
        }
    }
    place();
}

void QuickPick::place()
{
    const QWidget *window = parentWidget();
    const Theme &theme = Theme::instance();
    const int width = std::min(theme.scaled(600), window->width() - 48);
    const int rows = std::clamp(m_model->rowCount(), 1, 12);
    const int height =
        std::min(theme.scaled(30) * rows + m_line->sizeHint().height() + 28, window->height() - 96);
    setGeometry((window->width() - width) / 2, 56, width, height);
}

void QuickPick::leave()
{
    hide();
    if (m_before)
        m_before->setFocus(Qt::PopupFocusReason);
    m_before = nullptr;
}

void QuickPick::accept()
{
    const PickItem *item = m_model->at(m_view->currentIndex().row());
    if (!item || !item->enabled || !item->run)
        return;
    const auto run = item->run;
    leave();
    run();
}

bool QuickPick::eventFilter(QObject *object, QEvent *event)
{
    if (object == parentWidget() && event->type() == QEvent::Resize && isVisible())
        place();
    if (object != m_line)
        return QFrame::eventFilter(object, event);
    if (event->type() == QEvent::FocusOut && isVisible()
        && static_cast<QFocusEvent *>(event)->reason() == Qt::MouseFocusReason)
        hide();
    if (event->type() != QEvent::KeyPress)
        return false;
    auto *key = static_cast<QKeyEvent *>(event);
    const int row = m_view->currentIndex().row();
    const auto move = [&](int to) {
        const int direction = to >= row ? 1 : -1;
        for (int at = std::clamp(to, 0, std::max(0, m_model->rowCount() - 1));
             at >= 0 && at < m_model->rowCount(); at += direction) {
            if (m_model->flags(m_model->index(at)) & Qt::ItemIsEnabled) {
                m_view->setCurrentIndex(m_model->index(at));
                return;
            }
        }
    };
    switch (key->key()) {
    case Qt::Key_Escape:
        leave();
        return true;
    case Qt::Key_Return:
    case Qt::Key_Enter:
        accept();
        return true;
    case Qt::Key_Down:
        move(row + 1);
        return true;
    case Qt::Key_Up:
        move(row - 1);
        return true;
    case Qt::Key_PageDown:
        move(row + 10);
        return true;
    case Qt::Key_PageUp:
        move(row - 10);
        return true;
    case Qt::Key_Tab:
    case Qt::Key_Backtab:
        return true;
    default:
        return false;
    }
}

} // namespace rankyard::ui
