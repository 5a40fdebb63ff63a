#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tokens per second of Rankyard and of the Python peers, side by side in one interleaved run.

  compare_peers.py [--python PY --peers DIR] [--size S] [--repeats 3] [--dtypes fp32,bf16] [--modes ddp,zero1]

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
p.add_argument("--modes", default="ddp,zero1", help="modes of the peers' train_torch.py")
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


def ours(dtype):
    folder = work / f"{a.size}-{dtype}"
    if not (folder / "job.json").exists() and not (a.python and a.peers):
        plain_job(folder, dtype)
    elif not (folder / "job.json").exists():
        subprocess.run([a.python, HERE / "export_peer_model.py", "--peers", a.peers, "--out", folder, "--size", a.size,
                        "--dtype", dtype, "--steps", str(WARMUP + a.steps)], check=True, stdout=sys.stderr)
    r = subprocess.run([a.ctl, "train", folder / "job.json", "--json"], capture_output=True, text=True)
    if r.returncode:
        sys.exit(f"rankyardctl failed: {r.stderr[-2000:]}")
    steps = json.loads(r.stdout)["steps"]
    ms = [s["step_ms"] for s in steps[WARMUP:]]
    tokens = steps[-1]["tokens_per_s"] * steps[-1]["step_ms"] / 1000
    memory = sum(v for v in steps[-1]["memory"].values() if isinstance(v, (int, float)))
    return dict(ms=statistics.median(ms), low=min(ms), high=max(ms), tokens=tokens, loss=(steps[0]["loss"], steps[-1]["loss"]),
                memory=memory)


def peer(mode, dtype):
    env = dict(os.environ, OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo", PYTHONWARNINGS="ignore")
    tcmalloc = glob.glob("/usr/lib/*/libtcmalloc_minimal.so.4")
    env["LD_PRELOAD"] = tcmalloc[0] if tcmalloc else ""
    with tempfile.NamedTemporaryFile(suffix=".jsonl") as out:
        cmd = [a.python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
               str(pathlib.Path(a.peers) / "train_torch.py"), "--mode", mode, "--size", a.size, "--dtype", dtype,
               "--steps", str(a.steps), "--warmup", str(WARMUP), "--out", out.name]
        r = subprocess.run(cmd, env=env, capture_output=True, text=True)
        lines = pathlib.Path(out.name).read_text().splitlines()
    if not lines:
        sys.exit(f"peer {mode} failed: {r.stderr[-2000:]}")
    d = json.loads(lines[-1])
    return dict(ms=d["step_ms_median"], low=d["step_ms_min"], high=d["step_ms_max"], tokens=d["tokens_per_step"],
                loss=(d["loss_first"], d["loss_last"]), memory=max(d["peak_rss_bytes_per_rank"]))


rows = {}
for repeat in range(a.repeats):
    for dtype in a.dtypes.split(","):
        contenders = [("rankyard", lambda dt: ours(dt))]
        if a.python and a.peers:
            contenders += [(f"torch {m}", lambda dt, mode=m: peer(mode, dt)) for m in a.modes.split(",")]
        for name, run in contenders:
            row = run(dtype)
            rows.setdefault((dtype, name), []).append(row)
            print(f"repeat {repeat} {dtype} {name}: {row['ms']:.0f} ms, {row['tokens'] / row['ms'] * 1000:.0f} tokens/s, "
                  f"loss {row['loss'][0]:.4f} -> {row['loss'][1]:.4f}", file=sys.stderr, flush=True)

report = []
for (dtype, name), runs in rows.items():
    ms = statistics.median(r["ms"] for r in runs)
    report.append(dict(dtype=dtype, engine=name, step_ms=ms, min=min(r["low"] for r in runs), max=max(r["high"] for r in runs),
                       tokens_per_s=runs[0]["tokens"] / ms * 1000, loss=runs[-1]["loss"], memory=max(r["memory"] for r in runs)))
for row in report:
    base = [r for r in report if r["dtype"] == row["dtype"] and r["engine"].startswith("torch ddp")]
    row["speed_against_ddp"] = row["tokens_per_s"] / base[0]["tokens_per_s"] if base else None
    if base and row["engine"] == "rankyard":
        digits = 5e-5 if row["dtype"] == "fp32" else 5e-3
        row["loss_agrees"] = all(abs(x - y) < digits * abs(y) for x, y in zip(row["loss"], base[0]["loss"]))
if a.json:
    print(json.dumps(report))
else:
    print("| type | engine | step ms min / median / max | tokens/s | against DDP | loss first, last |\n|---|---|---|---|---|---|")
    for r in report:
        against = f"{r['speed_against_ddp']:.2f}x" if r["speed_against_ddp"] else ""
        print(f"| {r['dtype']} | {r['engine']} | {r['min']:.0f} / {r['step_ms']:.0f} / {r['max']:.0f} | {r['tokens_per_s']:.0f} | {against} | "
              f"{r['loss'][0]:.4f}, {r['loss'][1]:.4f} |")
sys.exit(0 if all(r.get("loss_agrees", True) for r in report) else 1)
