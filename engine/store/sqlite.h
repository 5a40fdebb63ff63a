// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/base/result.h"

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>

struct sqlite3;
struct sqlite3_stmt;

/// The few things of SQLite's C interface that the store uses, with errors as Result. Included by the store's sources only.
namespace rankyard::store {

/// A prepared statement, reset when the handle goes. Binding starts at 1, columns at 0. NaN is stored as NULL and NULL read as NaN.
class Statement
{
public:
    explicit Statement(sqlite3_stmt *statement) : m_statement(statement) {}
    Statement(Statement &&other) noexcept
        : m_statement(std::exchange(other.m_statement, nullptr)),
          m_failed(other.m_failed)
    {}
    Statement(const Statement &) = delete;
    Statement &operator=(const Statement &) = delete;
    ~Statement();

    Statement &bind(int at, std::int64_t value);
    Statement &bind(int at, double value);
    Statement &bind(int at, std::string_view text);
    Statement &bindBlob(int at, std::string_view bytes); ///< the bytes must live until the step
    Statement &bindNull(int at);

    /// True: a row is there; false: done.
    Result<bool> step();
    /// Runs to its end and makes it ready for new values.
    Status run();

    std::int64_t integer(int column) const;
    double real(int column) const;
    std::string text(int column) const;
    std::string_view blob(int column) const; ///< valid until the next step
    bool isNull(int column) const;

private:
    sqlite3_stmt *m_statement;
    bool m_failed = false;
};

/// A connection with a cache of its prepared statements. One thread at a time.
class Database
{
public:
    Database() = default;
    Database(const Database &) = delete;
    Database &operator=(const Database &) = delete;
    ~Database();

    Status open(const std::filesystem::path &file, bool readOnly);
    Status execute(const std::string &sql);
    /// From the cache; `sql` is a literal. Only one handle of a text may be in use at a time.
    Result<Statement> prepare(const char *sql);
    Result<std::int64_t> pragma(const char *name);
    std::int64_t changes() const;    ///< rows changed by this connection ever
    std::int64_t changedNow() const; ///< rows changed by the last statement
    std::int64_t lastRowId() const;
    Error error(const std::string &what) const; ///< of the last call

private:
    sqlite3 *m_handle = nullptr;
    std::string m_name;
    std::map<const char *, sqlite3_stmt *> m_cache;
};

/// BEGIN IMMEDIATE … COMMIT; rolled back unless commit() succeeded.
class Transaction
{
public:
    static Result<Transaction> begin(Database &database);
    Transaction(Transaction &&other) noexcept : m_database(std::exchange(other.m_database, nullptr)) {}
    ~Transaction();
    Status commit();

private:
    explicit Transaction(Database *database) : m_database(database) {}
    Database *m_database;
};

} // namespace rankyard::store
