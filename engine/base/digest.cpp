// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/base/digest.h"

#include "engine/base/file.h"

#include <cerrno>
#include <fcntl.h>
#include <unistd.h>
#include <vector>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace rankyard {

struct Digest::State {
    XXH3_state_t *xxh = XXH3_createState(); // its own allocator: the state must be aligned to 64 bytes
    State() { XXH3_128bits_reset(xxh); }
    State(const State &) = delete;
    State &operator=(const State &) = delete;
    ~State() { XXH3_freeState(xxh); }
};

Digest::Digest() : m_state(std::make_unique<State>()) {}
Digest::Digest(Digest &&) noexcept = default;
Digest &Digest::operator=(Digest &&) noexcept = default;
Digest::~Digest() = default;

void Digest::update(const void *bytes, std::size_t count)
{
    if (count > 0)
        XXH3_128bits_update(m_state->xxh, bytes, count);
}

std::string Digest::text() const
{
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(m_state->xxh));
    static const char *const hex = "0123456789abcdef";
    std::string text = "xxh3-128:";
    for (const unsigned char byte : canonical.digest) {
        text += hex[byte >> 4];
        text += hex[byte & 15];
    }
    return text;
}

std::string digestOf(std::string_view bytes)
{
    Digest digest;
    digest.update(bytes.data(), bytes.size());
    return digest.text();
}

Result<std::string> digestOfFile(const std::filesystem::path &path)
{
    const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!fd.valid()) {
        if (errno == ENOENT)
            return Error::make(Code::NotFound, "there is no such file", path.string());
        return Error::fromErrno(errno, "cannot open the file", path.string());
    }
    Digest digest;
    std::vector<char> block(1 << 20);
    for (;;) {
        const ssize_t n = ::read(fd.get(), block.data(), block.size());
        if (n == 0)
            return digest.text();
        if (n < 0 && errno != EINTR)
            return Error::fromErrno(errno, "cannot read the file", path.string());
        if (n > 0)
            digest.update(block.data(), static_cast<std::size_t>(n));
    }
}

} // namespace rankyard
