// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/base/result.h"

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace rankyard {

/// An owned file descriptor.
class Fd
{
public:
    Fd() = default;
    explicit Fd(int fd) : m_fd(fd) {}
    Fd(Fd &&other) noexcept : m_fd(std::exchange(other.m_fd, -1)) {}
    Fd &operator=(Fd &&other) noexcept;
    ~Fd() { reset(); }

    int get() const { return m_fd; }
    bool valid() const { return m_fd >= 0; }
    int release() { return std::exchange(m_fd, -1); }
    void reset();

private:
    int m_fd = -1;
};

/// The whole file as bytes; NotFound when it is absent, Io otherwise.
Result<std::string> readFile(const std::filesystem::path &path);

/// Writes beside `path`, fsyncs, renames over it, fsyncs the folder: readers see the old or the new content, never a part.
/// Leaves no temporary file behind when it fails.
Status writeFileAtomically(const std::filesystem::path &path, std::string_view content);

/// Writes everything, through signals and short writes.
Status writeAll(int fd, std::string_view bytes, const std::string &name);

/// A file of `bytes` zero bytes in a folder, without a name: it is gone with its last descriptor or mapping, however the process
/// ends. DoesNotFit where the disk has no room.
Result<Fd> makeNamelessFile(const std::string &folder, std::int64_t bytes);

/// The folders of the XDG specification with "rankyard" appended; not created here.
std::filesystem::path stateDir();   ///< $XDG_STATE_HOME/rankyard: runs on this node
std::filesystem::path dataDir();    ///< $XDG_DATA_HOME/rankyard: the client's store, prepared corpora
std::filesystem::path configDir();  ///< $XDG_CONFIG_HOME/rankyard
std::filesystem::path runtimeDir(); ///< $XDG_RUNTIME_DIR/rankyard, else stateDir()/run: sockets, mode 0700

/// Creates the folder and its parents, mode 0700 for what is created.
Status makePrivateDir(const std::filesystem::path &path);

} // namespace rankyard
