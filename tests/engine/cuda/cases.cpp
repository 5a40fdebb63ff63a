// SPDX-License-Identifier: GPL-3.0-or-later
// The GPU's kernels under the tests of the CPU's (tests/engine/kernels), on the launcher.
#include "tests/engine/cuda/host_gpu.h"
#include "tests/engine/cuda/host_launcher.h"
#include "tests/engine/kernels/tuned_fixture.h"

namespace rankyard::kernels::test {

std::vector<Case> casesUnderTest()
{
    return {{Isa::Baseline, DType::F32},
            {Isa::Baseline, DType::F64},
            {Isa::Baseline, DType::BF16},
            {Isa::Baseline, DType::F16}};
}

const IsaTables &tablesUnderTest(Isa)
{
    static cuda::test::HostGpu gpu(cuda::test::HostGpu::Mode::Immediate);
    static std::vector<std::byte> partials(64 << 20);
    cuda::currentQueue() = {&gpu, nullptr, partials.data(), static_cast<std::int64_t>(partials.size())};
    return cuda::test::hostTables().all;
}

} // namespace rankyard::kernels::test
