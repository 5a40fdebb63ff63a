// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/base/error.h"

#include <optional>
#include <utility>
#include <variant>

namespace rankyard {

/// Either a value or an Error. Functions that can fail in an expected way return it; nobody throws across a module.
template<typename T>
class [[nodiscard]] Result
{
public:
    Result(T value) : m_state(std::in_place_index<0>, std::move(value)) {}
    Result(Error error) : m_state(std::in_place_index<1>, std::move(error)) {}

    bool ok() const { return m_state.index() == 0; }
    explicit operator bool() const { return ok(); }

    T &value() & { return std::get<0>(m_state); }
    const T &value() const & { return std::get<0>(m_state); }
    /// By value, so that `for (auto &x : *f())` does not walk a dead temporary.
    T value() && { return std::get<0>(std::move(m_state)); }
    T &operator*() & { return value(); }
    const T &operator*() const & { return value(); }
    T operator*() && { return std::move(*this).value(); }
    T *operator->() { return &value(); }
    const T *operator->() const { return &value(); }

    const Error &error() const { return std::get<1>(m_state); }

private:
    std::variant<T, Error> m_state;
};

template<>
class [[nodiscard]] Result<void>
{
public:
    Result() = default;
    Result(Error error) : m_error(std::move(error)) {}

    bool ok() const { return !m_error; }
    explicit operator bool() const { return ok(); }
    const Error &error() const { return *m_error; }

private:
    std::optional<Error> m_error;
};

using Status = Result<void>;

} // namespace rankyard

#define RANKYARD_JOIN2(a, b) a##b
#define RANKYARD_JOIN(a, b) RANKYARD_JOIN2(a, b)
/// RY_TRY(f()): leaves the function with f's error. RY_ASSIGN(auto x, f()): the same, else x = the value.
#define RY_TRY(expression)                                                                                   \
    do {                                                                                                     \
        if (auto ryStatus = (expression); !ryStatus.ok())                                                    \
            return ryStatus.error();                                                                         \
    } while (false)
#define RY_ASSIGN(declaration, expression)                                                                   \
    auto RANKYARD_JOIN(ryResult, __LINE__) = (expression);                                                   \
    if (!RANKYARD_JOIN(ryResult, __LINE__).ok())                                                             \
        return RANKYARD_JOIN(ryResult, __LINE__).error();                                                    \
    declaration = std::move(RANKYARD_JOIN(ryResult, __LINE__)).value()
