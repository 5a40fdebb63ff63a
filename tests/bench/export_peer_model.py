#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes the start weights and the tokens of the peer benchmarks as files that Rankyard reads, so that both train the same thing.

  export_peer_model.py --peers DIR --out DIR [--size S] [--dp 2] [--dtype fp32]

DIR of --peers holds the peers' common.py (model, seeded tokens). Written to --out: init.safetensors (canonical names),
tokens.bin and tokens.idx (Megatron's indexed dataset, one document) and job.json: the peers' task, dp ranks with the size's
micro-batch each, samples in file order. Needs a Python with torch and safetensors.
"""
import argparse
import json
import pathlib
import struct
import sys

p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
p.add_argument("--peers", required=True)
p.add_argument("--out", required=True)
p.add_argument("--size", default="S", choices=["T", "S", "M"])
p.add_argument("--dp", type=int, default=2)
p.add_argument("--dtype", default="fp32", choices=["fp32", "bf16", "fp64"])
p.add_argument("--steps", type=int, default=13)
a = p.parse_args()

sys.path.insert(0, a.peers)
import common  # noqa: E402
import numpy  # noqa: E402
import torch  # noqa: E402
from safetensors.torch import save_file  # noqa: E402

c = common.parser("").parse_args(["--size", a.size])
common.configure(c)
model = common.GPT(c)
out = pathlib.Path(a.out)
out.mkdir(parents=True, exist_ok=True)

NAMES = {"ln1": "attn.norm", "qkv": "attn.qkv", "proj": "attn.out", "ln2": "mlp.norm", "up": "mlp.up", "down": "mlp.down"}


def by_kind(t):
    """Rows ordered (head, {q,k,v}, head_dim), as the peers have them, to ({q,k,v}, head, head_dim)."""
    rest = t.shape[1:]
    return t.view(c.heads, 3, c.hidden // c.heads, *rest).transpose(0, 1).reshape(3 * c.hidden, *rest).contiguous()


tensors = {}
for name, t in model.state_dict().items():
    t = t.detach().float().contiguous()
    part = name.split(".")
    if part[0] == "blocks":
        tensors[f"layers.{part[1]}.{NAMES[part[2]]}.{part[3]}"] = by_kind(t) if part[2] == "qkv" else t
    elif part[0] in ("wte", "wpe"):
        tensors[name] = t
    elif part[0] == "lnf":
        tensors[f"norm.{part[1]}"] = t
    elif part[0] != "head":  # tied
        sys.exit(f"unexpected tensor {name}")
save_file({k: v.clone() for k, v in tensors.items()}, str(out / "init.safetensors"))

tokens = common.Tokens(c).t.numpy().astype(numpy.uint16)
tokens.tofile(out / "tokens.bin")
with open(out / "tokens.idx", "wb") as f:
    f.write(b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, 8, 1, 2))
    f.write(struct.pack("<i", len(tokens)) + struct.pack("<q", 0) + struct.pack("<qq", 0, 1))

job = {
    "schema": "rankyard/job/1", "name": f"peer-{a.size}-{a.dtype}-dp{a.dp}",
    "model": {"family": "gpt2", "layers": c.layers, "hidden": c.hidden, "heads": c.heads, "seq": c.seq, "vocab": c.vocab},
    "init": {"from": "init.safetensors"},
    "data": {"train": "tokens", "valid_fraction": 0, "seed": None},
    "batch": {"global": c.mb * a.dp, "micro": c.mb},
    "layout": {"dp": a.dp}, "zero": {"stage": 1 if a.dp > 1 else 0},
    "precision": {"compute": a.dtype},
    "optimizer": {"lr": 3e-4, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1, "no_decay": [], "clip": 1.0},
    "lr_schedule": {"kind": "constant", "warmup": 0},
    "run": {"steps": a.steps, "eval_every": 0, "checkpoint_every": 0},
}
(out / "job.json").write_text(json.dumps(job, indent=1) + "\n")
print(f"{sum(t.numel() for t in tensors.values()):,} parameters, {len(tokens):,} tokens in {out}")
