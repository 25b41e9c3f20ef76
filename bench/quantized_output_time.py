#!/usr/bin/env python3
"""Times of 8-bit o beside 16-bit o: forward passes and decoding, with scales of rows found or given.

    bench/quantized_output_time.py
    bench/quantized_output_time.py --seconds 3

16,384 tokens in causal sequences, and decoding of 32 sequences and of one; 32 query and 8 KV heads, head_dim 128, bf16, with the
configs that the cost model chooses. "two kernels" is attention and then the scale of each row and e4m3 by torch.compile.
Medians of bursts of CUDA graphs without a pause, in turns. "share" is the time over that of bf16. Needs a GPU and PyTorch.

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
PROBLEMS = {"4k": (4, 4096, 4096), "16k": (1, 16384, 16384), "decode 32 × 4k": (32, 1, 4096),
            "decode 1 × 32k": (1, 1, 32768)}
PLAIN, TWO = "bf16", "two kernels"
#: out_dtype, and whether the kernel computes the scales.
KINDS = {"e4m3": ("fp8_e4m3", True), "e4m3, given": ("fp8_e4m3", False), "int8": ("int8", True)}
HEAD = ["µs", PLAIN, *(text for way in (*KINDS, TWO) for text in (way, "share"))]


def rounded(o):
    """Rounding to e4m3 and the scale of each row as torch code, which torch compiles to one kernel."""
    scale = o.float().abs().amax(-1, keepdim=True) / 448
    return (o.float() / scale).to(e4m3()), scale


def e4m3():
    import torch

    return torch.float8_e4m3fn


class Problem:
    """Random arrays, and calls by name. `compiled`: torch.compile, or the identity."""

    def __init__(self, batch, queries, keys, device="cuda", compiled=lambda function: function):
        import jit_attention as ja
        import torch

        random = lambda rows, heads: torch.randn(batch, rows, heads, HEAD_DIM, device=device).bfloat16()
        q, k, v = random(queries, HEADS), random(keys, HEADS_KV), random(keys, HEADS_KV)
        self.o = torch.empty_like(q)
        spec = dict(dtype="bf16", head_dim=HEAD_DIM, gqa_ratio=HEADS // HEADS_KV, mask=ja.mask.causal())
        prepare = lambda **options: ja.prepare(ja.AttentionSpec(**spec, **options), q, k, v, tuning="off")
        plain = prepare()
        self.configs = {PLAIN: plain.kernel(q, k, v).config}
        self.calls = {PLAIN: lambda: plain(q, k, v, out=self.o)}
        self.results = {}
        for way, (out_dtype, found) in KINDS.items():
            dtype = torch.int8 if out_dtype == "int8" else e4m3()
            out, scale = torch.empty_like(q, dtype=dtype), torch.full((batch, HEADS, queries), 0.01, device=device)
            kernel = self.kernel(ja, spec, out_dtype, found, q, k, v, scale)
            given = {"return_aux": {"o_descale": scale}} if found else {"o_descale": scale}
            self.calls[way] = functools.partial(kernel, q, k, v, out=out, **given)
            self.results[way] = out, scale
        own = compiled(rounded)
        self.calls[TWO] = lambda: own(plain(q, k, v, out=self.o))

    def kernel(self, ja, spec, out_dtype, found, q, k, v, scale):
        options = {} if found else {"o_descale": scale}
        kernel = ja.prepare(ja.AttentionSpec(**spec, out_dtype=out_dtype, o_descale=found), q, k, v, tuning="off", **options)
        self.configs[out_dtype] = kernel.kernel(q, k, v, **options).config
        return kernel

    def errors(self):
        """Each way's largest difference from bf16 o, relative to o's largest value."""
        most = self.o.float().abs().amax()
        return {way: ((out.float() * scale.transpose(1, 2)[..., None] - self.o.float()).abs().amax() / most).item()
                for way, (out, scale) in self.results.items()}


def row(label, us):
    """A line of the table, from the result of times()."""
    return [label, f"{us[PLAIN]:.1f}",
            *(text for way in (*KINDS, TWO) for text in (f"{us[way]:.1f}", f"{us[way] / us[PLAIN]:.3f}"))]


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=1, metavar="S", help="for each row, at least ten rounds (1)")
    options = parser.parse_args(arguments)
    environment.require_gpu(parser)
    import torch

    print(environment.one_line(), "", *report.table_lines([HEAD]), sep="\n", flush=True)
    for name, sizes in PROBLEMS.items():
        problem = Problem(*sizes, compiled=torch.compile)
        for call in problem.calls.values():
            call()
        print("| " + " | ".join(row(name, times(problem.calls, options.seconds))) + " |", flush=True)
        differences = ", ".join(f"{way} {error:.3f}" for way, error in problem.errors().items())
        print(f"<!-- {name}: largest differences {differences} -->", flush=True)
        for way, config in problem.configs.items():
            print(f"<!-- {way}: {' '.join(f'{field}={value}' for field, value in config.items())} -->")
    return 0


if __name__ == "__main__":
    sys.exit(main())
