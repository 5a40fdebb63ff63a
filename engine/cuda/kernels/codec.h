// SPDX-License-Identifier: GPL-3.0-or-later
// Compressed gradients (engine/plan/codec.h has their form), as the CPU's codec makes them. The form stands in the code's header, which
// later kernels read, so that the host need not know what an adaptive code has become.
#pragma once

#include "engine/cuda/kernels/gradients.h"
#include "engine/cuda/tables.h"

namespace rankyard::cuda {

/// The parts of a code of `count` elements of A.
template<typename A>
struct CodeParts {
    CodecShape shape;
    RY_DEVICE i64 blocks() const { return (shape.count + shape.block - 1) / shape.block; }
    RY_DEVICE std::uint32_t form(const char *code) const
    {
        return *reinterpret_cast<const std::uint32_t *>(code);
    }
    template<typename V, typename B>
    RY_DEVICE V *at(B *code, i64 bytes) const
    {
        return reinterpret_cast<V *>(code + shape.header + bytes);
    }
    /// What a code of halves or bytes says of element i.
    RY_DEVICE A value(const char *code, i64 i) const
    {
        if (form(code) == shape.half)
            return static_cast<A>(widen(at<const Half>(code, 0)[i]));
        const i64 b = i / shape.block;
        const A least = at<const A>(code, 0)[b];
        const A step = (at<const A>(code, 0)[blocks() + b] - least) / 255;
        const auto level = at<const unsigned char>(code, 2 * blocks() * static_cast<i64>(sizeof(A)))[i];
        return multiplyAdd(step, static_cast<A>(level), least);
    }
    /// Rounded after the product, as the CPU's code is.
    RY_DEVICE static A multiplyAdd(A a, A b, A c)
    {
#ifdef __CUDACC__
        if constexpr (sizeof(A) == 4)
            return __fadd_rn(__fmul_rn(a, b), c);
        else
            return __dadd_rn(__dmul_rn(a, b), c);
#else
        return a * b + c;
#endif
    }
};

template<typename A>
struct AddError {
    const A *gradient, *error;
    A *sum;
    A scale;
    RY_DEVICE void operator()(i64 i) const
    {
        sum[i] = CodeParts<A>::multiplyAdd(error[i], scale, gradient[i]);
    }
};

/// The header: halves where the unscaled norm is above the threshold, else bytes; without `squares` the form that is given.
struct WriteForm {
    char *code;
    CodecShape shape;
    std::uint32_t above;
    const double *squares;
    double lossScale, threshold;
    RY_DEVICE void operator()(i64) const
    {
        auto *words = reinterpret_cast<std::uint32_t *>(code);
        words[0] = !squares || sqrt(*squares) / lossScale > threshold ? above : shape.byte;
        words[1] = words[0] == shape.half ? shape.halfUnits : shape.byteUnits;
    }
};

template<typename A>
struct EncodeHalf {
    CodeParts<A> parts;
    const A *x;
    char *code;
    RY_DEVICE void operator()(i64 i) const
    {
        if (parts.form(code) == parts.shape.half)
            narrow(static_cast<float>(x[i]), parts.template at<Half>(code, 0)[i]);
    }
};

/// A warp a block of elements.
template<typename A>
struct EncodeBytes {
    static constexpr bool cooperative = true;
    CodeParts<A> parts;
    const A *x;
    char *code;
    RY_DEVICE void operator()(Block &block) const
    {
        if (parts.form(code) == parts.shape.half)
            return;
        const i64 begin = block.x() * parts.shape.block,
                  end = smaller(begin + parts.shape.block, parts.shape.count);
        A least = x[begin], largest = least, check = 0;
        for (i64 i = begin + block.lane(); i < end; i += warpSize) {
            least = smaller(x[i], least);
            largest = larger(x[i], largest);
            check += x[i] * 0;
        }
        least = overWarp(block, least, Fewest());
        largest = overWarp(block, largest, Most());
        check = overWarp(block, check, Plus());
        if (check != 0) // NaN: something here is not finite
            least = largest = check;
        const A scale = largest > least ? 255 / (largest - least) : 0;
        auto *levels =
            parts.template at<unsigned char>(code, 2 * parts.blocks() * static_cast<i64>(sizeof(A)));
        for (i64 i = begin + block.lane(); i < end; i += warpSize) {
            const A level = CodeParts<A>::multiplyAdd(x[i] - least, scale, static_cast<A>(0.5));
            levels[i] = static_cast<unsigned char>(level > 0 ? (level < 255 ? level : 255) : 0);
        }
        if (block.lane() == 0) {
            parts.template at<A>(code, 0)[block.x()] = least;
            parts.template at<A>(code, 0)[parts.blocks() + block.x()] = largest;
        }
    }

private:
    struct Fewest {
        RY_DEVICE A operator()(A a, A b) const { return smaller(a, b); }
    };
};

/// What the code leaves out, unscaled.
template<typename A>
struct LeftOut {
    CodeParts<A> parts;
    const A *x;
    const char *code;
    A *error;
    A scale;
    RY_DEVICE void operator()(i64 i) const
    {
        const A left = (x[i] - parts.value(code, i)) / scale;
        error[i] = left - left == 0 ? left : 0;
    }
};

template<typename A>
void encodeAs(const EncodeCall &e)
{
    const CodeParts<A> parts{e.shape};
    const A *x = static_cast<const A *>(e.gradient);
    A *error = static_cast<A *>(e.error), *sum = static_cast<A *>(e.scratch);
    char *code = static_cast<char *>(e.code);
    if (error) {
        forEach(e.shape.count, AddError<A>{x, error, sum, static_cast<A>(e.lossScale)});
        x = sum;
    }
    double *squares = nullptr;
    if (e.adaptive) {
        // Behind the partials of the sum itself.
        squares = static_cast<double *>(partials((2 * mostParts + 2) * static_cast<i64>(sizeof(double))))
            + 2 * mostParts;
        forEach(2, Zero{squares});
        sumSquares<A>(x, e.shape.count, squares, squares + 1);
    }
    forEach(1, WriteForm{code, e.shape, e.form, squares, e.lossScale, e.threshold});
    forEach(e.shape.count, EncodeHalf<A>{parts, x, code});
    launch({(e.shape.count + e.shape.block - 1) / e.shape.block, 1, 1}, warpSize, 0,
           EncodeBytes<A>{parts, x, code});
    if (error)
        forEach(e.shape.count, LeftOut<A>{parts, x, code, error, static_cast<A>(e.lossScale)});
}

/// out[i] (+)= what the ranks' codes say of element begin + i, in the order of the ranks.
template<typename A>
struct DecodeSum {
    CodeParts<A> parts;
    const char *codes;
    i64 stride, ranks, begin;
    A *out;
    bool accumulate;
    RY_DEVICE void operator()(i64 i) const
    {
        A sum = accumulate ? out[i] : 0;
        for (i64 rank = 0; rank < ranks && begin + i < parts.shape.count; ++rank)
            sum += parts.value(codes + rank * stride, begin + i);
        out[i] = sum;
    }
};
template<typename A>
void decodeAs(const DecodeCall &d)
{
    forEach(d.count,
            DecodeSum<A>{{d.shape},
                         static_cast<const char *>(d.codes),
                         d.stride,
                         d.ranks,
                         d.begin,
                         static_cast<A *>(d.out),
                         d.accumulate});
}

} // namespace rankyard::cuda
