// SPDX-License-Identifier: GPL-3.0-or-later
#include "remote/agent/endpoint.h"

#include "engine/base/build_id.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

namespace rankyard::agent {

namespace fs = std::filesystem;

fs::path Endpoint::log() const { return stateDir() / "agent" / (name + ".log"); }

Result<Endpoint> endpoint()
{
    Endpoint endpoint;
    endpoint.folder = runtimeDir();
    char host[256] = {};
    if (::gethostname(host, sizeof host - 1) != 0)
        std::strcpy(host, "localhost");
    endpoint.name = std::string("agent-") + host + "-" + buildId();
    RY_TRY(makePrivateDir(endpoint.folder));
    struct stat info {};
    if (::stat(endpoint.folder.c_str(), &info) != 0)
        return Error::fromErrno(errno, "cannot use the folder for sockets", endpoint.folder.string());
    if (info.st_uid != ::geteuid() || (info.st_mode & 022) != 0)
        return Error::make(Code::Io, "the folder for sockets is not ours alone", endpoint.folder.string())
            .withExpected("owned by this user, mode 0700");
    if ((info.st_mode & 077) != 0)
        ::chmod(endpoint.folder.c_str(), 0700);
    return endpoint;
}

namespace {

/// The address of a socket in a folder whose path may be longer than an address can be: by way of the folder's descriptor.
struct Address {
    Fd folder;
    sockaddr_un value{};
};

Result<Address> addressOf(const Endpoint &endpoint)
{
    Address address;
    address.folder = Fd(::open(endpoint.folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (!address.folder.valid())
        return Error::fromErrno(errno, "cannot open the folder for sockets", endpoint.folder.string());
    address.value.sun_family = AF_UNIX;
    const std::string path =
        "/proc/self/fd/" + std::to_string(address.folder.get()) + "/" + endpoint.name + ".sock";
    if (path.size() >= sizeof address.value.sun_path)
        return Error::make(Code::Io, "the name of the socket is too long", endpoint.name);
    std::memcpy(address.value.sun_path, path.c_str(), path.size() + 1);
    return address;
}

} // namespace

Result<Fd> listenAt(const Endpoint &endpoint)
{
    RY_ASSIGN(const Address address, addressOf(endpoint));
    ::unlink(endpoint.socket().c_str());
    Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const mode_t before = ::umask(0177);
    const int bound = fd.valid()
        ? ::bind(fd.get(), reinterpret_cast<const sockaddr *>(&address.value), sizeof address.value)
        : -1;
    const int failure = errno;
    ::umask(before);
    if (bound != 0 || ::listen(fd.get(), 64) != 0)
        return Error::fromErrno(bound != 0 ? failure : errno, "cannot listen on the socket",
                                endpoint.socket().string());
    return fd;
}

Result<Fd> connectTo(const Endpoint &endpoint)
{
    RY_ASSIGN(const Address address, addressOf(endpoint));
    Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!fd.valid())
        return Error::fromErrno(errno, "cannot create a socket", endpoint.socket().string());
    if (::connect(fd.get(), reinterpret_cast<const sockaddr *>(&address.value), sizeof address.value) != 0)
        return Error::make(errno == ENOENT || errno == ECONNREFUSED ? Code::NotFound : Code::Io,
                           "cannot reach the agent", endpoint.socket().string())
            .withFound(std::strerror(errno));
    return fd;
}

} // namespace rankyard::agent
