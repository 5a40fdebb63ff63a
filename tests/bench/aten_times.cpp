// SPDX-License-Identifier: GPL-3.0-or-later
#include "tests/bench/aten_times.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <cstdio>
#include <ctime>

namespace rankyard::bench {

namespace {

template<typename Work>
double bestMs(Work work)
{
    const auto clock = at::get_num_threads() == 1 ? threadCpuNs : monotonicNs;
    work();
    double best = 1e30;
    for (const std::int64_t end = monotonicNs() + 700'000'000; monotonicNs() < end;) {
        const std::int64_t begin = clock();
        work();
        best = std::min(best, static_cast<double>(clock() - begin) / 1e6);
    }
    return best;
}

void print(const char *name, double flops, double ms)
{
    std::printf("  %-34s %9.2f ms %17.1f GFLOP/s\n", name, ms, flops / ms / 1e6);
}

} // namespace

std::int64_t threadCpuNs()
{
    timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<std::int64_t>(time.tv_sec) * 1'000'000'000 + time.tv_nsec;
}

void printAtenTimes(const spec::JobSpec &job, int threads)
{
    at::set_num_threads(threads);
    const c10::InferenceMode inference;
    const at::ScalarType type = job.precision.compute == DType::F64 ? at::kDouble
        : job.precision.compute == DType::BF16                      ? at::kBFloat16
                                                                    : at::kFloat;
    const std::int64_t tokens = job.batch.micro * job.model.seq, hidden = job.model.hidden;
    struct Linear {
        const char *name;
        std::int64_t in, out;
    };
    for (const Linear l : {Linear{"qkv", hidden, 3 * hidden},
                           {"out", hidden, hidden},
                           {"up", hidden, job.model.ffnSize()},
                           {"down", job.model.ffnSize(), hidden},
                           {"head", hidden, job.model.vocab}}) {
        const at::Tensor x = at::randn({tokens, l.in}).to(type), w = at::randn({l.out, l.in}).to(type);
        const at::Tensor dy = at::randn({tokens, l.out}).to(type), b = at::randn({l.out}).to(type);
        at::Tensor y = at::empty_like(dy), dx = at::empty_like(x), dw = at::zeros_like(w);
        const double flops =
            2.0 * static_cast<double>(tokens) * static_cast<double>(l.in) * static_cast<double>(l.out);
        std::printf(" %s\n", l.name);
        print("forward (addmm_out)", flops, bestMs([&] { at::addmm_out(y, b, x, w.t()); }));
        print("backward input (mm_out)", flops, bestMs([&] { at::mm_out(dx, dy, w); }));
        print("backward weight (addmm_out, beta 1)", flops,
              bestMs([&] { at::addmm_out(dw, dw, dy.t(), x); }));
    }
    const std::int64_t heads = job.model.heads, size = job.model.headSize();
    const at::Tensor qkv = at::randn({job.batch.micro, job.model.seq, 3, heads, size}).to(type);
    const at::Tensor q = qkv.select(2, 0).transpose(1, 2), k = qkv.select(2, 1).transpose(1, 2),
                     v = qkv.select(2, 2).transpose(1, 2);
    const double flops = 4.0 * static_cast<double>(tokens * job.model.seq * heads * size);
    std::printf(" attention (whole square counted)\n");
    const auto [o, lse] = at::_scaled_dot_product_flash_attention_for_cpu(q, k, v, 0, true);
    print("forward (flash for CPU)", flops,
          bestMs([&] { at::_scaled_dot_product_flash_attention_for_cpu(q, k, v, 0, true); }));
    const at::Tensor grad = at::randn_like(o);
    print("backward", 2 * flops, bestMs([&, &output = o, &sums = lse] {
              at::_scaled_dot_product_flash_attention_for_cpu_backward(grad, q, k, v, output, sums, 0, true);
          }));
}

} // namespace rankyard::bench
