// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/kernels/bind.h"
#include "engine/kernels/codec.h"

#include <algorithm>
#include <cstring>

namespace rankyard::kernels {

namespace {

bool isAcc(DType type) { return type == DType::F32 || type == DType::F64; }

} // namespace

BindResult bindEncode(CpuDevice &device, const exec::BindContext &context, const plan::Op &op)
{
    const Binder b(device, context, op);
    const bool feedback = op.reads.size() > 1;
    RY_TRY(b.require(1, feedback ? 2 : 1));
    const plan::Buffer &gradient = b.readBuffer(0);
    Encoding e;
    e.compression = &b.job.compression;
    e.type = gradient.dtype;
    const auto index = static_cast<std::size_t>(op.chunk);
    if (op.chunk < 0 || index >= context.program->buckets.size())
        return b.missing("names no bucket of the program");
    e.count = context.program->buckets[index].numel;
    e.gradient = b.read(0);
    e.error = feedback ? b.write(1) : nullptr;
    e.code = static_cast<std::byte *>(b.write(0));
    if (!isAcc(e.type))
        return b.missing(std::string("no codec of ") + nameOf(e.type));
    if (b.writeBuffer(0).bytes < plan::codeBytes(b.job.compression, e.type, e.count))
        return b.missing("the buffer of the code is too small");
    device.reserve(encodeScratch(b.job.compression, e.type, e.count));
    return b.make([&device, e](exec::StepState &state) {
        Encoding now = e;
        now.scratch = device.scratch(0);
        now.lossScale = state.lossScale;
        encode(now);
    });
}

BindResult bindDecode(CpuDevice &device, const exec::BindContext &context, const plan::Op &op)
{
    const Binder b(device, context, op);
    RY_TRY(b.require(1, 1));
    const auto index = static_cast<std::size_t>(op.chunk);
    if (op.chunk < 0 || index >= context.program->buckets.size())
        return b.missing("names no bucket of the program");
    const plan::Bucket &bucket = context.program->buckets[index];
    const plan::Buffer &out = b.writeBuffer(0), &codes = b.readBuffer(0);
    const DType type = out.dtype;
    if (!isAcc(type))
        return b.missing(std::string("no codec of ") + nameOf(type));
    const std::int64_t size = static_cast<std::int64_t>(bytesOf(type)), count = out.bytes / size;
    const std::int64_t begin = bucket.slices > 1 ? context.indexIn(bucket.group) * count : 0;
    const std::int64_t ranks = codes.shape.front();
    return b.make([&device, &compression = b.job.compression, type, size, count, begin, ranks,
                   all = bucket.numel, stride = codes.bytes / ranks, codesAt = b.read(0), outAt = b.write(0),
                   accumulate = op.accumulate](exec::StepState &) {
        device.team().run([&](int thread) {
            const Range range = share(count, device.team().size(), thread, compression.block);
            std::byte *sum = rowsFrom(outAt, range.begin, static_cast<std::size_t>(size));
            if (!accumulate)
                std::memset(sum, 0, static_cast<std::size_t>(range.size() * size));
            const std::int64_t end = std::min(begin + range.end, all); // padding stays zero
            for (std::int64_t rank = 0; rank < ranks && begin + range.begin < end; ++rank)
                decodeAdd(compression, type, all, rowsFrom(codesAt, rank * stride, 1), begin + range.begin,
                          end, sum);
        });
    });
}

} // namespace rankyard::kernels
