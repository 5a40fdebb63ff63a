// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <cstdint>

/// The kernels of one storage type, compiled once per instruction set (tuned_*.cpp) and chosen at run time. Everything here is
/// plain data and function pointers: files compiled with -mavx512… must not emit inline functions that others share.
///
/// "Acc" is the type that sums are kept in: float for fp32 and bf16, double for fp64. Matrices are row-major; ld is the
/// distance of rows in elements.
namespace rankyard::kernels {

struct Bf16 {
    std::uint16_t bits;
};

/// C[m,n] (+)= A·B (+ bias), with A(i,k) = a[i·lda + k], or a[k·lda + i] when aTransposed; B(k,j) = b[k·ldb + j], or
/// b[j·ldb + k] when bTransposed.
struct Gemm {
    std::int64_t m = 0, n = 0, k = 0;
    const void *a = nullptr;
    std::int64_t lda = 0;
    bool aTransposed = false;
    const void *b = nullptr;
    std::int64_t ldb = 0;
    bool bTransposed = false;
    void *c = nullptr;
    std::int64_t ldc = 0;
    bool wide = false; ///< C has the type Acc instead of the inputs' type
    bool accumulate = false;
    const void *bias = nullptr;     ///< [n], added; inputs' type; not together with accumulate
    void *gelu = nullptr;           ///< [m,n] with ldc: also writes gelu_tanh(C), inputs' type
    void *scratch = nullptr;        ///< gemmScratch() bytes, aligned to 64
    void (*poll)(void *) = nullptr; ///< called about every 2 ms
    void *pollContext = nullptr;
};

/// Causal self-attention of `heads` heads on qkv [batch·seq, 3·heads·size] (q, k, v side by side).
struct Attention {
    std::int64_t seq = 0, heads = 0, size = 0;
    const void *qkv = nullptr;
    void *o = nullptr;        ///< [batch·seq, heads·size]
    void *lse = nullptr;      ///< Acc [heads, tokens]: log-sum-exp of the scaled scores
    std::int64_t tokens = 0;  ///< batch·seq
    const void *dO = nullptr; ///< backward only
    void *dqkv = nullptr;
    void *scratch = nullptr; ///< attentionScratch() bytes, aligned to 64
};

/// Cross-entropy of rows of Acc or T logits. In training, dlogits = (softmax − onehot)·scale replaces them, as T in place:
/// row r begins where the logits' row r began. Labels below 0 do not count.
struct SoftmaxLoss {
    void *logits = nullptr;
    bool wide = true;    ///< logits are Acc
    std::int64_t ld = 0; ///< of logits, in their elements
    const std::int32_t *labels = nullptr;
    std::int64_t rows = 0, vocab = 0;
    bool backward = false;
    double scale = 1;
};

/// One step of AdamW (Loshchilov & Hutter 2019; the form of torch.optim.AdamW) on `count` flat elements.
struct Adam {
    const void *grad = nullptr;
    void *param = nullptr;
    void *exp1 = nullptr;
    void *exp2 = nullptr;
    void *master = nullptr; ///< null when the parameters are the master copy
    std::int64_t count = 0;
    double gradFactor = 1, beta1 = 0, beta2 = 0, eps = 0;
    double shrink = 1;         ///< 1 − lr·decay
    double stepSize = 0;       ///< lr ÷ (1 − β1^step)
    double rootCorrection = 1; ///< 1 ÷ √(1 − β2^step)
};

struct KernelTable {
    std::int64_t (*gemmScratch)(const Gemm &);
    void (*gemm)(const Gemm &);
    std::int64_t (*attentionScratch)(const Attention &);
    /// One (sequence, head) pair: pair = sequence · heads + head.
    void (*attentionForward)(const Attention &, std::int64_t pair);
    void (*attentionBackward)(const Attention &, std::int64_t pair);

    /// n = (x − mean)·rstd·w + b; stats [rows, 2] = mean, rstd.
    void (*normForward)(const void *x, const void *w, const void *b, void *n, void *stats, std::int64_t rows,
                        std::int64_t width, double eps);
    /// dn becomes the gradient of x, plus dx when given; sums of the weight's and bias' gradients are added to dw and db (Acc).
    void (*normBackward)(void *dn, const void *x, const void *stats, const void *w, const void *dx, void *dw,
                         void *db, std::int64_t rows, std::int64_t width);
    void (*geluForward)(const void *u, void *a, std::int64_t count);
    /// da becomes du = da·gelu'(u); column sums of du are added to db (Acc).
    void (*geluBackward)(void *da, const void *u, void *db, std::int64_t rows, std::int64_t width);
    /// out (Acc) += Σ rows of x.
    void (*columnSum)(const void *x, std::int64_t ld, std::int64_t rows, std::int64_t width, void *out);
    /// y += x + b
    void (*join)(const void *x, void *y, const void *b, std::int64_t rows, std::int64_t width);
    /// x = row `index[r]` of table
    void (*lookup)(const std::int32_t *index, const void *table, void *x, std::int64_t rows,
                   std::int64_t width);
    /// x += row ((first + r) mod period) of table
    void (*addPositions)(void *x, const void *table, std::int64_t first, std::int64_t period,
                         std::int64_t rows, std::int64_t width);
    double (*softmaxLoss)(const SoftmaxLoss &); ///< Σ losses of the rows, unscaled
    void (*exponential)(const void *x, void *y,
                        std::int64_t count); ///< of Acc: what softmax and GELU use inside

    // Gradient storage: Wide is Acc, Same is T.
    /// gradient (+)= sum (Acc)
    void (*writeGradient[2])(const void *sum, void *gradient, std::int64_t count, bool accumulate);
    /// gradient[index[r]] += columns begin…end of row r of dx
    void (*scatterAdd[2])(const std::int32_t *index, const void *dx, void *gradient, std::int64_t rows,
                          std::int64_t width, std::int64_t begin, std::int64_t end);
    /// Σ squares in fp64 and the number of values that are not finite.
    double (*sumSquares[2])(const void *gradient, std::int64_t count, std::int64_t *nonFinite);
    void (*adam[2])(const Adam &);
};

enum GradientStorage { Wide = 0, Same = 1 };

/// Instruction sets, in the order in which they are preferred last to first.
enum class Isa { Baseline, Avx2, Avx512, Avx512Bf16 };

struct IsaTables {
    KernelTable f32;
    KernelTable f64;
    KernelTable bf16;
};

const IsaTables &tablesBaseline();
const IsaTables &tablesAvx2();
const IsaTables &tablesAvx512();
const IsaTables &tablesAvx512Bf16();

/// The best set that this processor and system can run.
Isa detectIsa();
const char *nameOf(Isa isa);
const IsaTables &tablesFor(Isa isa);

} // namespace rankyard::kernels
