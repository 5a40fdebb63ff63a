// SPDX-License-Identifier: GPL-3.0-or-later
// Replaces operator new for the whole test binary, in a file of its own so that nothing is inlined into the callers.
#include "count_allocations.h"

#include <cstdlib>
#include <new>

namespace rankyard::data::test {
std::atomic<std::int64_t> allocations{0};
}

void *operator new(std::size_t size)
{
    ++rankyard::data::test::allocations;
    if (void *memory = std::malloc(size ? size : 1))
        return memory;
    throw std::bad_alloc();
}

void operator delete(void *memory) noexcept { std::free(memory); }
void operator delete(void *memory, std::size_t) noexcept { std::free(memory); }
