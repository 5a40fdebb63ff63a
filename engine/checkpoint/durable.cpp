// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/checkpoint/durable.h"

#include "engine/base/file.h"

#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <unistd.h>

namespace rankyard::checkpoint {

namespace fs = std::filesystem;

Status syncFolder(const fs::path &folder)
{
    const Fd fd(::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!fd.valid() || ::fsync(fd.get()) != 0)
        return Error::fromErrno(errno, "cannot flush the folder", folder.string());
    return {};
}

Status renameFolder(const fs::path &from, const fs::path &to)
{
    // Plain rename() would replace an empty folder silently. Some file systems lack the flag; a checkpoint is never empty.
    int result = ::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE);
    if (result != 0 && (errno == EINVAL || errno == ENOSYS))
        result = ::rename(from.c_str(), to.c_str());
    if (result != 0 && (errno == EEXIST || errno == ENOTEMPTY))
        return Error::make(Code::InUse, "there is a checkpoint of this step already", to.string());
    if (result != 0)
        return Error::fromErrno(errno, "cannot put the checkpoint in place", to.string());
    return syncFolder(to.parent_path());
}

} // namespace rankyard::checkpoint
