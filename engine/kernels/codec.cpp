// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/kernels/codec.h"

#include "engine/base/float16.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace rankyard::kernels {

using plan::CodeForm;

namespace {

template<typename A>
A load(const std::byte *p, std::int64_t i)
{
    A value;
    std::memcpy(&value, p + i * static_cast<std::int64_t>(sizeof(A)), sizeof(A));
    return value;
}
template<typename A>
void store(std::byte *p, std::int64_t i, A value)
{
    std::memcpy(p + i * static_cast<std::int64_t>(sizeof(A)), &value, sizeof(A));
}

/// The parts of a code.
template<typename A>
struct Code {
    std::int64_t count, block, blocks, top;

    Code(const spec::Compression &c, std::int64_t elements)
        : count(elements),
          block(c.block),
          blocks((elements + c.block - 1) / c.block),
          top(plan::topCount(c, elements))
    {}
    template<typename B>
    static B *body(B *code)
    {
        return code + plan::codeHeaderBytes;
    }
    template<typename B>
    B *largest(B *code) const
    {
        return body(code) + blocks * static_cast<std::int64_t>(sizeof(A));
    }
    template<typename B>
    B *bytes(B *code) const
    {
        return body(code) + 2 * blocks * static_cast<std::int64_t>(sizeof(A));
    }
    template<typename B>
    B *places(B *code) const
    {
        return body(code) + top * static_cast<std::int64_t>(sizeof(A));
    }
};

template<typename A>
void encodeHalf(const A *x, std::int64_t count, std::byte *code)
{
    for (std::int64_t i = 0; i < count; ++i)
        store(Code<A>::body(code), i, toHalf(static_cast<float>(x[i])));
}

/// A block that holds something not finite says so in its limits, and so does all that is decoded from it.
template<typename A>
void encodeBytes(const A *x, const Code<A> &parts, std::byte *code)
{
    for (std::int64_t b = 0; b < parts.blocks; ++b) {
        const std::int64_t begin = b * parts.block, end = std::min(begin + parts.block, parts.count);
        A least = x[begin], largest = x[begin], check = 0;
        for (std::int64_t i = begin; i < end; ++i) {
            least = x[i] < least ? x[i] : least;
            largest = x[i] > largest ? x[i] : largest;
            check += x[i] * 0;
        }
        if (check != 0) // NaN
            least = largest = std::numeric_limits<A>::quiet_NaN();
        const A scale = largest > least ? 255 / (largest - least) : 0;
        for (std::int64_t i = begin; i < end; ++i) {
            const A level = (x[i] - least) * scale + static_cast<A>(0.5);
            parts.bytes(code)[i] = static_cast<std::byte>(level > 0 ? (level < 255 ? level : 255) : 0);
        }
        store(Code<A>::body(code), b, least);
        store(parts.largest(code), b, largest);
    }
}

/// The largest by magnitude; of equal ones the first. NaN is larger than all.
template<typename A>
void encodeTop(const A *x, const Code<A> &parts, std::byte *code, A *sizes)
{
    const auto sizeOf = [](A value) {
        return value == value ? std::abs(value) : std::numeric_limits<A>::infinity();
    };
    std::transform(x, x + parts.count, sizes, sizeOf);
    std::nth_element(sizes, sizes + parts.top - 1, sizes + parts.count, std::greater<>());
    const A least = sizes[parts.top - 1];
    std::int64_t equal =
        parts.top - std::count_if(sizes, sizes + parts.top, [&](A size) { return size > least; });
    std::int64_t place = 0;
    for (std::int64_t i = 0; i < parts.count && place < parts.top; ++i) {
        const A size = sizeOf(x[i]);
        if (size < least || (size == least && equal-- <= 0))
            continue;
        store(Code<A>::body(code), place, x[i]);
        store(parts.places(code), place, static_cast<std::uint32_t>(i));
        ++place;
    }
}

template<typename A>
CodeForm formOf(const Encoding &e, const A *x)
{
    const std::string &mode = e.compression->mode;
    if (mode == "topk")
        return CodeForm::Top;
    if (mode != "adaptive")
        return mode == "fp16" ? CodeForm::Half : CodeForm::Byte;
    double squares = 0;
    for (std::int64_t i = 0; i < e.count; ++i)
        squares += static_cast<double>(x[i]) * static_cast<double>(x[i]);
    return std::sqrt(squares) / e.lossScale > e.compression->threshold ? CodeForm::Half : CodeForm::Byte;
}

template<typename A>
void decodeInto(const spec::Compression &c, std::int64_t count, const std::byte *code, std::int64_t begin,
                std::int64_t end, A *out)
{
    const Code<A> parts(c, count);
    switch (static_cast<CodeForm>(load<std::uint32_t>(code, 0))) {
    case CodeForm::Half:
        for (std::int64_t i = begin; i < end; ++i)
            out[i - begin] += static_cast<A>(fromHalf(load<std::uint16_t>(Code<A>::body(code), i)));
        return;
    case CodeForm::Byte:
        for (std::int64_t i = begin; i < end;) {
            const std::int64_t b = i / parts.block, last = std::min(end, (b + 1) * parts.block);
            const A least = load<A>(Code<A>::body(code), b);
            const A step = (load<A>(parts.largest(code), b) - least) / 255;
            for (; i < last; ++i)
                out[i - begin] += least + step * static_cast<A>(std::to_integer<int>(parts.bytes(code)[i]));
        }
        return;
    default:
        for (std::int64_t k = 0; k < parts.top; ++k) {
            const std::int64_t place = load<std::uint32_t>(parts.places(code), k);
            if (place >= begin && place < end)
                out[place - begin] += load<A>(Code<A>::body(code), k);
        }
    }
}

template<typename A>
CodeForm encodeAs(const Encoding &e)
{
    const A *x = static_cast<const A *>(e.gradient);
    A *error = static_cast<A *>(e.error), *scratch = static_cast<A *>(e.scratch);
    const A scale = static_cast<A>(e.lossScale);
    if (error) {
        for (std::int64_t i = 0; i < e.count; ++i)
            scratch[i] = x[i] + error[i] * scale;
        x = scratch;
        scratch += e.count;
    }
    const Code<A> parts(*e.compression, e.count);
    const CodeForm form = formOf(e, x);
    store(e.code, 0, static_cast<std::uint32_t>(form));
    store(e.code, 1, plan::usedUnits(form, *e.compression, e.type, e.count));
    if (e.count > 0) {
        if (form == CodeForm::Half)
            encodeHalf(x, e.count, e.code);
        else if (form == CodeForm::Byte)
            encodeBytes(x, parts, e.code);
        else
            encodeTop(x, parts, e.code, scratch);
    }
    if (!error)
        return form;
    for (std::int64_t i = 0; i < e.count; ++i)
        error[i] = 0;
    decodeInto(*e.compression, e.count, e.code, 0, e.count, error);
    for (std::int64_t i = 0; i < e.count; ++i) {
        const A left = (x[i] - error[i]) / scale;
        error[i] = left - left == 0 ? left : 0;
    }
    return form;
}

} // namespace

std::int64_t encodeScratch(const spec::Compression &c, DType type, std::int64_t count)
{
    return ((c.errorFeedback ? count : 0) + (c.mode == "topk" ? count : 0))
        * static_cast<std::int64_t>(bytesOf(type));
}

CodeForm encode(const Encoding &encoding)
{
    return encoding.type == DType::F64 ? encodeAs<double>(encoding) : encodeAs<float>(encoding);
}

void decodeAdd(const spec::Compression &compression, DType type, std::int64_t count, const std::byte *code,
               std::int64_t begin, std::int64_t end, void *out)
{
    if (type == DType::F64)
        decodeInto(compression, count, code, begin, end, static_cast<double *>(out));
    else
        decodeInto(compression, count, code, begin, end, static_cast<float *>(out));
}

} // namespace rankyard::kernels
