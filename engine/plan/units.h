// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "engine/plan/step_program.h"
#include "engine/spec/job.h"

#include <optional>
#include <string>
#include <vector>

/// Units, segments and the one table of what each op reads, writes and keeps (DESIGN 1.1). Kernels take their sizes from the
/// shapes of the operands; `Split` below has the same numbers.
///
///   T  tokens of a micro-batch on this rank: micro · seq / cp. Row r of a sequence's seq/cp rows is position `positionOf`
///   R  rows of the residual stream on this rank: T, or T/tp with sequence parallelism: tensor rank t has rows t·R … (t+1)·R
///   H hidden, D width of a head, A heads / tp, K KV heads / tp or 1 (copies), F ffn / tp, V ⌈vocab / tp⌉, C tokens of a loss
///   chunk, Q = A·D, W = (A + 2K)·D
/// Weights are [out, in], as in a linear layer y = x · Wᵀ + b. The residual stream is x; its gradient is dx.
/// [b] stands only in models with biases (gpt2), [wpe] only with learned positions (gpt2), {…} only with dropout.
///
///   op                        reads                      writes
///   LoadBatch                 –                          tokens [T] i32, labels [T] i32
///   Embedding.lookup  F       tokens, wte [V,H]          x [T,H]                  (rows of other ranks' tokens are zero)
///   Embedding.join    F       x [R,H], [wpe]             x                        (in place: + positions, {dropout}; llama: only {…})
///   *.norm            F       x [R,H], w, [b]            n [R,H], stats [R,2]     (gpt2: mean, 1/σ; llama [R,1]: 1/rms; ≥ fp32)
///   Attention.qkv     F       n [T,H], Wqkv [W,H], [b]   qkv [T,W]                (q heads, then k, then v; llama: RoPE on q and k)
///   Attention.core    F       qkv                        o [T,Q], lse [A,T]       (causal within each sequence; {dropout})
///   Attention.out     F       o, Wout [H,Q]              y [T,H]
///   Mlp.up            F       n [T,H], Wup [F,H], [b]    u [T,F], a [T,F]         (gpt2: a = gelu_tanh(u))
///   Mlp.up     llama  F       n [T,H], Wup [2F,H]        u [T,2F], a [T,F]        (u = gate, then up; a = silu(gate) · up)
///   Mlp.down          F       a, Wdown [H,F]             y [T,H]
///   *.join            F       x [R,H], y [R,H], [b]      y                        (in place: y = x + {dropout}(y + b), the next x)
///   Head.loss  train  F       n, W, labels               loss, dn [T,H], dW, logits [C,V]   (rows rowBegin…rowEnd)
///   Head.loss  eval   F       n, W, labels               loss, logits [C,V]
///   Head.norm         BI      dn [R,H], x, stats, w      dn (in place: dx), dw, [db]
///   *.join            BI      dx [R,H]                   {dy [R,H],} [db]         (dy = the dropout's mask on dx; no op when
///                                                                                  neither stands; below, dx is dy where there is one)
///   Mlp.down          BI      dx [T,H], W                da [T,F]
///   Mlp.down          BW      dx [T,H], a                dW
///   Mlp.up            BI      da, u, W                   da (in place: du), dn [T,H], [db]
///   Mlp.up     llama  BI      da, u, W                   u (in place: du [T,2F]), dn [T,H]
///   Mlp.up            BW      du, n [T,H]                dW
///   Attention.out     BI      dx [T,H], W                do [T,Q]
///   Attention.out     BW      dx [T,H], o                dW
///   Attention.core    BI      do, qkv, o, lse            dqkv [T,W]
///   Attention.qkv     BI      dqkv, W                    dn [T,H], [db]
///   Attention.qkv llama BI    dqkv, W                    dqkv (in place: RoPE undone), dn [T,H]
///   Attention.qkv     BW      dqkv, n [T,H]              dW
///   *.norm            BI      dn [R,H], x, stats, w, dx  dn (in place: the new dx = dx + the norm's backward), dw, [db]
///   Embedding.join    BI      dx [R,H]                   {dx,} [dwpe]             (dx in place: the dropout's mask on it)
///   Embedding.lookup  BW      dx [T,H], tokens           dwte                     (tokens of other ranks' rows are left out)
///   GradNorm          chunk b gradSlice                  stats                    (adds into its tensors' places)
///   AllReduce                 stats                      stats
///   StepScalars               stats                      –
///   Optimizer         chunk b gradSlice                  paramSlice, exp1, exp2 [, master]   (elements rowBegin…rowEnd of the slice)
///
/// Tensor parallelism, tp > 1. Partial sums y of lookup, out and down, and dn of qkv BI, up BI and loss, are summed before
/// their next reader; in T rows on every rank, or into R rows with sequence parallelism, where T rows are gathered from R
/// before qkv, up, logits and loss (n; again before qkv BW and up BW), before out BI and BW and down BI and BW (dx), and before lookup BW.
///   AllReduce         of y    y [T,H]                    y
///   ReduceScatter     of y    y [T,H]                    y' [R,H]                 (out of place: y is undefined after)
///   AllGather         of n    n [R,H]                    n' [T,H]
///   Head.logits       F       n [T,H], W, labels         logits [C,V], part [C,3] (max, Σ exp(logit − max), target's logit or 0;
///                                                                                  −∞, 0, 0 where all columns are padding)
///   AllGather of part         part                       parts [tp,C,3]
///   Head.loss  train  F       n, W, labels, parts        loss, dn [T,H], dW, logits        (logits in place: their gradients)
///   Head.loss  eval   F       labels, parts              loss
///   AllReduce  of a bias'     grad view                  grad view                (kv rows of Wqkv with copies: over "kv")
/// The loss is added to stats by tensor rank 0 only. Columns of the vocabulary from its end on are padding: in no maximum, no
/// sum, with gradients of zero; so are the rows of wte. Replicated gradients are equal on all tensor ranks; with sequence
/// parallelism they are partial, and their buckets go over the group that has the tensor axis too.
///
/// Pipeline parallelism. A stage's first x and last dx come by Recv, its last x and first dx go by Send; unit, segment and
/// micro-batch of the op that wrote the value.
///   Send                      x or dx [R,H]              –
///   Recv                      –                          x or dx [R,H]
///
/// Recompute: the op as its Forward, into buffers of its own; and
///   Mlp.act           R       u                          a
///
/// Context parallelism, cp > 1: rank c holds the chunks c and 2cp−1−c of each sequence's 2cp. Block k of the core has the keys
/// and values of rank s = c − k mod cp: for k = 0 causal; for s < c every query against the first half of its keys; for s > c
/// the second half of the queries against all its keys.
///   Attention.kv      F, R    qkv                        kv [T,2·K·D]             (k heads, then v)
///   Shift of kv               kv                         kv'                      (peer 1 over "cp")
///   Attention.core    F       qkv, kv                    o, lse                   (chunk k > 0: merged in place by lse)
///   Attention.core    BI      do, qkv, kv, o, lse        dqkv [T,W], dkv [T,2·K·D]  (accumulate: adds to q's part of dqkv and to dkv)
///   Shift of dkv              dkv                        dkv'
///   Attention.kv      BI      dkv                        dqkv                     (its k and v part)
///
/// ZeRO 2 and 3: a bucket's gradients of one micro-batch are a transient root with the tensors as views.
///   ReduceScatter     chunk b grads of a micro-batch     gradSlice                (accumulate: adds)
///   AllGather         chunk b paramSlice                 params                   (ZeRO 1, 2 in place; ZeRO 3 a transient root)
/// Tied embedding on two stages: AllReduce chunk b, gradSlice, in place over "embedding".
///
/// Offload of the optimizer, chunk b, rows of a sub-group; what is not on the host memory is staged there, states from files too:
///   Copy              gradSlice | paramSlice | exp1 | exp2 | master         stage [rows]
///   Optimizer         stage of the gradient              stages or the host's own, in place, rows
///   Copy              stage [rows]                       paramSlice | exp1 | exp2 | master
/// Parameters on the host, chunk b:
///   Copy              paramSlice (host)                  params (transient root), or a slice from which they are gathered
/// Inputs of layers that are computed again: Copy x → host, back; partitioned: Copy of the tensor rank's slice of x (a view) → slice,
/// on the host too where asked, AllGather of the slice → x again, over "tp".
///
/// Compression, chunk b:
///   Encode            grads [, error]                    code [, error]           (error in place: what the code left out;
///                                                                                  without the padding of the bucket)
///   AllGather of code         code                       codes [n, …]
///   Decode                    codes                      gradSlice                (sum over ranks, in their order)
///
/// precision.reduce, chunk b, of a step or of one micro-batch; the sums stand for those above, over the same groups:
///   Add                       grads                      reduced                  (in the other type)
///   AllReduce | ReduceScatter reduced                    reduced | its slice
///   Add                       reduced | its slice        gradSlice                (accumulate: adds)
///
/// In steps, chunk b, over n ranks, k = 0 … n−2; slice(s) is the view whose sliceShift is s, a Shift goes to the peer `peer` places on:
///   ring              Shift slice(−k−1) → part by 1, Add part → slice(−k−2); to gather Shift slice(−k) → slice(−k−1) by 1
///   direct            Shift slice(k+1) → part by k+1, Add part → slice(0); to gather Shift slice(0) → slice(−k−1) by k+1
/// Shards in blocks (zero.shard), chunk b: AllReduce gradSlice in place over the replicas, after the reduction inside the block.
///
/// `loss` is the program's `stats` buffer: the sum of the chunk's token losses is added to stats[loss] in fp64.
/// `accumulate` says for dW, dw, db, dwpe and dwte whether to add or to write (dwpe, dwte: fill with zeros first). The rows
/// rowBegin…rowEnd of dn are always written. A tied wte gets its gradient from the head first, then from the lookup, which adds;
/// its bucket's gradient is then the sum.
/// GradNorm covers what this rank owns: its slice; a bucket that is whole on every rank of its group (slices = 1, group set)
/// is counted by the group's rank 0 only, the others add nothing. Tensors without `axis` count on tensor rank 0 only, unless
/// their bucket's group has the tensor axis; of sections with copies only the first; tensors that are not `counted` nowhere.
/// Dtypes: activations and their gradients precision.compute; norm stats, lse, part fp32 (fp64 in fp64); logits fp32 (fp64; the
/// compute type with loss_in_16bit); dW, dw, db precision.grad.
/// Kernels need no scratch of the plan's: gradients of the logits overwrite them, 16-bit weight gradients are summed in registers.
///
/// Dropout, in training only, with probability p, keeps a value when its word is ≥ p · 2³² and scales it by 1/(1 − p). The word is
/// number feature mod 4 of the block philox({feature / 4, position, sample, Dropout + head · 2⁸}, {low(seed), high(seed) xor site}),
/// seed = init.seed; site: 0 embedding join, 3·layer + 1 attention probabilities, + 2 attention join, + 3 MLP join. feature: column of H (key's
/// position for probabilities); position: in the sequence (the query's); head: of the model, 0 but for probabilities; sample: low
/// 32 bits of (step's global batch index · batch.global + j).
namespace rankyard::plan {

struct TensorSpec {
    std::string name;
    std::vector<std::int64_t> shape;
    bool decay = true;
    double initStd = 0; ///< 0 with initValue for norms and biases
    double initValue = 0;
    Unit unit;                       ///< whose it is; Head's for a tied wte too, which is Embedding's first
    std::int32_t axis = none;        ///< divided over the tensor group along it: Tensor
    std::vector<Section> sections{}; ///< for layout.tp
};

/// Sizes on one rank: the letters of the table.
struct Split {
    std::int64_t tokens = 0, rows = 0;                                                  ///< T, R
    std::int64_t hidden = 0, headSize = 0, heads = 0, keyHeads = 0, ffn = 0, vocab = 0; ///< H, D, A, K, F, V
    std::int64_t keyCopies = 1; ///< tensor ranks that share a KV head

    explicit Split(const spec::JobSpec &job);
    std::int64_t qWidth() const { return heads * headSize; }
    std::int64_t kvWidth() const { return 2 * keyHeads * headSize; }
    std::int64_t qkvWidth() const { return qWidth() + kvWidth(); }
};

/// Position in its sequence of row `row` (from 0) of the seq/cp that context rank `rank` of `ranks` has: chunk `rank` of 2·ranks
/// first, then chunk 2·ranks − 1 − rank.
std::int64_t positionOf(std::int64_t row, std::int64_t seq, std::int64_t rank, std::int64_t ranks);

/// Canonical names and shapes of a model's parameters in forward order. GPT-2: `wte.weight` [V,H], `wpe.weight` [S,H],
/// `layers.<i>.attn.norm.{weight,bias}`, `layers.<i>.attn.qkv.{weight,bias}`, `layers.<i>.attn.out.{weight,bias}`,
/// `layers.<i>.mlp.norm…`, `layers.<i>.mlp.up…`, `layers.<i>.mlp.down…`, `norm.{weight,bias}`, `head.weight` when untied.
/// Llama: the same without biases and wpe; `attn.qkv.weight` [(heads + 2·kv_heads)·D, H], `mlp.up.weight` [2F, H] (gate, then up).
/// Init: N(0, 0.02²); attn.out and mlp.down N(0, (0.02/√(2·layers))²); biases 0; norms 1 and 0 (GPT-2).
std::vector<TensorSpec> modelTensors(const spec::JobSpec &job);

/// Tokens of a loss chunk: bounded so that a chunk of logits stays near the last-level cache; at least 128.
std::int64_t lossChunkTokens(const spec::JobSpec &job);
/// Of a rank with `tokens` of a micro-batch and `vocab` columns of logits, `bytes` each.
std::int64_t lossChunkTokens(std::int64_t tokens, std::int64_t vocab, std::int64_t bytes);

/// Bytes of activations that a layer holds of one micro-batch, off the table above.
struct LayerBytes {
    std::int64_t kept = 0;    ///< from its forward to the gradient of its input
    std::int64_t pending = 0; ///< from there to the gradients of its weights, where a schedule puts these off
};
/// `recomputed`: of a layer that job.recompute takes. `kept` is then its part in slices or on the device only, `pending` the same.
LayerBytes layerBytes(const spec::JobSpec &job, bool recomputed);

/// Floating-point operations of an op on `tokens` on one rank: 2·T·in·out for a linear layer and each of its two gradients; causal
/// attention core 4·T·seq·Q forward counted whole (the convention of the peers), 2× that backward; the rest 0. The head's loss
/// is Forward here and its two gradients BackwardInput and BackwardWeight, although one op of a train program does all three.
std::int64_t opFlops(const spec::JobSpec &job, OpKind kind, Segment segment, std::int64_t tokens);

} // namespace rankyard::plan
