// SPDX-License-Identifier: GPL-3.0-or-later
#include "tests/engine/kernels/tuned_fixture.h"

namespace rankyard::kernels::test {

std::vector<Case> casesUnderTest()
{
    std::vector<Case> cases;
    for (const Isa isa : {Isa::Baseline, Isa::Avx2, Isa::Avx512, Isa::Avx512Bf16}) {
        if (isa <= detectIsa()) {
            for (const DType type : {DType::F32, DType::F64, DType::BF16, DType::F16})
                cases.push_back({isa, type});
        }
    }
    return cases;
}

const IsaTables &tablesUnderTest(Isa isa) { return tablesFor(isa); }

} // namespace rankyard::kernels::test
