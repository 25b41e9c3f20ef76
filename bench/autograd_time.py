#!/usr/bin/env python3
"""Host time of PyTorch's way through attention and its gradients, in microseconds, without kernels: no GPU is needed.

`jit_attention.torch.attention` and `backward()` run on tensors of the CPU, while the library's own two functions are replaced
by copies of results. A figure is the least of some batches, in time of the processor. "function" is what PyTorch takes for a
`torch.autograd.Function` that does nothing else, "operator" the way that compilers and modes see.

    bench/autograd_time.py [--steps NUMBER]
"""

import argparse
import os
import time

BATCHES = 7


def least(step, steps):
    def batch():
        start = time.process_time()
        for _ in range(steps):
            step()
        return (time.process_time() - start) / steps * 1e6

    return min(batch() for _ in range(BATCHES))


def measure(steps):
    """Names and microseconds of a step's parts."""
    import jit_attention as ja
    import jit_attention.torch as jt
    import torch
    from jit_attention.torch import op, operator

    q, k, v = (torch.zeros(1, 16, 2, 64, dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
    do, o, lse = torch.zeros(1, 16, 2, 64, dtype=torch.bfloat16), q.detach(), torch.zeros(1, 2, 16)
    causal = ja.mask.causal()

    def attention(*_, **__):
        return o.clone(), lse.clone()

    def gradients(*_, **__):
        return o.clone(), o.clone(), o.clone(), {}

    class Function(torch.autograd.Function):
        @staticmethod
        def forward(ctx, *inputs):
            results = attention()
            ctx.save_for_backward(*inputs, *results)
            return results[0]

        @staticmethod
        def backward(ctx, do):
            _ = ctx.saved_tensors
            return gradients()[:3]

    def step_of(compute):
        def step():
            q.grad = k.grad = v.grad = None
            compute(q, k, v).backward(do)

        return step

    def through_operator(*inputs):
        op.is_watched = lambda *_: True
        try:
            return jt.attention(*inputs, mask=causal)
        finally:
            op.is_watched = watched

    watched = op.is_watched
    native = operator._attention, operator._attention_backward
    operator._attention, operator._attention_backward = attention, gradients
    try:
        for name, compute in (("function", Function.apply),
                              ("jit_attention.torch.attention", lambda *x: jt.attention(*x, mask=causal)),
                              ("operator", through_operator)):
            step = step_of(compute)
            step()
            yield name, least(step, steps)
    finally:
        operator._attention, operator._attention_backward = native


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=300, help="steps of a batch, at least 1")
    arguments = parser.parse_args()
    if arguments.steps < 1:
        parser.error(f"argument --steps: {arguments.steps}, which is less than 1")
    os.environ.setdefault("JIT_ATTENTION_DEVICE", "emulated:sm_90a")
    print("| a step | µs |\n| --- | ---: |")
    for name, value in measure(arguments.steps):
        print(f"| {name} | {value:.0f} |")


if __name__ == "__main__":
    main()
