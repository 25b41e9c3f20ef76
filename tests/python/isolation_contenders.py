"""Contenders for test_isolation.py, made in the process that measures: some of them do not come back."""

import functools
import os
import time

from comparison import measure, timing
from comparison.contender import Contender, Runner
from comparison.measure import DeviceLost
from comparison.reference import Reference


class Given(Contender):
    def __init__(self, name, prepare=None, sample=None):
        self.name, self.label = name, name
        self.prepare, self.sample = prepare, sample

    def make(self, cell, inputs):
        if self.prepare:
            self.prepare()
        right = Reference(cell, inputs).output.bfloat16()
        return Runner(lambda: right, detail=dict(sample=self.sample))


def lose_the_device():
    """An error after which the GPU does not answer."""
    def ask_device(device):
        raise DeviceLost("no GPU any more")

    measure.ask_device = ask_device
    raise RuntimeError("an illegal address")


def sample_cold(runners, seconds):
    for runner in runners.values():
        if runner.detail.pop("sample"):
            time.sleep(60)
    return {name: [7.0] for name in runners}


def make(names):
    """The contenders `names`, and a clock that needs no GPU."""
    timing.sample_cold = sample_cold
    known = dict(right=Given("right"), also_right=Given("also_right"), sleeps=Given("sleeps", lambda: time.sleep(60)),
                 dies=Given("dies", lambda: os._exit(3)), lost=Given("lost", lose_the_device),
                 hangs=Given("hangs", sample=True))
    return [known[name] for name in names]


def maker(*names):
    return functools.partial(make, names)
