// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <cstdint>
#include <limits>

/// The kernels of one storage type, compiled once per instruction set (tuned_*.cpp) and chosen at run time. Everything here is
/// plain data and function pointers: files compiled with -mavx512… must not emit inline functions that others share.
///
/// "Acc" is the type that sums are kept in: float for fp32 and the 16-bit types, double for fp64. Matrices are row-major; ld is the
/// distance of rows in elements.
namespace rankyard::kernels {

struct Bf16 {
    std::uint16_t bits;
};
/// IEEE binary16.
struct Half {
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

/// Which elements stay: those whose word of Philox is not below `threshold` (engine/plan/units.h has the places of the words).
struct Dropout {
    std::uint32_t key[2] = {0, 0};
    std::uint32_t purpose = 0;
    std::uint32_t threshold = 0;            ///< probability · 2^32
    double scale = 1;                       ///< 1 ÷ (1 − probability)
    const std::int32_t *sample = nullptr;   ///< by row, from the first sample of the micro-batch
    const std::int32_t *position = nullptr; ///< by row, in its sequence
    std::int64_t firstSample = 0;           ///< of the micro-batch: its number in the run

    /// That of the rows from `row` on.
    Dropout from(std::int64_t row) const
    {
        Dropout rest = *this;
        rest.sample += row;
        rest.position += row;
        return rest;
    }
};

/// Attention of `heads` heads to `kvHeads` of keys and values, each shared by heads ÷ kvHeads neighbours (Ainslie et al. 2023),
/// over one block of keys. Pointers stand at the first row and head of the block; ld is the distance of rows, rowsQ and rowsKv
/// the rows from one sequence to the next.
struct Attention {
    std::int64_t queries = 0, keys = 0; ///< of a sequence in this block
    bool causal = true;                 ///< query i sees keys 0 … i (queries = keys); false: all of them
    std::int64_t heads = 0, kvHeads = 0, size = 0, sequences = 0;
    const void *q = nullptr, *k = nullptr, *v = nullptr;
    std::int64_t ldQ = 0, ldKv = 0, ldO = 0, rowsQ = 0, rowsKv = 0;
    void *o = nullptr;
    void *lse = nullptr;     ///< Acc [heads, tokens]: log-sum-exp of the scaled scores
    std::int64_t tokens = 0; ///< from one head's lse to the next
    bool merge = false;      ///< o and lse hold what earlier blocks gave
    // Backward; o and lse are those over all blocks.
    const void *dO = nullptr;          ///< as o
    void *dq = nullptr;                ///< as q
    void *dk = nullptr, *dv = nullptr; ///< as k and v
    bool addQ = false, addKv = false;  ///< to what is there
    const Dropout *dropout = nullptr;  ///< of the probabilities; sample and position by row of q
    std::int64_t firstHead = 0;        ///< of all ranks' heads, for dropout
    /// For dropout: key k of the block has position keyOffset[0] + k, from keyBreak on keyOffset[1] + k − keyBreak.
    std::int64_t keyOffset[2] = {0, 0}, keyBreak = std::numeric_limits<std::int64_t>::max();
    void *scratch = nullptr;        ///< attentionScratch() bytes, aligned to 64
    void (*poll)(void *) = nullptr; ///< called after each pair
    void *pollContext = nullptr;
};

/// Cross-entropy over `columns` of a vocabulary that several ranks share (Shoeybi et al. 2019). First each rank's
/// statistics of a row: the largest logit, Σ e^(logit − largest), the label's logit or 0. Then, from those of all ranks, the loss
/// and in place dlogits = (softmax − onehot)·scale, as T as in SoftmaxLoss.
struct ShardedLoss {
    void *logits = nullptr;
    bool wide = true;
    std::int64_t ld = 0;
    const std::int32_t *labels = nullptr;
    std::int64_t rows = 0;
    std::int64_t firstColumn = 0; ///< the vocabulary's place of column 0
    std::int64_t columns = 0;     ///< that are of the vocabulary; those behind are padding and count nowhere
    std::int64_t padded = 0;      ///< columns with padding: whose gradients are zeros
    void *statistics = nullptr;   ///< Acc [rows, 3]; for the merge [parts], partStride elements apart
    std::int64_t parts = 1, partStride = 0;
    bool backward = false;
    double scale = 1;
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
    /// The pairs begin … end of a sequence and a head of keys, with all its heads of queries: pair = sequence · kvHeads + kvHead.
    void (*attentionForward)(const Attention &, std::int64_t begin, std::int64_t end);
    void (*attentionBackward)(const Attention &, std::int64_t begin, std::int64_t end);

    /// By NormKind. Layer: n = (x − mean)·rstd·w + b; stats [rows, 2] = mean, rstd. Rms: n = x·rstd·w; stats [rows] = rstd.
    void (*normForward[2])(const void *x, const void *w, const void *b, void *n, void *stats,
                           std::int64_t rows, std::int64_t width, double eps);
    /// dn becomes the gradient of x, plus dx when given; sums of the weight's and bias' gradients are added to dw and db (Acc;
    /// db unused by Rms).
    void (*normBackward[2])(void *dn, const void *x, const void *stats, const void *w, const void *dx,
                            void *dw, void *db, std::int64_t rows, std::int64_t width);
    void (*geluForward)(const void *u, void *a, std::int64_t count);
    /// da becomes du = da·gelu'(u); column sums of du are added to db (Acc).
    void (*geluBackward)(void *da, const void *u, void *db, std::int64_t rows, std::int64_t width);
    /// a = silu(gate)·up; u [rows, 2·width]: gates, then ups.
    void (*swigluForward)(const void *u, void *a, std::int64_t rows, std::int64_t width);
    /// du as u, may be u.
    void (*swigluBackward)(const void *da, const void *u, void *du, std::int64_t rows, std::int64_t width);
    /// Turns pairs (i, i + size/2) of the heads of each row by its position's angles, `back` the other way; table [positions,
    /// size] (Acc): cosines, then sines.
    void (*rotate)(void *x, std::int64_t ld, const void *table, const std::int32_t *position,
                   std::int64_t rows, std::int64_t heads, std::int64_t size, bool back);
    /// y = [residual +] dropped(x [+ b]); y may be x.
    void (*dropRows)(const Dropout &, const void *x, const void *b, const void *residual, void *y,
                     std::int64_t rows, std::int64_t width);
    /// out (Acc) += Σ rows of x.
    void (*columnSum)(const void *x, std::int64_t ld, std::int64_t rows, std::int64_t width, void *out);
    /// y += x [+ b]
    void (*join)(const void *x, void *y, const void *b, std::int64_t rows, std::int64_t width);
    /// x = row `index[r] − first` of a table of `count` rows, zeros when there is none
    void (*lookup)(const std::int32_t *index, const void *table, std::int64_t first, std::int64_t count,
                   void *x, std::int64_t rows, std::int64_t width);
    /// x += row `position[r]` of table
    void (*addPositions)(void *x, const void *table, const std::int32_t *position, std::int64_t rows,
                         std::int64_t width);
    void (*softmaxLoss)(const SoftmaxLoss &,
                        double *sum); ///< sum, unless null, += Σ losses of the rows, unscaled
    void (*lossStatistics)(const ShardedLoss &);
    void (*lossMerge)(const ShardedLoss &, double *sum); ///< sum += Σ losses of the rows, unscaled
    void (*exponential)(const void *x, void *y,
                        std::int64_t count); ///< of Acc: what softmax and GELU use inside

    // Gradient storage: Wide is Acc, Same is T.
    /// gradient (+)= sum (Acc)
    void (*writeGradient[2])(const void *sum, void *gradient, std::int64_t count, bool accumulate);
    /// gradient[index[r] − first] += columns begin…end of row r of dx, where 0 ≤ index[r] − first < count
    void (*scatterAdd[2])(const std::int32_t *index, const void *dx, void *gradient, std::int64_t first,
                          std::int64_t count, std::int64_t rows, std::int64_t width, std::int64_t begin,
                          std::int64_t end);
    /// gradient[p] (+)= Σ rows of dx whose position is p, in the order rows[begin[p]] … rows[begin[p + 1] − 1]; sums: Acc [width],
    /// scratch.
    void (*sumByPosition[2])(const std::int32_t *begin, const std::int32_t *rows, const void *dx,
                             void *gradient, std::int64_t positions, std::int64_t width, bool accumulate,
                             void *sums);
    /// squares += Σ squares, in fp64; nonFinite += the number of values that are not finite.
    void (*sumSquares[2])(const void *gradient, std::int64_t count, double *squares, double *nonFinite);
    void (*adam[2])(const Adam &);
};

enum GradientStorage { Wide = 0, Same = 1 };
enum NormKind { Layer = 0, Rms = 1 };

/// Instruction sets, in the order in which they are preferred last to first.
enum class Isa { Baseline, Avx2, Avx512, Avx512Bf16 };

struct IsaTables {
    KernelTable f32;
    KernelTable f64;
    KernelTable bf16;
    KernelTable f16;
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
