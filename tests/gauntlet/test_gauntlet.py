"""jit-attention put to every published failure; of the cases those that the seed chooses, unless one is asked for."""

import jit_attention as ja
import numpy
import pytest
from failures.case import KINDS, SOURCE, Run, all_cases
from failures.interface import NotOffered
from failures.ours import Ours
from failures.placing import OnGpu, Placing
from seeded import SEED, some, takes_all

SHARE = 6  # kernels take long to compile
CASES = all_cases()


@pytest.fixture(scope="module")
def library():
    if ja.devices()[0].emulated:
        return Ours(Placing())
    pytest.importorskip("torch", reason="arrays on a GPU are PyTorch's in these tests")
    return Ours(OnGpu())


def chosen(config):
    asked = any("::" in argument for argument in config.args) or config.option.keyword
    return CASES if asked or takes_all() else some(CASES, SHARE)


def pytest_generate_tests(metafunc):
    if "case" in metafunc.fixturenames:
        metafunc.parametrize("case", chosen(metafunc.config), ids=lambda one: one.name)


def test_case(case, library):
    print(f"JIT_ATTENTION_TEST_SEED={SEED}")
    run = Run(numpy.random.default_rng(SEED), library.placing.gpu)
    try:
        case.check(library, run)
    except NotOffered as reason:
        pytest.skip(str(reason))


def test_cases_name_their_sources():
    names = [one.name for one in CASES]
    assert len(set(names)) == len(names) >= 40
    assert {one.kind for one in CASES} == set(KINDS)
    for one in CASES:
        assert one.sources and all(SOURCE.fullmatch(source) for source in one.sources), one.name
        assert one.where and one.failed and one.asserts, one.name


def test_failures_are_noticed(library):
    """A library that is wrong by a little, in one row, does not pass."""
    from failures import exact, problem

    asked = problem.dense(numpy.random.default_rng(SEED), seqlen_q=20, gradients=True)
    right = exact.solve(asked, rounded=True)
    exact.compare(asked, right)
    for name in ("o", "lse", "dq", "dk", "dv"):
        for change in (lambda x: x + 0.1, lambda x: x * numpy.nan, lambda x: numpy.zeros_like(x)):
            wrong = exact.solve(asked, rounded=True)
            array = getattr(wrong, name)
            row = (0, 1, 3) if name == "lse" else (0, 3, 1)
            array[row] = change(array[row])
            with pytest.raises(AssertionError, match=f"^{name} "):
                exact.compare(asked, wrong)
