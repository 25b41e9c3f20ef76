"""Calls whose `bits_of` are equal compute equal bits: layouts, pages, chunks, batches, families and configs."""

import os

import jit_attention as ja
import numpy
import pytest
from bit_cases import AXES, CONFIGS, BitCase, Computed, differences, draw, pairwise
from exact_attention import exact_attention
from seeded import SEED, some, takes_all

COVER = pairwise(AXES, BitCase.is_possible, numpy.random.default_rng(49))
DRAWS = int(os.environ.get("JIT_ATTENTION_BIT_DRAWS", "0"))


@pytest.fixture
def is_hopper():
    if not str(ja.devices()[0].arch).startswith("sm_90"):
        pytest.skip("one config serves all calls of other GPUs")


@pytest.mark.parametrize("case", some(COVER, 24), ids=lambda case: "-".join(map(str, vars(case).values())))
def test_pairs(case, rng, place, fetch, is_hopper):
    assert not differences(case, rng, place, fetch)


@pytest.mark.skipif(DRAWS == 0, reason="JIT_ATTENTION_BIT_DRAWS says how many")
def test_draws(place, fetch, is_hopper):
    wrong = []
    for number in range(DRAWS):
        rng = numpy.random.default_rng([SEED, number])
        case = draw(rng)
        found = differences(case, rng, place, fetch)
        if found:
            wrong.append((SEED, number, case, found))
            print(wrong[-1])
    assert not wrong
