#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tokens per second and memory of Rankyard and of the Python peers, side by side in one interleaved run.

  compare_peers.py [--python PY --peers DIR] [--size S] [--repeats 3] [--dtypes fp32,bf16] [--layouts data,zero3,tensor,pipeline]

A layout is one way to share the work between two ranks, ours and the peers': LAYOUTS below.

Without --python and --peers only Rankyard is measured: on the weights and tokens in --work when they were made earlier, else on
seeded ones of its own (the same work, other losses). PY is a Python with torch
and safetensors, DIR holds the peers' scripts. Model, data, optimizer, clip, threads in total and tokens per step are the same, and a run counts
only when its first and last loss agree with the peers' (fp32: 4 digits). Peers get tcmalloc when it is installed.
"""
import argparse
import array
import glob
import json
import os
import pathlib
import random
import statistics
import struct
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
p.add_argument("--ctl", default=str(HERE.parents[1] / "build/release/bin/rankyardctl"))
p.add_argument("--python", default=os.environ.get("RANKYARD_PEER_PYTHON"))
p.add_argument("--peers", default=os.environ.get("RANKYARD_PEERS"))
p.add_argument("--size", default="S")
p.add_argument("--repeats", type=int, default=3)
p.add_argument("--dtypes", default="fp32,bf16")
p.add_argument("--layouts", default="data", help="of LAYOUTS, with commas; all: every one")
p.add_argument("--steps", type=int, default=10)
p.add_argument("--work", help="folder for weights and tokens; default: a temporary one")
p.add_argument("--json", action="store_true")
a = p.parse_args()
work = pathlib.Path(a.work or tempfile.mkdtemp(prefix="rankyard-bench-"))
WARMUP = 3


# layers, hidden, heads, seq, vocabulary, micro-batch: the peers' common.py
SIZES = {"T": (2, 128, 4, 64, 512, 4), "S": (6, 384, 6, 256, 8192, 8), "M": (12, 768, 12, 512, 50304, 2)}


def plain_job(folder, dtype):
    """The peers' task on weights and tokens of our own, without a Python that has torch."""
    layers, hidden, heads, seq, vocab, micro = SIZES[a.size]
    folder.mkdir(parents=True)
    draw = random.Random(1234)
    tokens = array.array("H", (draw.randrange(vocab) for _ in range(1 << 18)))
    (folder / "tokens.bin").write_bytes(tokens.tobytes())
    (folder / "tokens.idx").write_bytes(b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, 8, 1, 2) + struct.pack("<i", len(tokens))
                                        + struct.pack("<q", 0) + struct.pack("<qq", 0, 1))
    (folder / "job.json").write_text(json.dumps({
        "schema": "rankyard/job/1", "name": f"bench-{a.size}-{dtype}",
        "model": {"family": "gpt2", "layers": layers, "hidden": hidden, "heads": heads, "seq": seq, "vocab": vocab},
        "data": {"train": "tokens", "valid_fraction": 0, "seed": None},
        "batch": {"global": 2 * micro, "micro": micro}, "layout": {"dp": 2}, "zero": {"stage": 1}, "precision": {"compute": dtype},
        "optimizer": {"lr": 3e-4, "betas": [0.9, 0.95], "weight_decay": 0.1, "no_decay": []},
        "lr_schedule": {"kind": "constant", "warmup": 0},
        "run": {"steps": WARMUP + a.steps, "eval_every": 0, "checkpoint_every": 0}}))


# Both sides of a layout do the same work on the same tokens. `ours`: overrides of the job; `peers`: by name, the script and its
# arguments. Pipelines: 8 micro-batches of 2 sequences (S) or 1 (M), stages balanced on both sides.
PP_MICRO = {"T": 2, "S": 2, "M": 1}[a.size]
PP_SPLIT = {"T": "1,1", "S": "4,2", "M": "8,4"}[a.size]
PIPELINE = ["layout.dp=1", "layout.pp=2", "zero.stage=0", f"batch.micro={PP_MICRO}", f"batch.global={8 * PP_MICRO}"]
TENSOR = ["layout.dp=1", "layout.tp=2", "zero.stage=0", f"batch.global={SIZES[a.size][5]}"]
LAYOUTS = {
    "data": ([], {"torch ddp": ["train_torch.py", "--mode", "ddp"], "torch zero1": ["train_torch.py", "--mode", "zero1"]}),
    "zero3": (["zero.stage=3"], {"torch fsdp2": ["train_torch.py", "--mode", "fsdp2"]}),
    "tensor": (TENSOR, {"torch dtensor": ["train_tp.py"]}),
    "tensor-sequence": (TENSOR + ["layout.sequence_parallel=true"], {"torch dtensor sp": ["train_tp.py", "--sp"]}),
    "pipeline": (PIPELINE, {"torch 1f1b": ["train_pp.py", "--schedule", "1F1B", "--split", PP_SPLIT]}),
}


def ours(dtype, overrides):
    folder = work / f"{a.size}-{dtype}"
    if not (folder / "job.json").exists() and not (a.python and a.peers):
        plain_job(folder, dtype)
    elif not (folder / "job.json").exists():
        subprocess.run([a.python, HERE / "export_peer_model.py", "--peers", a.peers, "--out", folder, "--size", a.size,
                        "--dtype", dtype, "--steps", str(WARMUP + a.steps)], check=True, stdout=sys.stderr)
    sets = [x for o in overrides for x in ("--set", o)]
    process = subprocess.Popen([a.ctl, "train", folder / "job.json", "--json", *sets], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               text=True)
    peak = Watch(process).until_end()
    if process.returncode:
        sys.exit(f"rankyardctl failed: {peak.err[-2000:]}")
    steps = json.loads(peak.out)["steps"]
    ms = [s["step_ms"] for s in steps[WARMUP:]]
    tokens = steps[-1]["tokens_per_s"] * steps[-1]["step_ms"] / 1000
    return dict(ms=statistics.median(ms), low=min(ms), high=max(ms), tokens=tokens, loss=(steps[0]["loss"], steps[-1]["loss"]),
                memory=peak.memory)


class Watch:
    """Reads a run's output, and meanwhile the peak resident size (VmHWM, with shared pages) of every rankyard-worker."""

    def __init__(self, process):
        self.process, self.memory = process, 0

    def until_end(self):
        import threading
        done = threading.Event()

        def look():
            while not done.wait(0.2):
                for status in glob.glob("/proc/[0-9]*/status"):
                    try:
                        text = pathlib.Path(status).read_text()
                    except OSError:
                        continue
                    if text.startswith("Name:\trankyard-worker") and "VmHWM:" in text:
                        self.memory = max(self.memory, int(text.split("VmHWM:")[1].split()[0]) * 1024)

        reader = threading.Thread(target=look)
        reader.start()
        self.out, self.err = self.process.communicate()
        done.set()
        reader.join()
        return self


def peer(script, dtype):
    env = dict(os.environ, OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo", PYTHONWARNINGS="ignore")
    tcmalloc = glob.glob("/usr/lib/*/libtcmalloc_minimal.so.4")
    env["LD_PRELOAD"] = tcmalloc[0] if tcmalloc else ""
    with tempfile.NamedTemporaryFile(suffix=".jsonl") as out:
        cmd = [a.python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
               str(pathlib.Path(a.peers) / script[0]), *script[1:], "--size", a.size, "--dtype", dtype,
               "--steps", str(a.steps), "--warmup", str(WARMUP), "--out", out.name]
        r = subprocess.run(cmd, env=env, capture_output=True, text=True)
        lines = pathlib.Path(out.name).read_text().splitlines()
    if not lines:
        sys.exit(f"peer {' '.join(script)} failed: {r.stderr[-2000:]}")
    d = json.loads(lines[-1])
    return dict(ms=d["step_ms_median"], low=d["step_ms_min"], high=d["step_ms_max"], tokens=d["tokens_per_step"],
                loss=(d["loss_first"], d["loss_last"]), memory=max(d["peak_rss_bytes_per_rank"]))


rows = {}
names = list(LAYOUTS) if a.layouts == "all" else a.layouts.split(",")
for repeat in range(a.repeats):
    for dtype in a.dtypes.split(","):
        for layout in names:
            overrides, peers = LAYOUTS[layout]
            contenders = [("rankyard", lambda: ours(dtype, overrides))]
            if a.python and a.peers:
                contenders += [(name, lambda script=script: peer(script, dtype)) for name, script in peers.items()]
            for name, run in contenders:
                row = run()
                rows.setdefault((layout, dtype, name), []).append(row)
                print(f"repeat {repeat} {layout} {dtype} {name}: {row['ms']:.0f} ms, {row['tokens'] / row['ms'] * 1000:.0f} tokens/s, "
                      f"loss {row['loss'][0]:.4f} -> {row['loss'][1]:.4f}, peak of a rank {row['memory'] / 2**20:.0f} MiB",
                      file=sys.stderr, flush=True)

report = []
for (layout, dtype, name), runs in rows.items():
    ms = statistics.median(r["ms"] for r in runs)
    report.append(dict(layout=layout, dtype=dtype, engine=name, step_ms=ms, min=min(r["low"] for r in runs), max=max(r["high"] for r in runs),
                       tokens_per_s=runs[0]["tokens"] / ms * 1000, loss=runs[-1]["loss"], memory=max(r["memory"] for r in runs)))
agree = True
for row in report:
    own = [r for r in report if (r["layout"], r["dtype"], r["engine"]) == (row["layout"], row["dtype"], "rankyard")][0]
    row["rankyard_is"] = own["tokens_per_s"] / row["tokens_per_s"] if row is not own else None
    digits = 5e-5 if row["dtype"] == "fp32" else 5e-3
    row["loss_agrees"] = all(abs(x - y) < digits * abs(y) for x, y in zip(own["loss"], row["loss"]))
    agree = agree and row["loss_agrees"]
if a.json:
    print(json.dumps(report))
else:
    print("| layout | type | engine | step ms min / median / max | tokens/s | Rankyard is | loss first, last | peak of a rank, MiB |\n"
          "|---|---|---|---|---|---|---|---|")
    for r in report:
        times = f"{r['rankyard_is']:.2f}x as fast" if r["rankyard_is"] else ""
        print(f"| {r['layout']} | {r['dtype']} | {r['engine']} | {r['min']:.0f} / {r['step_ms']:.0f} / {r['max']:.0f} | {r['tokens_per_s']:.0f} | {times} | "
              f"{r['loss'][0]:.4f}, {r['loss'][1]:.4f}{'' if r['loss_agrees'] else ' (differs)'} | {r['memory'] / 2**20:.0f} |")
sys.exit(0 if agree else 1)
