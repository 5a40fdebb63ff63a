// SPDX-License-Identifier: GPL-3.0-or-later
// The GPU's codes against the CPU's.
#include "engine/cuda/cuda_device.h"
#include "engine/kernels/codec.h"
#include "tests/engine/cuda/host_gpu.h"
#include "tests/engine/kernels/storage.h"

#include <gtest/gtest.h>

using namespace rankyard;
using namespace rankyard::cuda;
using namespace rankyard::cuda::test;
using kernels::test::randomValues;
using kernels::test::Storage;

/// Codes' forms, their sums, and what they leave out; also of values that are not finite.
TEST(Codec, IsTheCpus)
{
    auto gpu = std::make_shared<HostGpu>(HostGpu::Mode::Immediate);
    CudaDevice device(gpu, 1);
    std::vector<std::byte> partials(1 << 20);
    const QueueScope scope({gpu.get(), nullptr, partials.data(), static_cast<std::int64_t>(partials.size())});
    for (const DType type : {DType::F32, DType::F64}) {
        for (const char *mode : {"fp16", "int8", "adaptive"}) {
            for (const double threshold : {0.0, 1e9}) {
                SCOPED_TRACE(std::string(mode) + " " + nameOf(type));
                spec::Compression compression;
                compression.mode = mode;
                compression.block = 32;
                compression.threshold = threshold;
                const std::int64_t count = 1003;
                Storage gradient(type, randomValues(count, 1)),
                    errors[2] = {Storage(type, randomValues(count, 2, 0.01)),
                                 Storage(type, randomValues(count, 2, 0.01))};
                gradient.set(70, INFINITY);
                Storage scratch(type, 2 * count);
                const auto bytes = static_cast<std::size_t>(plan::codeBytes(compression, type, count));
                std::vector<std::byte> codes[2] = {std::vector<std::byte>(2 * bytes),
                                                   std::vector<std::byte>(2 * bytes)};
                Storage sums[2] = {Storage(type, kernels::reference::Values(600, 0.5)),
                                   Storage(type, kernels::reference::Values(600, 0.5))};
                for (int side = 0; side < 2; ++side) {
                    kernels::Encoding e;
                    e.compression = &compression;
                    e.type = type;
                    e.count = count;
                    e.gradient = gradient.data();
                    e.error = errors[side].data();
                    e.lossScale = 4;
                    e.code = codes[side].data();
                    e.scratch = scratch.data();
                    kernels::Decoding d;
                    d.compression = &compression;
                    d.type = type;
                    d.all = count;
                    d.codes = codes[side].data();
                    d.stride = static_cast<std::int64_t>(bytes);
                    d.ranks = 2;
                    d.begin = 500;
                    d.count = 600; // 97 of padding
                    d.out = sums[side].data();
                    d.accumulate = true;
                    kernels::CpuDevice cpu(1, kernels::detectIsa());
                    kernels::KernelDevice &one =
                        side == 0 ? static_cast<kernels::KernelDevice &>(cpu) : device;
                    one.encode(e);
                    std::copy_n(codes[side].begin(), bytes,
                                codes[side].begin() + static_cast<std::ptrdiff_t>(bytes));
                    one.decode(d);
                }
                EXPECT_TRUE(std::equal(codes[0].begin(), codes[0].begin() + 8, codes[1].begin())) << "header";
                const double step = type == DType::F64 ? 1e-12 : 1e-5;
                for (std::size_t i = 0; i < 600; ++i) {
                    const double a = sums[0].get(i), b = sums[1].get(i);
                    EXPECT_TRUE(std::isnan(a) ? std::isnan(b) : std::abs(a - b) <= step)
                        << i << ": " << a << " " << b;
                }
                for (std::size_t i = 0; i < errors[0].size(); ++i)
                    EXPECT_NEAR(errors[0].get(i), errors[1].get(i), step) << i;
            }
        }
    }
}
