// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/kernels/kernel_table.h"

namespace rankyard::kernels {

Isa detectIsa()
{
#if defined(__x86_64__)
    const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw")
        && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")
        && __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("f16c");
    if (avx512)
        return __builtin_cpu_supports("avx512bf16") ? Isa::Avx512Bf16 : Isa::Avx512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2")
        && __builtin_cpu_supports("f16c"))
        return Isa::Avx2;
#endif
    return Isa::Baseline;
}

const char *nameOf(Isa isa)
{
    switch (isa) {
    case Isa::Baseline:
        return "baseline";
    case Isa::Avx2:
        return "AVX2";
    case Isa::Avx512:
        return "AVX-512";
    case Isa::Avx512Bf16:
        return "AVX-512 BF16";
    }
    return "";
}

const IsaTables &tablesFor(Isa isa)
{
#if defined(__x86_64__)
    switch (isa) {
    case Isa::Baseline:
        return tablesBaseline();
    case Isa::Avx2:
        return tablesAvx2();
    case Isa::Avx512:
        return tablesAvx512();
    case Isa::Avx512Bf16:
        return tablesAvx512Bf16();
    }
#endif
    return tablesBaseline();
}

} // namespace rankyard::kernels
