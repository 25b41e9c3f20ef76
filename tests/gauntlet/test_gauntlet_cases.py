"""The cases themselves: a library that computes as NumPy does passes them, and one that forgets something does not."""

import numpy
import pytest
from failures.case import Run, all_cases
from failures.exact import solve
from failures.interface import Library, NotOffered
from seeded import SEED

CASES = {case.name: case for case in all_cases()}
DIFFERENT = {"latent-rows-alone", "mixed-types", "windows-below-zero", "blocks-for-other-lengths"}  # no answer to refuse


class Reference(Library):
    """Attention in double precision, whose results are rounded; `spoil` changes problems, or results."""

    def __init__(self, forget=None, damage=None):
        self.forget, self.damage = forget or {}, damage or (lambda outcome: outcome)

    def forward(self, problem):
        return self.gradients(problem.change(d_o=None))

    def gradients(self, problem):
        if problem.rng_state is not None or problem.zero_padding:
            raise NotOffered("no dropout, and no rows of padding that are written")
        values = {name: value(problem) if callable(value) else value for name, value in self.forget.items()}
        return self.damage(solve(problem.change(**values), rounded=True))

    def merge(self, outs, lses):
        weights = [numpy.exp(lse.astype(float)) for lse in lses]
        total = sum(weights)
        share = [numpy.divide(one, total, where=total > 0, out=numpy.zeros_like(total)).T[..., None] for one in weights]
        parts = [numpy.where(one > 0, one * numpy.nan_to_num(o.astype(float)), 0) for one, o in zip(share, outs)]
        with numpy.errstate(divide="ignore"):
            return sum(parts), numpy.log(total)


def put(name, library):
    CASES[name].check(library, Run(numpy.random.default_rng(SEED), gpu=False))


@pytest.mark.parametrize("name", [name for name in CASES if name not in DIFFERENT])
def test_a_right_library_passes(name):
    try:
        put(name, Reference())
    except NotOffered as reason:
        pytest.skip(str(reason))


def first_slopes(problem):
    """The slopes of as many heads, as if these were all: under tensor parallelism those of others."""
    slopes = problem.alibi_slopes
    return (2.0 ** -numpy.arange(1, len(slopes) + 1)).astype(numpy.float32)


def rows_lost(outcome):
    """Only the first sequence's row is written."""
    outcome.o[1:] = numpy.nan
    return outcome


def base_two(outcome):
    outcome.lse = outcome.lse / numpy.log(2)
    return outcome


def changed(name, change):
    """A damage of one result."""

    def damage(outcome):
        array = getattr(outcome, name)
        if array is not None:
            setattr(outcome, name, change(array))
        return outcome

    return damage


def first_lost(array):
    array = array.copy()
    array[(0,) * (array.ndim - 1)] = numpy.nan
    return array


FAILURES = {
    "length-64-beside-a-mask": dict(damage=changed("dq", first_lost)),
    "one-query-of-negative-lse": dict(damage=changed("dk", first_lost)),
    "head-dim-256-of-two-sequences": dict(damage=changed("dq", lambda x: 5 * x)),
    "gradients-of-varlen-sequences": dict(damage=changed("dk", numpy.zeros_like)),
    "softcap-of-varlen-sequences": dict(forget=dict(softcap=0.0)),
    "mask-of-residues": dict(damage=changed("dv", first_lost)),
    "gradient-of-a-broadcast-bias": dict(damage=changed("d_bias", numpy.zeros_like)),
    "gradients-of-sinks": dict(damage=changed("d_sinks", numpy.zeros_like)),
    "causal-output": dict(damage=changed("o", numpy.zeros_like)),
    "window-without-causal": dict(forget=dict(window=lambda problem: (problem.window[0], -1))),
    "window-beside-padding": dict(forget=dict(keep=None)),
    "documents-within-a-window": dict(forget=dict(keep=None, window=None, causal=True)),
    "window-counts-keys": dict(forget=dict(window=lambda problem: (problem.window[0] + 1, 0))),
    "more-queries-than-keys": dict(damage=changed("lse", lambda x: numpy.where(numpy.isneginf(x), -49994, x))),
    "softcap-takes-effect": dict(forget=dict(softcap=0.0)),
    "alibi-of-some-heads": dict(forget=dict(alibi_slopes=first_slopes)),
    "paged-rows-with-splits": dict(damage=rows_lost),
    "left-padding": dict(forget=dict(cache_leftpad=None)),
    "gaps-between-sequences": dict(forget=dict(seqused_k=None)),
    "lengths-of-a-padded-batch": dict(forget=dict(seqused_k=None)),
    "halves-merge-to-the-whole": dict(damage=base_two),
    "sinks-are-scores": dict(forget=dict(sinks=None)),
    "scales-of-varlen-keys": dict(forget=dict(k_descale=None, v_descale=None)),
    "scales-of-heads": dict(forget=dict(k_descale=lambda problem: problem.k_descale[:1])),
    "scale-of-values": dict(forget=dict(v_descale=None)),
    "sequences-without-keys": dict(damage=changed("o", first_lost)),
}


@pytest.mark.parametrize("name", FAILURES)
def test_a_library_with_the_failure_does_not_pass(name):
    with pytest.raises(AssertionError):
        put(name, Reference(**FAILURES[name]))
