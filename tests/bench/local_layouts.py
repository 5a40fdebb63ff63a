#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""Predicted against measured time of a step on this machine, for ten layouts of two and four ranks.

  local_layouts.py [--ctl rankyardctl] [--blocks 3] [--steps 8] [--dtype fp32] [--json]

Probe and runs are interleaved: a block is a probe, every layout once, and a probe again. A block in which the reference product of the
two probes differs by more than 5 % is repeated, for the machine was not the same. A layout is predicted with the probe of its block. Model S of
compare_peers.py on tokens without meaning.
"""
import argparse
import array
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
p.add_argument("--blocks", type=int, default=3)
p.add_argument("--steps", type=int, default=8)
p.add_argument("--dtype", default="fp32")
p.add_argument("--layouts", help="some of them, with commas")
p.add_argument("--json", action="store_true")
a = p.parse_args()
WARMUP = 3
REFERENCE = (1024, 1536, 384)

PIPELINE = ["layout.dp=1", "layout.pp=2", "zero.stage=0", "batch.micro=2"]
LAYOUTS = {
    "dp 2": [],
    "tp 2": ["layout.dp=1", "layout.tp=2", "zero.stage=0"],
    "tp 2, sequence parallel": ["layout.dp=1", "layout.tp=2", "zero.stage=0", "layout.sequence_parallel=true"],
    "pp 2, 1f1b": PIPELINE,
    "pp 2, interleaved": PIPELINE + ["layout.schedule=interleaved", "layout.virtual=2"],
    "pp 2, zbv": PIPELINE + ["layout.schedule=zbv", "layout.virtual=2"],
    "zero 3": ["zero.stage=3"],
    "full recompute": ["recompute.mode=full"],
    "dp 2 · tp 2": ["layout.tp=2"],
    "dp 2 · pp 2": ["layout.pp=2", "batch.micro=2"],
}


def job(folder):
    draw = random.Random(1234)
    tokens = array.array("H", (draw.randrange(8192) for _ in range(1 << 18)))
    (folder / "tokens.bin").write_bytes(tokens.tobytes())
    (folder / "tokens.idx").write_bytes(b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, 8, 1, 2) + struct.pack("<i", len(tokens))
                                        + struct.pack("<q", 0) + struct.pack("<qq", 0, 1))
    file = folder / "job.json"
    file.write_text(json.dumps({
        "schema": "rankyard/job/1", "name": "local-layouts",
        "model": {"family": "gpt2", "layers": 6, "hidden": 384, "heads": 6, "seq": 256, "vocab": 8192},
        "data": {"train": "tokens", "valid_fraction": 0, "seed": None},
        "batch": {"global": 16, "micro": 8}, "layout": {"dp": 2}, "zero": {"stage": 1}, "precision": {"compute": a.dtype},
        "lr_schedule": {"kind": "constant", "warmup": 0},
        "run": {"steps": WARMUP + a.steps, "eval_every": 0, "checkpoint_every": 0}}))
    return file


def ctl(*arguments):
    run = subprocess.run([a.ctl, *map(str, arguments), "--json"], capture_output=True, text=True, env=environment)
    if run.returncode != 0:
        sys.exit(f"rankyardctl {' '.join(map(str, arguments))}: {run.stderr.strip() or run.stdout.strip()}")
    return json.loads(run.stdout)


def probe():
    made = ctl("cluster", "probe", "--types", a.dtype)
    return statistics.median(x["gflops"] for x in made["probe"]["products"] if (x["m"], x["n"], x["k"]) == REFERENCE)


def say(text):
    print(text, file=sys.stderr, flush=True)


with tempfile.TemporaryDirectory(prefix="rankyard-layouts-") as work:
    environment = dict(os.environ, XDG_DATA_HOME=work, XDG_STATE_HOME=work)
    file = job(pathlib.Path(work))
    chosen = {name: LAYOUTS[name] for name in (a.layouts.split(",") if a.layouts else LAYOUTS)}
    results = {name: [] for name in chosen}
    memory = {}
    blocks = repeated = 0
    while blocks < a.blocks:
        before = probe()
        block = {}
        for name, overrides in chosen.items():
            sets = [x for o in overrides for x in ("--set", o)]
            planned = ctl("plan", file, "--cluster", "local", *sets)
            steps = ctl("train", file, *sets)["steps"]
            measured = statistics.median(s["step_ms"] for s in steps if s["step"] > WARMUP)
            block[name] = (planned["step_ms"], measured)
            say(f"  {name:26} predicted {planned['step_ms']:8.1f} ms  measured {measured:8.1f} ms  {100 * (planned['step_ms'] / measured - 1):+6.1f} %")
            peak = planned["ranks"][0]["memory"]
            taken = steps[-1]["memory"]
            memory[name] = (sum(v for k, v in peak.items() if k != "peak"), sum(taken.values()) if taken else None)
        after = probe()
        moved = abs(after / before - 1)
        if moved > 0.05:
            repeated += 1
            say(f"the reference product moved by {100 * moved:.1f} %: the block is repeated")
            if repeated > 3 * a.blocks:
                sys.exit("the machine does not stand still: nothing else may run on it")
            continue
        blocks += 1
        say(f"block {blocks}: reference product {before:.0f} GFLOP/s, moved by {100 * moved:.1f} %")
        for name, pair in block.items():
            results[name].append(pair)
    rows = []
    for name, pairs in results.items():
        predicted = statistics.median(x for x, _ in pairs)
        measured = statistics.median(y for _, y in pairs)
        rows.append({"layout": name, "predicted_ms": predicted, "measured_ms": measured, "error": predicted / measured - 1,
                     "spread": max(y for _, y in pairs) / min(y for _, y in pairs) - 1})
    if a.json:
        print(json.dumps({"rows": rows, "blocks": blocks, "repeated": repeated}))
    else:
        print(f"{'layout':26} {'predicted':>10} {'measured':>10} {'error':>8} {'spread':>8}")
        for r in rows:
            print(f"{r['layout']:26} {r['predicted_ms']:7.1f} ms {r['measured_ms']:7.1f} ms {100 * r['error']:+6.1f} % {100 * r['spread']:6.1f} %")
        errors = [abs(r["error"]) for r in rows]
        print(f"worst {100 * max(errors):.1f} %, median {100 * statistics.median(errors):.1f} %, {blocks} blocks, {repeated} repeated")
