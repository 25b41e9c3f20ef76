#!/usr/bin/env python3
"""Attention in compiled functions of JAX beside cuDNN's of JAX: times of forward, and of forward with gradients.

    bench/jax_time.py
    bench/jax_time.py --seconds 5

16,384 tokens, heads * head_dim 2,048, bf16. Milliseconds and TFLOP/s of a step of a compiled loop, whose steps wait for
each other: the time of long loops less that of short ones, medians in turns. Needs JAX and a GPU.
JIT_ATTENTION_TUNING says how kernels are chosen.

Exit status 2 without a GPU and for wrong arguments.
"""

import argparse
import itertools
import pathlib
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from comparison import report, timing  # noqa: E402

TOKENS, HIDDEN, SHORT = 16384, 2048, 10
HEAD_DIMS, ROWS = (64, 128), (2048, 8192)
HEAD = ["", "forward ms", "TFLOP/s", "of cuDNN", "with gradients ms", "TFLOP/s", "of cuDNN"]


def contenders():
    """{name: attention(q, k, v, is_causal)}."""
    import jax
    import jit_attention as ja
    from jit_attention.jax import attention

    return {"ours": lambda q, k, v, causal: attention(q, k, v, mask=ja.mask.causal() if causal else None),
            "cuDNN": lambda q, k, v, causal: jax.nn.dot_product_attention(q, k, v, is_causal=causal,
                                                                          implementation="cudnn")}


def loop(attend, causal, has_gradients):
    """A compiled function of inputs and a number of steps; each step depends on the previous one."""
    import jax

    def step(_, inputs):
        q, k, v, do = inputs
        if not has_gradients:
            made = attend(q, k, v, causal)
        else:
            _, pull = jax.vjp(lambda *x: attend(*x, causal), q, k, v)
            made = pull(do)[0]
        return jax.lax.dynamic_update_slice(q, made[:1, :1, :1], (0, 0, 0, 0)), k, v, do  # orders the steps

    return jax.jit(lambda inputs, count: jax.lax.fori_loop(0, count, step, inputs)[0])


def seconds_of(run, inputs, count):
    begin = time.perf_counter()
    run(inputs, count).block_until_ready()
    return time.perf_counter() - begin


def milliseconds(runs, inputs, seconds):
    """{name: milliseconds per step}."""
    counts = {}
    for name, run in runs.items():
        seconds_of(run, inputs, 1)  # compiles
        counts[name] = SHORT + max(SHORT, round(timing.SUSTAINED_US * 1e-6 * SHORT / seconds_of(run, inputs, SHORT)))
    samples = {name: [] for name in runs}
    for order in timing.rounds(runs, seconds):
        for name in order:
            more = seconds_of(runs[name], inputs, counts[name]) - seconds_of(runs[name], inputs, SHORT)
            samples[name].append(more * 1e3 / (counts[name] - SHORT))
    return {name: statistics.median(own) for name, own in samples.items()}


def tflops(rows, causal, products, ms):
    """TFLOP/s of `products` matrix products for each sequence and head."""
    flops = 2 * products * TOKENS * rows * HIDDEN // (2 if causal else 1)
    return flops / ms / 1e9


def row(head_dim, rows, causal, forward, both):
    """A line of the table, from the result of milliseconds()."""
    texts = [f"d{head_dim} {rows}{' causal' if causal else ''}"]
    for products, ms in ((2, forward), (7, both)):
        texts += [f"{ms['ours']:.3f}", f"{tflops(rows, causal, products, ms['ours']):.0f}",
                  f"{ms['cuDNN'] / ms['ours']:.2f}"]
    return texts


def no_gpu():
    """The reason why nothing can be measured here, one sentence; None: a GPU exists."""
    try:
        import jax
    except ImportError:
        return "measuring needs JAX, which is not installed"
    return None if jax.default_backend() == "gpu" else "measuring needs a GPU, and JAX sees none"


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3, metavar="S", help="for each row, at least ten rounds (3)")
    options = parser.parse_args(arguments)
    if reason := no_gpu():
        parser.exit(2, f"{parser.prog}: {reason}\n")
    import jax

    known = contenders()
    print(f"{jax.devices()[0].device_kind}, JAX {jax.__version__}.", "", *report.table_lines([HEAD]), sep="\n",
          flush=True)
    for head_dim, rows, causal in itertools.product(HEAD_DIMS, ROWS, (False, True)):
        shape = TOKENS // rows, rows, HIDDEN // head_dim, head_dim
        inputs = tuple(jax.random.normal(key, shape, "bfloat16") for key in jax.random.split(jax.random.key(1), 4))
        times = [milliseconds({name: loop(attend, causal, has_gradients) for name, attend in known.items()}, inputs,
                              options.seconds) for has_gradients in (False, True)]
        print("| " + " | ".join(row(head_dim, rows, causal, *times)) + " |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
