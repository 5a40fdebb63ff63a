// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/base/mapped_file.h"

#include "engine/base/file.h"

#include <cerrno>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

namespace rankyard {

MappedFile::MappedFile(MappedFile &&other) noexcept
    : m_data(std::exchange(other.m_data, nullptr)),
      m_size(std::exchange(other.m_size, 0))
{}

MappedFile &MappedFile::operator=(MappedFile &&other) noexcept
{
    std::swap(m_data, other.m_data);
    std::swap(m_size, other.m_size);
    return *this;
}

MappedFile::~MappedFile()
{
    if (m_data)
        ::munmap(const_cast<std::byte *>(m_data), m_size);
}

Result<MappedFile> MappedFile::open(const std::filesystem::path &path)
{
    const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (!fd.valid()) {
        if (errno == ENOENT || errno == ENOTDIR)
            return Error::make(Code::NotFound, "there is no such file", path.string());
        return Error::fromErrno(errno, "cannot open the file", path.string());
    }
    struct stat status {};
    if (::fstat(fd.get(), &status) != 0)
        return Error::fromErrno(errno, "cannot read the file", path.string());
    if (!S_ISREG(status.st_mode))
        return Error::make(Code::BadData, "not a regular file", path.string());
    MappedFile file;
    if (status.st_size == 0)
        return file;
    void *data =
        ::mmap(nullptr, static_cast<std::size_t>(status.st_size), PROT_READ, MAP_PRIVATE, fd.get(), 0);
    if (data == MAP_FAILED)
        return Error::fromErrno(errno, "cannot map the file", path.string());
    file.m_data = static_cast<const std::byte *>(data);
    file.m_size = static_cast<std::size_t>(status.st_size);
    return file;
}

} // namespace rankyard
