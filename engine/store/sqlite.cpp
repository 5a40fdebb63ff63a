// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/store/sqlite.h"

#include <cerrno>
#include <cmath>
#include <limits>
#include <sqlite3.h>

namespace rankyard::store {

namespace {

constexpr int busyMs = 10000;

Error errorOf(int code, const std::string &message, const std::string &what, const std::string &name)
{
    switch (code & 0xff) {
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
        return Error::make(Code::BadData, "the run store is damaged", name)
            .withFound(message)
            .withHint("Move the file away: a new one is made, and runs are read again from their folders");
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return Error::make(Code::InUse, "the run store is kept locked by another process", name);
    case SQLITE_FULL:
        return Error::fromErrno(ENOSPC, "cannot write the run store", name);
    case SQLITE_READONLY:
    case SQLITE_PERM:
        return Error::fromErrno(EACCES, "cannot write the run store", name);
    default:
        return Error::make(Code::Io, what, name).withFound(message);
    }
}

} // namespace

// Statement ---------------------------------------------------------------------------------------------------------

Statement::~Statement()
{
    if (m_statement) {
        sqlite3_reset(m_statement);
        sqlite3_clear_bindings(m_statement);
    }
}

Statement &Statement::bind(int at, std::int64_t value)
{
    m_failed |= sqlite3_bind_int64(m_statement, at, value) != SQLITE_OK;
    return *this;
}

Statement &Statement::bind(int at, double value)
{
    m_failed |= sqlite3_bind_double(m_statement, at, value) != SQLITE_OK; // SQLite makes NULL of NaN
    return *this;
}

Statement &Statement::bind(int at, std::string_view text)
{
    m_failed |= sqlite3_bind_text64(m_statement, at, text.data() ? text.data() : "", text.size(),
                                    SQLITE_TRANSIENT, SQLITE_UTF8)
        != SQLITE_OK;
    return *this;
}

Statement &Statement::bindBlob(int at, std::string_view bytes)
{
    m_failed |= sqlite3_bind_blob64(m_statement, at, bytes.data(), bytes.size(), SQLITE_STATIC) != SQLITE_OK;
    return *this;
}

Statement &Statement::bindNull(int at)
{
    m_failed |= sqlite3_bind_null(m_statement, at) != SQLITE_OK;
    return *this;
}

Result<bool> Statement::step()
{
    const int code = m_failed ? SQLITE_MISUSE : sqlite3_step(m_statement);
    if (code == SQLITE_ROW)
        return true;
    if (code == SQLITE_DONE)
        return false;
    sqlite3 *database = sqlite3_db_handle(m_statement);
    const char *file = sqlite3_db_filename(database, "main");
    return errorOf(code, m_failed ? "a value was not bound" : sqlite3_errmsg(database),
                   "the run store failed", file ? file : "");
}

Status Statement::run()
{
    for (;;) {
        RY_ASSIGN(const bool row, step());
        if (!row)
            break;
    }
    sqlite3_reset(m_statement);
    return {};
}

std::int64_t Statement::integer(int column) const { return sqlite3_column_int64(m_statement, column); }
bool Statement::isNull(int column) const { return sqlite3_column_type(m_statement, column) == SQLITE_NULL; }

double Statement::real(int column) const
{
    return isNull(column) ? std::numeric_limits<double>::quiet_NaN()
                          : sqlite3_column_double(m_statement, column);
}

std::string Statement::text(int column) const
{
    const auto *bytes = reinterpret_cast<const char *>(sqlite3_column_text(m_statement, column));
    return bytes ? std::string(bytes, static_cast<std::size_t>(sqlite3_column_bytes(m_statement, column)))
                 : std::string();
}

std::string_view Statement::blob(int column) const
{
    const auto *bytes = static_cast<const char *>(sqlite3_column_blob(m_statement, column));
    return bytes
        ? std::string_view(bytes, static_cast<std::size_t>(sqlite3_column_bytes(m_statement, column)))
        : std::string_view();
}

// Database ----------------------------------------------------------------------------------------------------------

Database::~Database()
{
    for (const auto &[sql, statement] : m_cache)
        sqlite3_finalize(statement);
    sqlite3_close(m_handle);
}

Status Database::open(const std::filesystem::path &file, bool readOnly)
{
    m_name = file.string();
    const int flags =
        (readOnly ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE) | SQLITE_OPEN_NOMUTEX;
    const int code = sqlite3_open_v2(m_name.c_str(), &m_handle, flags, nullptr);
    if (code != SQLITE_OK)
        return errorOf(code, m_handle ? sqlite3_errmsg(m_handle) : "out of memory",
                       "cannot open the run store", m_name);
    sqlite3_extended_result_codes(m_handle, 1);
    sqlite3_busy_timeout(m_handle, busyMs);
    return {};
}

Status Database::execute(const std::string &sql)
{
    const int code = sqlite3_exec(m_handle, sql.c_str(), nullptr, nullptr, nullptr);
    if (code != SQLITE_OK)
        return errorOf(code, sqlite3_errmsg(m_handle), "the run store failed", m_name);
    return {};
}

Result<Statement> Database::prepare(const char *sql)
{
    sqlite3_stmt *&statement = m_cache[sql];
    if (!statement) {
        const int code =
            sqlite3_prepare_v3(m_handle, sql, -1, SQLITE_PREPARE_PERSISTENT, &statement, nullptr);
        if (code != SQLITE_OK)
            return errorOf(code, sqlite3_errmsg(m_handle), "the run store failed", m_name);
    }
    return Statement(statement);
}

Result<std::int64_t> Database::pragma(const char *name)
{
    sqlite3_stmt *raw = nullptr;
    const int code = sqlite3_prepare_v2(m_handle, (std::string("PRAGMA ") + name).c_str(), -1, &raw, nullptr);
    if (code != SQLITE_OK)
        return errorOf(code, sqlite3_errmsg(m_handle), "the run store failed", m_name);
    Result<std::int64_t> value = std::int64_t{0};
    {
        Statement statement(raw);
        const auto row = statement.step();
        if (!row)
            value = row.error();
        else if (*row)
            value = statement.integer(0);
    }
    sqlite3_finalize(raw);
    return value;
}

std::int64_t Database::changes() const { return sqlite3_total_changes64(m_handle); }
std::int64_t Database::changedNow() const { return sqlite3_changes64(m_handle); }
std::int64_t Database::lastRowId() const { return sqlite3_last_insert_rowid(m_handle); }

Error Database::error(const std::string &what) const
{
    return errorOf(sqlite3_errcode(m_handle), sqlite3_errmsg(m_handle), what, m_name);
}

// Transaction -------------------------------------------------------------------------------------------------------

Result<Transaction> Transaction::begin(Database &database)
{
    RY_TRY(database.execute("BEGIN IMMEDIATE"));
    return Transaction(&database);
}

Transaction::~Transaction()
{
    if (m_database)
        (void)m_database->execute("ROLLBACK");
}

Status Transaction::commit()
{
    RY_TRY(m_database->execute("COMMIT"));
    m_database = nullptr;
    return {};
}

} // namespace rankyard::store
