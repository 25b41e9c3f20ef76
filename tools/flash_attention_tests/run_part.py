"""Draws one process's share of the cases and runs them by pytest, with stand-ins for the modules that they import."""

import contextlib
import json
import random
import sys
import time
import unittest.mock

import pytest
import stand_ins
from selection import reason_against


def run_part(options):
    import torch

    from __main__ import FILES

    plugin = Plugin(options)
    folder = options.checkout.resolve() / "tests/cute"
    sys.path.insert(0, str(folder))  # for what the tests share
    stand_ins.install(options.checkout)
    arguments = ["-q", "-p", "no:cacheprovider", "--noconftest", "--rootdir", str(folder), "-q",
                 *([f"-k={options.expression}"] if options.expression else []),
                 *[str(options.checkout.resolve() / name) for name in FILES]]
    with on_cpu(torch) if options.device.startswith("emulated") else contextlib.nullcontext():
        status = pytest.main(arguments, plugins=[plugin])
    if status in (pytest.ExitCode.INTERNAL_ERROR, pytest.ExitCode.USAGE_ERROR) or plugin.errors:
        print(*plugin.errors, sep="\n")
        return 2
    options.out.write_text(json.dumps(dict(cases=plugin.cases, tests=plugin.tests)))
    return 0


# Tests skip features that FlashAttention-4 lacks on Hopper by these names; with no architecture they test everything.
_ARCHITECTURE = {"IS_SM90": False, "COMPUTE_CAPABILITY": 0}


@contextlib.contextmanager
def on_cpu(torch):
    """Runs on the CPU tests that name the device "cuda": an emulated device's tensors are the CPU's, and it is an
    sm_90."""
    from torch.overrides import TorchFunctionMode

    def attention(q, k, v, score_mod=None, enable_gqa=False):
        """Stand-in for FlexAttention, which has no gradients on the CPU."""
        k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], 1) for x in (k, v)) if enable_gqa else (k, v)
        scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
        places = [torch.arange(size).reshape([-1] + [1] * (3 - i)) for i, size in enumerate(scores.shape)]
        scores = scores if score_mod is None else score_mod(scores, *places)
        return torch.softmax(scores.float(), -1).to(v.dtype) @ v

    class OnCpu(TorchFunctionMode):
        def __torch_function__(self, function, types, arguments=(), keywords=None):
            keywords = dict(keywords or {})
            if str(keywords.get("device", "")).startswith("cuda"):
                keywords["device"] = "cpu"
            return function(*arguments, **keywords)

    with unittest.mock.patch.multiple(torch.cuda, get_device_capability=lambda *_: (9, 0), synchronize=lambda *_: None,
                                      empty_cache=lambda: None), OnCpu(), \
            unittest.mock.patch.object(torch, "compile", lambda function: function), \
            unittest.mock.patch("torch.nn.attention.flex_attention.flex_attention", attention):
        yield


class Plugin:
    """Draws cases, skips those that do not apply, and records outcomes."""

    def __init__(self, options):
        self.options = options
        self.deadline = time.monotonic() + options.seconds
        self.cases, self.tests, self.errors = [], {}, []

    @pytest.hookimpl(tryfirst=True)
    def pytest_generate_tests(self, metafunc):
        """Parametrizes a test by some of its cases; pytest would list all of them."""
        node = metafunc.definition
        marks = [mark for mark in node.iter_markers("parametrize")]
        axes = [axis_of(mark, self.options.longest) for mark in marks]
        count = 1
        for _, values in axes:
            count *= len(values)
        self.tests[node.name] = (count, reason_against(node.name, {}))
        node.own_markers[:] = [mark for mark in node.own_markers if mark.name != "parametrize"]
        node.obj.pytestmark = [mark for mark in getattr(node.obj, "pytestmark", []) if mark.name != "parametrize"]
        if not axes:
            return
        names = [name for own, _ in axes for name in own]
        draw = random.Random(f"{self.options.seed} {node.name}")
        numbers = draw.sample(range(count), min(count, self.options.cases))
        combinations = [combination(axes, number) for number in sorted(numbers)]
        metafunc.parametrize(names, combinations, ids=[case_name(values) for values in combinations])

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items):
        for test in {item.module for item in items}:
            for name in (name for name in _ARCHITECTURE if hasattr(test, name)):
                setattr(test, name, _ARCHITECTURE[name])
        kept = []
        for number, item in enumerate(items):
            if self.options.list or number % self.options.jobs != self.options.part:
                continue
            case = getattr(item, "callspec", None)
            reason = reason_against(item.originalname, case.params if case else {})
            if reason:
                self.keep(item, "left out", reason)
            else:
                kept.append(item)
        items[:] = kept

    def pytest_runtest_setup(self, item):
        if time.monotonic() > self.deadline:
            pytest.skip("no time")

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, item, call):
        report = (yield).get_result()
        if report.when == "call" or (report.when == "setup" and not report.passed):
            outcome = "xfailed" if report.skipped and hasattr(report, "wasxfail") else report.outcome
            text = report.longreprtext if outcome == "failed" else str(report.longrepr or "")
            if outcome == "skipped" and "no time" in text:
                outcome = "no time"
            self.keep(item, outcome, "\n".join(text.splitlines()[-12:]))

    def pytest_collectreport(self, report):
        if report.failed:
            self.errors.append(report.longreprtext)

    def keep(self, item, outcome, text):
        name = item.name.partition("[")[2].removesuffix("]")
        self.cases.append(dict(test=item.originalname, case=name, outcome=outcome, text=text))


def axis_of(mark, longest):
    """Names and values of one parametrize mark, except lengths beyond the longest."""
    names, values = mark.args[:2]
    names = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    values = [tuple(value) if len(names) > 1 else (value,) for value in values]
    if longest and all(name.startswith("seqlen") for name in names):
        values = [value for value in values if max(value) <= longest] or [min(values, key=max)]
    return names, values


def combination(axes, number):
    """The values of all axes for a case's number."""
    values = []
    for _, own in axes:
        number, index = divmod(number, len(own))
        values.extend(own[index])
    return tuple(values)


def case_name(values):
    return "-".join(word(value) for value in values)


def word(value):
    if isinstance(value, (tuple, list)):
        return "/".join(word(part) for part in value)
    return getattr(value, "__name__", str(value).removeprefix("torch."))
