// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/base/file.h"

#include "engine/base/units.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

namespace rankyard {

namespace fs = std::filesystem;

Fd &Fd::operator=(Fd &&other) noexcept
{
    if (this != &other) {
        reset();
        m_fd = std::exchange(other.m_fd, -1);
    }
    return *this;
}

void Fd::reset()
{
    if (m_fd >= 0)
        ::close(m_fd);
    m_fd = -1;
}

Result<std::string> readFile(const fs::path &path)
{
    const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!fd.valid()) {
        if (errno == ENOENT)
            return Error::make(Code::NotFound, "there is no such file", path.string());
        return Error::fromErrno(errno, "cannot open the file", path.string());
    }
    std::string content;
    char block[65536];
    for (;;) {
        const ssize_t n = ::read(fd.get(), block, sizeof block);
        if (n == 0)
            return content;
        if (n < 0 && errno != EINTR)
            return Error::fromErrno(errno, "cannot read the file", path.string());
        if (n > 0)
            content.append(block, static_cast<std::size_t>(n));
    }
}

Status writeAll(int fd, std::string_view bytes, const std::string &name)
{
    while (!bytes.empty()) {
        const ssize_t n = ::write(fd, bytes.data(), bytes.size());
        if (n < 0 && errno != EINTR)
            return Error::fromErrno(errno, "cannot write", name);
        if (n > 0)
            bytes.remove_prefix(static_cast<std::size_t>(n));
    }
    return {};
}

namespace {

Status syncDir(const fs::path &dir)
{
    const Fd fd(::open(dir.empty() ? "." : dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!fd.valid() || ::fsync(fd.get()) != 0)
        return Error::fromErrno(errno, "cannot flush the folder", dir.string());
    return {};
}

} // namespace

Status writeFileAtomically(const fs::path &path, std::string_view content)
{
    std::string pattern = path.string() + ".XXXXXX";
    Fd fd(::mkostemp(pattern.data(), O_CLOEXEC));
    if (!fd.valid())
        return Error::fromErrno(errno, "cannot create a file", path.string());
    const auto fail = [&pattern](Error error) {
        ::unlink(pattern.c_str());
        return error;
    };
    if (auto status = writeAll(fd.get(), content, path.string()); !status)
        return fail(status.error());
    if (::fsync(fd.get()) != 0 || ::rename(pattern.c_str(), path.c_str()) != 0)
        return fail(Error::fromErrno(errno, "cannot write the file", path.string()));
    return syncDir(path.parent_path());
}

Result<Fd> makeNamelessFile(const std::string &folder, std::int64_t bytes)
{
    Fd fd(::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
    if (!fd.valid() && (errno == EOPNOTSUPP || errno == EISDIR)) { // the file system does not have them
        std::string name = folder + "/rankyard-XXXXXX";
        fd = Fd(::mkostemp(name.data(), O_CLOEXEC));
        if (fd.valid())
            ::unlink(name.c_str());
    }
    if (!fd.valid())
        return Error::fromErrno(errno, "cannot make a file for what is kept on disk", folder);
    // The blocks now: a write into a mapping that the disk has no room for would end the process.
    if (const int error = ::posix_fallocate(fd.get(), 0, bytes); error != 0)
        return Error::make(Code::DoesNotFit, "no room on the disk", folder)
            .withFound(formatBytes(static_cast<double>(bytes)) + ": " + std::strerror(error));
    return fd;
}

namespace {

fs::path xdg(const char *variable, const char *below)
{
    if (const char *value = std::getenv(variable); value && value[0] == '/')
        return fs::path(value) / "rankyard";
    const char *home = std::getenv("HOME");
    if (!home || home[0] != '/') {
        const passwd *user = ::getpwuid(::getuid());
        home = user && user->pw_dir ? user->pw_dir : "/";
    }
    return fs::path(home) / below / "rankyard";
}

} // namespace

fs::path stateDir() { return xdg("XDG_STATE_HOME", ".local/state"); }
fs::path dataDir() { return xdg("XDG_DATA_HOME", ".local/share"); }
fs::path configDir() { return xdg("XDG_CONFIG_HOME", ".config"); }

fs::path runtimeDir()
{
    if (const char *value = std::getenv("XDG_RUNTIME_DIR");
        value && value[0] == '/' && ::access(value, W_OK) == 0)
        return fs::path(value) / "rankyard";
    return stateDir() / "run";
}

Status makePrivateDir(const fs::path &path)
{
    std::error_code error;
    if (fs::is_directory(path, error))
        return {};
    if (path.has_parent_path() && path.parent_path() != path)
        RY_TRY(makePrivateDir(path.parent_path()));
    if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST)
        return Error::fromErrno(errno, "cannot create the folder", path.string());
    return {};
}

} // namespace rankyard
