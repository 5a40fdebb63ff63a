// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/kernels/bind.h"
#include "engine/kernels/codec.h"

namespace rankyard::kernels {

namespace {

bool isAcc(DType type) { return type == DType::F32 || type == DType::F64; }

} // namespace

BindResult bindEncode(KernelDevice &device, const exec::BindContext &context, const plan::Op &op)
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
        device.encode(now);
    });
}

BindResult bindDecode(KernelDevice &device, const exec::BindContext &context, const plan::Op &op)
{
    const Binder b(device, context, op);
    RY_TRY(b.require(1, 1));
    const auto index = static_cast<std::size_t>(op.chunk);
    if (op.chunk < 0 || index >= context.program->buckets.size())
        return b.missing("names no bucket of the program");
    const plan::Bucket &bucket = context.program->buckets[index];
    const plan::Buffer &out = b.writeBuffer(0), &codes = b.readBuffer(0);
    Decoding d;
    d.compression = &b.job.compression;
    d.type = out.dtype;
    if (!isAcc(d.type))
        return b.missing(std::string("no codec of ") + nameOf(d.type));
    d.all = bucket.numel;
    d.count = out.bytes / static_cast<std::int64_t>(bytesOf(d.type));
    d.begin = bucket.slices > 1 ? context.indexIn(bucket.group) * d.count : 0;
    d.codes = static_cast<const std::byte *>(b.read(0));
    d.ranks = codes.shape.front();
    d.stride = codes.bytes / d.ranks;
    d.out = b.write(0);
    d.accumulate = op.accumulate;
    return b.make([&device, d](exec::StepState &) { device.decode(d); });
}

} // namespace rankyard::kernels
