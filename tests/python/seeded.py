"""The seed of a run of tests, and cases that it chooses: of a list, or of the pairs of two, some in each run."""

import itertools
import os
import secrets

import jit_attention as ja

SEED = int(os.environ.get("JIT_ATTENTION_TEST_SEED", secrets.randbits(32)))


def takes_all():
    """Whether nothing is left out: on a GPU, and with JIT_ATTENTION_TEST_ALL=1. On an emulated device compiling kernels
    takes longest."""
    return not ja.devices()[0].emulated or os.environ.get("JIT_ATTENTION_TEST_ALL") == "1"


def some(cases, count=None, turn=0):
    """Every `count`-th case, from where the seed falls on: a few runs take all. Without a count a quarter of the cases, of
    up to three a half. Tests that go through the same cases have a `turn` each, so that a run has all of two cases in one
    test or another."""
    cases = list(cases)
    count = count or (4 if len(cases) > 3 else 2)
    first = SEED // 16 + turn  # by itself: the cases may be pairs
    return [case for place, case in enumerate(cases) if takes_all() or (place + first) % count == 0]


def in_turn(tests, count):
    """Every `count`-th test. By other digits of the seed than `some` chooses by: a test would else go through the same
    share of its own cases whenever its turn is."""
    first = (SEED * 0x9E3779B97F4A7C15 % 2**64) >> 40
    return [test for place, test in enumerate(tests) if takes_all() or (place + first) % count == 0]


def paired(longer, shorter):
    """Each element of `longer` once, beside one of `shorter` that is another one for the next element, and with the
    next seed: a few runs take all pairs."""
    if takes_all():
        return list(itertools.product(longer, shorter))
    shorter = list(shorter)
    assert len(longer) >= len(shorter)
    return [(element, shorter[(place + SEED) % len(shorter)]) for place, element in enumerate(longer)]
