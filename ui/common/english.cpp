// SPDX-License-Identifier: GPL-3.0-or-later
#include "ui/common/english.h"

#include <cstring>

namespace rankyard::ui {

namespace {

constexpr const char *singulars[][2] = {
    {"%n ranks", "%n rank"},        {"and %n more runs", "and %n more run"},
    {"%n notices", "%n notice"},    {"%n cores", "%n core"},
    {"%n above", "%n above"},       {"Delete %n runs?", "Delete %n run?"},
    {"and %n more", "and %n more"},
};

} // namespace

const char *English::singularOf(const char *source)
{
    for (const auto &[many, one] : singulars) {
        if (std::strcmp(many, source) == 0)
            return one;
    }
    return nullptr;
}

QString English::translate(const char *, const char *source, const char *, int count) const
{
    // Null: the next translator, at last the source.
    const char *one = count == 1 ? singularOf(source) : nullptr;
    return one ? QString::fromUtf8(one) : QString();
}

} // namespace rankyard::ui
