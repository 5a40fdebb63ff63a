// SPDX-License-Identifier: GPL-3.0-or-later
#include "tests/engine/exec/allocations.h"

#include <cerrno>
#include <cstddef>

// glibc lets a program put itself before malloc; operator new comes through here too.
#if defined(__GLIBC__) && !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)

namespace {
thread_local std::int64_t count = 0;
}

extern "C" {
void *__libc_malloc(std::size_t);
void *__libc_calloc(std::size_t, std::size_t);
void *__libc_realloc(void *, std::size_t);
void *__libc_memalign(std::size_t, std::size_t);

void *malloc(std::size_t size)
{
    ++count;
    return __libc_malloc(size);
}
void *calloc(std::size_t number, std::size_t size)
{
    ++count;
    return __libc_calloc(number, size);
}
void *realloc(void *at, std::size_t size)
{
    ++count;
    return __libc_realloc(at, size);
}
void *memalign(std::size_t alignment, std::size_t size)
{
    ++count;
    return __libc_memalign(alignment, size);
}
void *aligned_alloc(std::size_t alignment, std::size_t size)
{
    ++count;
    return __libc_memalign(alignment, size);
}
int posix_memalign(void **result, std::size_t alignment, std::size_t size)
{
    ++count;
    *result = __libc_memalign(alignment, size);
    return *result ? 0 : ENOMEM;
}
}

std::int64_t rankyard::exec::test::allocationsOfThisThread() { return count; }

#else

std::int64_t rankyard::exec::test::allocationsOfThisThread() { return -1; }

#endif
