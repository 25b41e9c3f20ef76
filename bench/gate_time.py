#!/usr/bin/env python3
"""Times a gate on the output: attention and its gradients without one, with one, and with a kernel of its own.

    bench/gate_time.py
    bench/gate_time.py --seconds 3

16,384 tokens in causal sequences, and decoding of 32 sequences; 32 query and 8 KV heads, head_dim 128, bf16, with the
configs that the cost model chooses. "two kernels" is attention and then σ(gate) · o, or its gradients before those of
attention, by torch.compile. Medians of bursts of CUDA graphs without a pause, in turns. "share" is the time with the gate
over that without, "gain" that of two kernels over that with the gate, "saved" their difference. Needs a GPU and PyTorch.

Exit status 2 without a GPU and for wrong arguments.
"""

import argparse
import functools
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from comparison import environment, report  # noqa: E402
from output_time import times  # noqa: E402

HEADS, HEADS_KV, HEAD_DIM = 32, 8, 128
#: Batch, queries and keys per sequence.
PROBLEMS = {"4k": (4, 4096, 4096), "16k": (1, 16384, 16384), "decode 4k": (32, 1, 4096)}
WAYS = PLAIN, GATED, TWO = "without", "gate", "two kernels"
HEAD = ["µs", *WAYS, "share", "gain", "saved"]


def gate(o, gate):
    """The gate as torch code, which torch compiles to one kernel."""
    return o * gate.float().sigmoid()


def gate_gradients(do, o, gate):
    """The gradients of the gate as torch code."""
    sigma = gate.float().sigmoid()
    return (do * sigma).to(o.dtype), (do.float() * o * sigma * (1 - sigma)).to(gate.dtype)


class Problem:
    """Random arrays, and forward and backward calls by name. `compiled`: torch.compile, or the identity."""

    def __init__(self, batch, queries, keys, device="cuda", compiled=lambda function: function):
        import jit_attention as ja
        import torch

        make = functools.partial(torch.empty, device=device)
        random = lambda rows, heads: torch.randn(batch, rows, heads, HEAD_DIM, device=device).bfloat16()
        q, k, v = random(queries, HEADS), random(keys, HEADS_KV), random(keys, HEADS_KV)
        self.gate, dy = random(queries, HEADS), random(queries, HEADS)
        self.o, self.raw = torch.empty_like(q), torch.empty_like(q)
        lse, d_gate = make(batch, HEADS, queries), torch.empty_like(q)
        gradients = dict(zip(("dq", "dk", "dv"), (torch.empty_like(one) for one in (q, k, v))))
        spec = dict(dtype="bf16", head_dim=HEAD_DIM, gqa_ratio=HEADS // HEADS_KV, mask=ja.mask.causal())
        output, tensors = ja.output.sigmoid_gate(), {"gate": self.gate}
        plain = ja.prepare(ja.AttentionSpec(**spec), q, k, v, tuning="off")
        gated = ja.prepare(ja.AttentionSpec(**spec, output=output), q, k, v, tensors=tensors, tuning="off")
        own, own_gradients = compiled(gate), compiled(gate_gradients)
        backward = functools.partial(ja.attention_backward, q=q, k=k, v=v, o=self.raw, lse=lse, mask=spec["mask"],
                                     tuning="off", **gradients)

        def two_forward():
            plain(q, k, v, out=self.raw)
            return own(self.raw, self.gate)

        def two_backward():
            do, of_gate = own_gradients(dy, self.raw, self.gate)
            backward(do)
            return of_gate

        self.forward = {PLAIN: lambda: plain(q, k, v, out=self.raw),
                        GATED: lambda: gated(q, k, v, out=self.o, tensors=tensors), TWO: two_forward}
        self.backward = {PLAIN: lambda: backward(dy),
                         GATED: lambda: backward(dy, output=output, tensors=tensors, d_tensors={"gate": d_gate}),
                         TWO: two_backward}
        plain(q, k, v, out=self.raw, return_lse=lse)
        self.d_gate = d_gate


def row(label, us):
    """A line of the table, from the result of times()."""
    return [label, *(f"{us[way]:.1f}" for way in WAYS), f"{us[GATED] / us[PLAIN]:.3f}", f"{us[TWO] / us[GATED]:.3f}",
            f"{us[TWO] - us[GATED]:.1f}"]


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=1, metavar="S", help="for each row, at least ten rounds (1)")
    options = parser.parse_args(arguments)
    environment.require_gpu(parser)
    import torch

    print(environment.one_line(), "", *report.table_lines([HEAD]), sep="\n", flush=True)
    for name, sizes in PROBLEMS.items():
        problem = Problem(*sizes, compiled=torch.compile)
        passes = {"forward": problem.forward} | ({"backward": problem.backward} if sizes[1] > 1 else {})
        for one, calls in passes.items():
            for call in calls.values():
                call()
            print("| " + " | ".join(row(f"{one} {name}", times(calls, options.seconds))) + " |", flush=True)
        difference = (problem.o.float() - gate(problem.raw.float(), problem.gate)).abs().max().item()
        print(f"<!-- {name}: largest difference of both ways {difference:.4f} -->", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
