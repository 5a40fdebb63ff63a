// SPDX-License-Identifier: GPL-3.0-or-later
// What the launcher shows of kernels: that their threads may run in any order between two barriers, and that it would show if not.
#include "engine/cuda/column_product.h"
#include "engine/cuda/kernels/launch.h"
#include "tests/engine/cuda/host_gpu.h"
#include "tests/engine/cuda/host_launcher.h"
#include "tests/engine/kernels/storage.h"

#include <gtest/gtest.h>
#include <stdexcept>

using namespace rankyard;
using namespace rankyard::cuda;
using namespace rankyard::cuda::test;
using kernels::test::randomValues;
using kernels::test::Storage;

namespace {

constexpr ThreadOrder orders[] = {ThreadOrder::Forward, ThreadOrder::Backward, ThreadOrder::Shuffled};

/// Everything runs when it is started, with partials of its own.
class Launcher : public testing::Test
{
protected:
    Launcher() : m_scope({&m_gpu, nullptr, m_partials.data(), static_cast<std::int64_t>(m_partials.size())})
    {}
    ~Launcher() override { setThreadOrder(ThreadOrder::Forward); }

    /// What `run` leaves in each order of threads; it is given fresh storage each time.
    static void expectEqualInAllOrders(
        const Storage &before, const std::function<void(const kernels::KernelTable &, Storage &)> &run)
    {
        std::vector<kernels::reference::Values> results;
        for (const ThreadOrder order : orders) {
            setThreadOrder(order);
            Storage out = before;
            run(hostTables().all.f32, out);
            results.push_back(out.values());
        }
        EXPECT_EQ(results[0], results[1]);
        EXPECT_EQ(results[0], results[2]);
    }

private:
    HostGpu m_gpu{HostGpu::Mode::Immediate};
    std::vector<std::byte> m_partials = std::vector<std::byte>(16 << 20);
    QueueScope m_scope;
};

/// Each thread writes its place and reads its neighbour's: right only with a barrier between.
struct Neighbours {
    static constexpr bool cooperative = true;
    float *out;
    bool barrier;
    void operator()(Block &block) const
    {
        float *shared = reinterpret_cast<float *>(block.shared());
        shared[block.thread()] = static_cast<float>(block.thread());
        if (barrier)
            block.sync();
        out[block.thread()] = shared[(block.thread() + 1) % block.threads()];
    }
};

/// Half of a warp leaves the other half alone.
struct HalfWaits {
    static constexpr bool cooperative = true;
    void operator()(Block &block) const
    {
        if (block.lane() < 16)
            block.syncWarp();
        else
            block.sync();
    }
};

} // namespace

/// The arguments that cuBLAS gets, by BLAS' own definition of a product in columns.
TEST(ColumnProduct, IsTheProductOfRows)
{
    const std::int64_t m = 3, n = 5, k = 4;
    for (const auto &[aT, bT] : {std::pair{false, false}, {false, true}, {true, false}, {true, true}}) {
        const auto a = randomValues(7 * 8, 1),
                   b = randomValues(7 * 8, 2); // rows of 7 and 8 elements: more than there are
        kernels::Gemm g;
        g.m = m;
        g.n = n;
        g.k = k;
        g.lda = 7;
        g.ldb = 8;
        g.ldc = 6;
        g.a = a.data();
        g.b = b.data();
        g.aTransposed = aT;
        g.bTransposed = bT;
        const ColumnProduct p = inColumns(g);
        ASSERT_TRUE(p.m == n && p.n == m && p.k == k);
        const auto element = [](const void *matrix, std::int64_t ld, bool turned, std::int64_t row,
                                std::int64_t column) {
            return static_cast<const double *>(matrix)[turned ? column + row * ld : row + column * ld];
        };
        for (std::int64_t i = 0; i < m; ++i) {
            for (std::int64_t j = 0; j < n; ++j) {
                double wanted = 0, got = 0;
                for (std::int64_t l = 0; l < k; ++l) {
                    wanted += a[static_cast<std::size_t>(aT ? l * 7 + i : i * 7 + l)]
                        * b[static_cast<std::size_t>(bT ? j * 8 + l : l * 8 + j)];
                    // C(row j, column i) in columns is at j + i·ldc: row i, column j in rows.
                    got += element(p.first, p.ldFirst, p.firstTransposed, j, l)
                        * element(p.second, p.ldSecond, p.secondTransposed, l, i);
                }
                EXPECT_NEAR(got, wanted, 1e-12);
            }
        }
        EXPECT_EQ(p.ldc, g.ldc);
    }
}

TEST_F(Launcher, AMissingBarrierShows)
{
    for (const bool barrier : {true, false}) {
        bool right = true;
        for (const ThreadOrder order : orders) {
            setThreadOrder(order);
            std::vector<float> out(64);
            launch({1, 1, 1}, 64, 64 * 4, Neighbours{out.data(), barrier});
            for (std::size_t i = 0; i < out.size(); ++i)
                right = right && out[i] == static_cast<float>((i + 1) % out.size());
        }
        EXPECT_EQ(right, barrier);
    }
    EXPECT_THROW(launch({1, 1, 1}, 32, 0, HalfWaits{}), std::runtime_error);
}

TEST_F(Launcher, ThreadsOfNormsAndLossesRunInAnyOrder)
{
    const std::int64_t rows = 9, width = 300; // more than a block has threads
    const auto count = static_cast<std::size_t>(rows * width);
    Storage x(DType::F32, randomValues(count, 1)), w(DType::F32, randomValues(300, 2)),
        b(DType::F32, randomValues(300, 3));
    Storage stats(DType::F32, 2 * rows), dw(DType::F32, 300), db(DType::F32, 300);
    expectEqualInAllOrders(Storage(DType::F32, count), [&](const auto &table, Storage &out) {
        table.normForward[kernels::Layer](x.data(), w.data(), b.data(), out.data(), stats.data(), rows, width,
                                          1e-5);
    });
    expectEqualInAllOrders(Storage(DType::F32, randomValues(count, 4)), [&](const auto &table, Storage &out) {
        table.normBackward[kernels::Layer](out.data(), x.data(), stats.data(), w.data(), x.data(), dw.data(),
                                           db.data(), rows, width);
    });
    std::vector<std::int32_t> labels;
    for (std::int32_t row = 0; row < rows; ++row)
        labels.push_back(row * 33 - 1);
    expectEqualInAllOrders(x, [&](const auto &table, Storage &out) {
        kernels::SoftmaxLoss s;
        s.logits = out.data();
        s.ld = s.vocab = width;
        s.labels = labels.data();
        s.rows = rows;
        s.backward = true;
        double sum = 0;
        table.softmaxLoss(s, &sum);
        out.set(0, sum);
    });
    expectEqualInAllOrders(Storage(DType::F64, 2), [&](const auto &table, Storage &out) {
        auto *sums = static_cast<double *>(out.data());
        table.sumSquares[kernels::Wide](x.data(), static_cast<std::int64_t>(count), sums, sums + 1);
    });
}

TEST_F(Launcher, ThreadsOfAttentionRunInAnyOrder)
{
    const std::int64_t seq = 50, heads = 4, kvHeads = 2, size = 40, width = (heads + 2 * kvHeads) * size;
    Storage qkv(DType::F32, randomValues(static_cast<std::size_t>(seq * width), 1));
    Storage dO(DType::F32, randomValues(static_cast<std::size_t>(seq * heads * size), 2));
    Storage lse(DType::F32, static_cast<std::size_t>(heads * seq)),
        scratch(DType::F32, static_cast<std::size_t>(heads * seq));
    const auto part = [](Storage &all, std::int64_t from) { return static_cast<float *>(all.data()) + from; };
    kernels::Attention a;
    a.queries = a.keys = a.rowsQ = a.rowsKv = a.tokens = seq;
    a.heads = heads;
    a.kvHeads = kvHeads;
    a.size = size;
    a.sequences = 1;
    a.ldQ = a.ldKv = width;
    a.ldO = heads * size;
    a.q = qkv.data();
    a.k = part(qkv, heads * size);
    a.v = part(qkv, (heads + kvHeads) * size);
    a.lse = lse.data();
    a.scratch = scratch.data();
    Storage o(DType::F32, dO.size());
    expectEqualInAllOrders(o, [&](const auto &table, Storage &out) {
        a.o = out.data();
        table.attentionForward(a, 0, kvHeads);
    });
    a.o = o.data();
    hostTables().all.f32.attentionForward(a, 0, kvHeads);
    a.dO = dO.data();
    expectEqualInAllOrders(Storage(DType::F32, qkv.size()), [&](const auto &table, Storage &out) {
        a.dq = out.data();
        a.dk = part(out, heads * size);
        a.dv = part(out, (heads + kvHeads) * size);
        table.attentionBackward(a, 0, kvHeads);
    });
}
