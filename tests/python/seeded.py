"""The seed of a run of tests, and cases that it chooses: of the pairs of two lists some in each run."""

import itertools
import os
import secrets

import jit_attention as ja

SEED = int(os.environ.get("JIT_ATTENTION_TEST_SEED", secrets.randbits(32)))


def paired(longer, shorter):
    """On an emulated device, where compiling the kernels takes longest, each element of `longer` once, beside one of
    `shorter` that is another one for the next element, and with the next seed: a few runs take all pairs. On a GPU
    all."""
    if not ja.devices()[0].emulated:
        return list(itertools.product(longer, shorter))
    shorter = list(shorter)
    assert len(longer) >= len(shorter)
    return [(element, shorter[(place + SEED) % len(shorter)]) for place, element in enumerate(longer)]
