// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/kernels/bind.h"

#include "engine/exec/random.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace rankyard::kernels {

namespace {

const KernelTable *tableFor(const IsaTables &tables, DType type)
{
    switch (type) {
    case DType::F32:
        return &tables.f32;
    case DType::F64:
        return &tables.f64;
    case DType::BF16:
        return &tables.bf16;
    case DType::F16:
        return &tables.f16;
    default:
        return nullptr;
    }
}

void addInto(void *to, const void *from, std::int64_t count, std::int64_t accBytes)
{
    if (accBytes == 8) {
        for (std::int64_t i = 0; i < count; ++i)
            static_cast<double *>(to)[i] += static_cast<const double *>(from)[i];
    } else {
        for (std::int64_t i = 0; i < count; ++i)
            static_cast<float *>(to)[i] += static_cast<const float *>(from)[i];
    }
}

std::int64_t rounded(std::int64_t bytes) { return (bytes + 63) / 64 * 64; }

} // namespace

Binder::Binder(KernelDevice &bound, const exec::BindContext &bindContext, const plan::Op &boundOp)
    : device(bound),
      context(bindContext),
      op(boundOp),
      job(bindContext.plan->job),
      split(job),
      compute(job.precision.compute),
      table(tableFor(bound.tables(), compute)),
      llama(job.model.family == "llama"),
      tensorRank(bindContext.plan->grid.coordinate(bindContext.rank, "tp")),
      contextRank(bindContext.plan->grid.coordinate(bindContext.rank, "cp"))
{}

std::int64_t Binder::columns() const
{
    return std::clamp<std::int64_t>(job.model.vocab - firstColumn(), 0, split.vocab);
}

const RowPlaces &Binder::places(std::int64_t rows) const
{
    const std::int64_t first = rows < split.tokens ? tensorRank * rows : 0, ranks = job.layout.cp;
    return device.places(first, rows, job.model.seq / ranks, [&](std::int64_t row) {
        return plan::positionOf(row, job.model.seq, contextRank, ranks);
    });
}

Dropout Binder::dropout(std::uint32_t site, const RowPlaces &places) const
{
    Dropout d;
    const std::uint64_t seed = job.init.seed;
    d.key[0] = static_cast<std::uint32_t>(seed);
    d.key[1] = static_cast<std::uint32_t>(seed >> 32) ^ site;
    d.purpose = static_cast<std::uint32_t>(exec::Purpose::Dropout);
    d.threshold = static_cast<std::uint32_t>(std::min(std::ceil(job.model.dropout * 0x1p32), 0x1p32 - 1));
    d.scale = 1 / (1 - job.model.dropout);
    d.sample = places.sample;
    d.position = places.position;
    return d;
}

SamplePlace::SamplePlace(const Binder &b)
    : m_global(b.job.batch.global),
      m_first((b.context.plan->grid.coordinate(b.context.rank, "dp") * b.job.microBatches() + b.op.microbatch)
              * b.job.batch.micro)
{}

Gemm linear(const void *x, const void *w, const void *b, void *y, std::int64_t rows, std::int64_t in,
            std::int64_t out)
{
    Gemm g;
    g.m = rows;
    g.n = out;
    g.k = in;
    g.a = x;
    g.lda = in;
    g.b = w;
    g.ldb = in;
    g.bTransposed = true;
    g.c = y;
    g.ldc = out;
    g.bias = b;
    return g;
}

Gemm linearInput(const void *dy, const void *w, void *dx, std::int64_t rows, std::int64_t in,
                 std::int64_t out)
{
    Gemm g;
    g.m = rows;
    g.n = in;
    g.k = out;
    g.a = dy;
    g.lda = out;
    g.b = w;
    g.ldb = in;
    g.c = dx;
    g.ldc = in;
    return g;
}

Gemm linearWeight(const void *dy, const void *x, void *dw, std::int64_t rows, std::int64_t in,
                  std::int64_t out, GradientStorage storage, bool accumulate)
{
    Gemm g;
    g.m = out;
    g.n = in;
    g.k = rows;
    g.a = dy;
    g.lda = out;
    g.aTransposed = true;
    g.b = x;
    g.ldb = in;
    g.c = dw;
    g.ldc = in;
    g.wide = storage == GradientStorage::Wide;
    g.accumulate = accumulate;
    return g;
}

Error Binder::missing(const std::string &what) const
{
    return Error::make(Code::NotHere, what, plan::opName(op)).withFound(device.name());
}

Status Binder::require(std::size_t reads, std::size_t writes) const
{
    if (!table)
        return missing(std::string("no kernels for ") + nameOf(compute) + " on this device");
    if (op.reads.size() < reads || op.writes.size() < writes)
        return missing("has " + std::to_string(op.reads.size()) + " reads and "
                       + std::to_string(op.writes.size()) + " writes, needs " + std::to_string(reads)
                       + " and " + std::to_string(writes));
    const auto resolved = [&](plan::BufferId id) { return at(id) != nullptr; };
    if (!std::all_of(op.reads.begin(), op.reads.end(), resolved)
        || !std::all_of(op.writes.begin(), op.writes.end(), resolved))
        return missing("an operand has no address");
    return {};
}

Result<GradientStorage> Binder::storageOf(DType type) const
{
    const DType acc = compute == DType::F64 ? DType::F64 : DType::F32;
    if (type == acc)
        return GradientStorage::Wide;
    if (type == compute)
        return GradientStorage::Same;
    return missing(std::string("no kernel for ") + nameOf(compute) + " with gradients in " + nameOf(type));
}

Result<GradientStorage> Binder::gradient(std::size_t place) const
{
    return storageOf(writeBuffer(place).dtype);
}

TeamGemm::TeamGemm(KernelDevice &device, const KernelTable &table, const Gemm &gemm, std::size_t inputBytes,
                   std::size_t accBytes)
    : m_device(&device),
      m_table(&table),
      m_gemm(gemm),
      m_inputBytes(static_cast<std::int64_t>(inputBytes)),
      m_outputBytes(static_cast<std::int64_t>(gemm.wide ? accBytes : inputBytes))
{
    // Threads that share the columns pack B once in all and read A as it lies; where A has to be packed, or the columns are
    // few, the longer side is divided.
    const int threads = device.team().size();
    m_byColumns = gemm.aTransposed ? gemm.n > gemm.m : gemm.n >= 128L * threads;
    for (int thread = 0; thread < threads; ++thread)
        device.reserve(table.gemmScratch(part(thread)));
}

Gemm TeamGemm::part(int thread) const
{
    Gemm g = m_gemm;
    const int threads = m_device->team().size();
    if (threads == 1)
        return g;
    const auto moved = [](const void *p, std::int64_t bytes) {
        return p ? static_cast<void *>(static_cast<std::byte *>(const_cast<void *>(p)) + bytes) : nullptr;
    };
    std::int64_t output = 0;
    if (m_byColumns) {
        const Range range = share(g.n, threads, thread, 32);
        g.n = range.size();
        g.b = moved(g.b, range.begin * (g.bTransposed ? g.ldb : 1) * m_inputBytes);
        g.bias = moved(g.bias, range.begin * m_inputBytes);
        output = range.begin;
    } else {
        const Range range = share(g.m, threads, thread, 8);
        g.m = range.size();
        g.a = moved(g.a, range.begin * (g.aTransposed ? 1 : g.lda) * m_inputBytes);
        output = range.begin * g.ldc;
    }
    g.c = moved(g.c, output * m_outputBytes);
    g.gelu = moved(g.gelu, output * m_inputBytes);
    return g;
}

void TeamGemm::run(exec::StepState &state) const
{
    m_device->team().run([&](int thread) {
        const FlushSubnormals flush(m_inputBytes != 8);
        Gemm g = part(thread);
        if (g.m == 0 || g.n == 0)
            return;
        g.scratch = m_device->scratch(thread);
        if (thread == 0 && state.poll) {
            g.poll = [](void *context) { static_cast<exec::StepState *>(context)->poll(); };
            g.pollContext = &state;
        }
        m_table->gemm(g);
    });
}

ColumnSums::ColumnSums(const Binder &binder, std::vector<Target> targets)
    : m_device(&binder.device),
      m_table(binder.table),
      m_targets(std::move(targets)),
      m_accBytes(static_cast<std::int64_t>(binder.accBytes())),
      m_accumulate(binder.op.accumulate)
{
    std::int64_t bytes = 0;
    for (const Target &target : m_targets)
        bytes += rounded(target.width * m_accBytes);
    m_device->reserve(bytes);
}

void ColumnSums::zeroed(int thread, void **sums) const
{
    std::byte *place = m_device->scratch(thread);
    std::int64_t bytes = 0;
    for (std::size_t i = 0; i < m_targets.size(); ++i) {
        sums[i] = place + bytes;
        bytes += rounded(m_targets[i].width * m_accBytes);
    }
    m_device->fill(place, bytes);
}

void ColumnSums::finish() const
{
    std::int64_t offset = 0;
    for (const Target &target : m_targets) {
        std::byte *total = m_device->scratch(0) + offset;
        for (int thread = 1; thread < m_device->team().size(); ++thread)
            addInto(total, m_device->scratch(thread) + offset, target.width, m_accBytes);
        m_table->writeGradient[target.storage](total, target.gradient, target.width, m_accumulate);
        offset += rounded(target.width * m_accBytes);
    }
}

} // namespace rankyard::kernels
