// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/kernels/kernel_device.h"
#include "engine/plan/units.h"

#include <functional>
#include <string>

/// From an op of the program to a kernel call with its addresses (the table in engine/plan/units.h, row by row).
namespace rankyard::kernels {

using BindResult = Result<std::unique_ptr<exec::BoundOp>>;

BindResult bindForward(KernelDevice &device, const exec::BindContext &context, const plan::Op &op);
BindResult bindBackwardInput(KernelDevice &device, const exec::BindContext &context, const plan::Op &op);
BindResult bindBackwardWeight(KernelDevice &device, const exec::BindContext &context, const plan::Op &op);
/// The segments that the three above choose from, in files of their own.
class Binder;
BindResult bindLookup(const Binder &binder);
BindResult bindLookupBackward(const Binder &binder);
BindResult bindEmbeddingJoin(const Binder &binder);
BindResult bindEmbeddingJoinBackward(const Binder &binder);
BindResult bindNorm(const Binder &binder);
BindResult bindNormBackward(const Binder &binder);
BindResult bindJoin(const Binder &binder);
BindResult bindJoinBackward(const Binder &binder);
BindResult bindQkv(const Binder &binder);
BindResult bindQkvBackward(const Binder &binder);
BindResult bindUp(const Binder &binder);
BindResult bindUpBackward(const Binder &binder);
BindResult bindActivation(const Binder &binder);
BindResult bindProduct(const Binder &binder);       ///< y = x·Wᵀ
BindResult bindProductInput(const Binder &binder);  ///< dx = dy·W
BindResult bindProductWeight(const Binder &binder); ///< dW (+)= dyᵀ·x
BindResult bindKeyValues(const Binder &binder);
BindResult bindKeyValuesBackward(const Binder &binder);
BindResult bindCore(const Binder &binder);
BindResult bindCoreBackward(const Binder &binder);
BindResult bindLogits(const Binder &binder);
BindResult bindLoss(const Binder &binder);

BindResult bindAdd(KernelDevice &device, const exec::BindContext &context, const plan::Op &op);
BindResult bindCopy(KernelDevice &device, const exec::BindContext &context, const plan::Op &op);
BindResult bindEncode(KernelDevice &device, const exec::BindContext &context, const plan::Op &op);
BindResult bindDecode(KernelDevice &device, const exec::BindContext &context, const plan::Op &op);
BindResult bindGradNorm(KernelDevice &device, const exec::BindContext &context, const plan::Op &op);
BindResult bindOptimizer(KernelDevice &device, const exec::BindContext &context, const plan::Op &op);

/// An op as a function object: copied once at load, called every step.
template<typename Work>
class FunctionOp : public exec::BoundOp
{
public:
    FunctionOp(Work work, bool flush) : m_work(std::move(work)), m_flush(flush) {}
    void run(exec::StepState &state) override
    {
        const FlushSubnormals flush(m_flush);
        m_work(state);
    }

private:
    Work m_work;
    bool m_flush;
};

/// What the bind functions share: the op's operands by place, the sizes of the model, checks, sums over threads.
class Binder
{
public:
    Binder(KernelDevice &device, const exec::BindContext &context, const plan::Op &op);

    KernelDevice &device;
    const exec::BindContext &context;
    const plan::Op &op;
    const spec::JobSpec &job;
    plan::Split split; ///< sizes on this rank, where operands do not say them
    DType compute;
    const KernelTable *table = nullptr; ///< null: compute type without kernels
    bool llama;
    int tensorRank, contextRank;

    /// Error unless the op has that many operands, the kernels know the compute type, and activations have it.
    Status require(std::size_t reads, std::size_t writes) const;
    Error missing(const std::string &what) const;

    void *read(std::size_t place) const { return at(op.reads[place]); }
    void *write(std::size_t place) const { return at(op.writes[place]); }
    const plan::Buffer &readBuffer(std::size_t place) const
    {
        return context.program->buffer(op.reads[place]);
    }
    const plan::Buffer &writeBuffer(std::size_t place) const
    {
        return context.program->buffer(op.writes[place]);
    }
    /// Elements of one row of an operand, and its rows.
    std::int64_t readWidth(std::size_t place) const { return readBuffer(place).shape.back(); }
    std::int64_t readRows(std::size_t place) const { return readBuffer(place).shape.front(); }
    std::int64_t writeWidth(std::size_t place) const { return writeBuffer(place).shape.back(); }
    bool training() const { return context.program->kind == plan::ProgramKind::Train; }
    /// Columns of the vocabulary on this rank: the first one's place, and how many are no padding.
    std::int64_t firstColumn() const { return split.vocab * tensorRank; }
    std::int64_t columns() const;
    /// Sequence and position of each of this rank's rows of a micro-batch: all T, or its R of the residual stream.
    const RowPlaces &places(std::int64_t rows) const;
    /// Whether the op drops elements: the model does, and the program trains.
    bool drops() const { return training() && job.model.dropout > 0; }
    /// What it drops at a site (units.h) of the rows in `places`; firstSample is set at each step by atStep().
    Dropout dropout(std::uint32_t site, const RowPlaces &places) const;

    std::size_t computeBytes() const { return bytesOf(compute); }
    std::size_t accBytes() const { return compute == DType::F64 ? 8 : 4; }
    /// How the gradient in writes[place] is stored.
    Result<GradientStorage> gradient(std::size_t place) const;
    Result<GradientStorage> storageOf(DType type) const;

    template<typename Work>
    BindResult make(Work work) const
    {
        return std::unique_ptr<exec::BoundOp>(
            std::make_unique<FunctionOp<Work>>(std::move(work), compute != DType::F64));
    }

private:
    void *at(plan::BufferId id) const { return context.address[static_cast<std::size_t>(id)]; }
};

inline std::byte *rowsFrom(const void *base, std::int64_t elements, std::size_t size)
{
    return static_cast<std::byte *>(const_cast<void *>(base)) + elements * static_cast<std::int64_t>(size);
}

/// The micro-batch's place among the samples of the run.
class SamplePlace
{
public:
    explicit SamplePlace(const Binder &binder);
    Dropout at(Dropout dropout, const exec::StepState &state) const
    {
        dropout.firstSample = state.batch * m_global + m_first;
        return dropout;
    }

private:
    std::int64_t m_global, m_first;
};

/// Rows divided among the threads.
template<typename Work>
void forRows(KernelDevice &device, bool flush, std::int64_t rows, Work work)
{
    device.team().run([&](int thread) {
        const FlushSubnormals flushing(flush);
        const Range range = share(rows, device.team().size(), thread);
        if (range.size() > 0)
            work(range);
    });
}

/// y = x·Wᵀ [+ b] of rows tokens; W [out, in].
Gemm linear(const void *x, const void *w, const void *b, void *y, std::int64_t rows, std::int64_t in,
            std::int64_t out);
/// dx = dy·W
Gemm linearInput(const void *dy, const void *w, void *dx, std::int64_t rows, std::int64_t in,
                 std::int64_t out);
/// dW (+)= dyᵀ·x
Gemm linearWeight(const void *dy, const void *x, void *dw, std::int64_t rows, std::int64_t in,
                  std::int64_t out, GradientStorage storage, bool accumulate);

/// A product divided among the threads; knows the scratch that it needs.
class TeamGemm
{
public:
    /// Reserves scratch. The pointers of `gemm` stay as given; a, b, c may be moved in run().
    TeamGemm(KernelDevice &device, const KernelTable &table, const Gemm &gemm, std::size_t inputBytes,
             std::size_t accBytes);
    void run(exec::StepState &state) const;

private:
    Gemm part(int thread) const;

    KernelDevice *m_device;
    const KernelTable *m_table;
    Gemm m_gemm;
    std::int64_t m_inputBytes;
    std::int64_t m_outputBytes;
    bool m_byColumns = false;
};

/// Sums over rows (bias and norm gradients): every thread adds its rows into its own `width` Acc zeros, then the sums are
/// added in the order of the threads and written to the gradients.
class ColumnSums
{
public:
    struct Target {
        void *gradient;
        GradientStorage storage;
        std::int64_t width;
    };
    ColumnSums(const Binder &binder, std::vector<Target> targets);

    /// work(rows, sums): sums[i] is the place for target i.
    template<typename Work>
    void run(std::int64_t rows, Work work) const
    {
        m_device->team().run([&](int thread) {
            const FlushSubnormals flush(m_accBytes == 4);
            void *sums[2];
            zeroed(thread, sums);
            const Range range = share(rows, m_device->team().size(), thread, 8);
            if (range.size() > 0)
                work(range, sums);
        });
        finish();
    }

private:
    void zeroed(int thread, void **sums) const;
    void finish() const;

    KernelDevice *m_device;
    const KernelTable *m_table;
    std::vector<Target> m_targets;
    std::int64_t m_accBytes;
    bool m_accumulate;
};

} // namespace rankyard::kernels
