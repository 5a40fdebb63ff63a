// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/plan/step_program.h"
#include "engine/spec/job.h"

#include <optional>
#include <string>
#include <vector>

/// Units, segments and the one table of what each op reads, writes and keeps (DESIGN 1.1).
///
/// T = micro · seq tokens of a micro-batch, H hidden, A heads, F ffn, V vocab; C tokens of a loss chunk.
/// Weights are [out, in], as in a linear layer y = x · Wᵀ + b. The residual stream is x; its gradient is dx.
///
///   op                        reads                      writes
///   LoadBatch                 –                          tokens [T] i32, labels [T] i32
///   Embedding.lookup  F       tokens, wte                x [T,H]
///   Embedding.join    F       x, wpe                     x                        (in place)
///   *.norm            F       x, w, b                    n [T,H], stats [T,2]     (mean, 1/σ; stats ≥ fp32)
///   Attention.qkv     F       n, W, b                    qkv [T,3H]               (q, then k, then v)
///   Attention.core    F       qkv                        o [T,H], lse [A,T]       (causal within each sequence)
///   Attention.out     F       o, W                       y [T,H]
///   Mlp.up            F       n, W, b                    u [T,F], a [T,F]         (a = gelu_tanh(u))
///   Mlp.down          F       a, W                       y [T,H]
///   *.join            F       x, y, b                    y                        (in place: y += x + b, the next x)
///   Head.loss  train  F       n, W, labels               loss, dn [T,H], dW, logits [C,V]   (rows rowBegin…rowEnd)
///   Head.loss  eval   F       n, W, labels               loss, logits [C,V]
///   Head.norm         BI      dn, x, stats, w            dn (in place: dx), dw, db
///   *.join            BI      dx                         db
///   Mlp.down          BI      dx, W                      da [T,F]
///   Mlp.down          BW      dx, a                      dW
///   Mlp.up            BI      da, u, W                   da (in place: du), dn [T,H], db
///   Mlp.up            BW      du, n                      dW
///   Attention.out     BI      dx, W                      do [T,H]
///   Attention.out     BW      dx, o                      dW
///   Attention.core    BI      do, qkv, o, lse            dqkv [T,3H]
///   Attention.qkv     BI      dqkv, W                    dn [T,H], db
///   Attention.qkv     BW      dqkv, n                    dW
///   *.norm            BI      dn, x, stats, w, dx        dn (in place: the new dx = dx + the norm's backward), dw, db
///   Embedding.join    BI      dx                         dwpe
///   Embedding.lookup  BW      dx, tokens                 dwte
///   GradNorm          chunk b gradSlice                  stats                    (adds into its tensors' places)
///   AllReduce                 stats                      stats
///   StepScalars               stats                      –
///   Optimizer         chunk b gradSlice                  paramSlice, exp1, exp2 [, master]
///
/// `loss` is the program's `stats` buffer: the sum of the chunk's token losses is added to stats[loss] in fp64, on every rank.
/// `accumulate` says for dW, dw, db, dwpe and dwte whether to add or to write (dwpe, dwte: fill with zeros first). The rows
/// rowBegin…rowEnd of dn are always written. A tied wte gets its gradient from the head first, then from the lookup, which adds.
/// GradNorm covers what this rank owns: its slice; a bucket that is whole on every rank of its group (slices = 1, group set)
/// is counted by the group's rank 0 only, the others add nothing.
/// Dtypes: activations and their gradients precision.compute; norm stats and lse fp32 (fp64 in fp64); logits fp32 (fp64; the
/// compute type with loss_in_16bit); dW, dw, db precision.grad.
/// Kernels need no scratch of the plan's: gradients of the logits overwrite them, 16-bit weight gradients are summed in registers.
namespace rankyard::plan {

struct TensorSpec {
    std::string name;
    std::vector<std::int64_t> shape;
    bool decay = true;
    double initStd = 0; ///< 0 with initValue for norms and biases
    double initValue = 0;
};

/// Canonical names and shapes of a model's parameters in forward order. GPT-2: `wte.weight` [V,H], `wpe.weight` [S,H],
/// `layers.<i>.attn.norm.{weight,bias}`, `layers.<i>.attn.qkv.{weight,bias}`, `layers.<i>.attn.out.{weight,bias}`,
/// `layers.<i>.mlp.norm…`, `layers.<i>.mlp.up…`, `layers.<i>.mlp.down…`, `norm.{weight,bias}`, `head.weight` when untied.
/// Init: N(0, 0.02²); attn.out and mlp.down N(0, (0.02/√(2·layers))²); biases 0; norms 1 and 0 (GPT-2).
std::vector<TensorSpec> modelTensors(const spec::JobSpec &job);

/// Tokens of a loss chunk: bounded so that a chunk of logits stays near the last-level cache; at least 128.
std::int64_t lossChunkTokens(const spec::JobSpec &job);

/// Floating-point operations of an op on T tokens: 2·T·in·out for a linear layer and each of its two gradients; causal
/// attention core 4·T·seq·H forward counted whole (the convention of the peers), 2× that backward; the rest 0. The head's loss
/// is Forward here and its two gradients BackwardInput and BackwardWeight, although one op of a train program does all three.
std::int64_t opFlops(const spec::JobSpec &job, OpKind kind, Unit unit, Segment segment, std::int64_t tokens);

} // namespace rankyard::plan
