"""Runs tests of vLLM and of cuDNN's frontend with jit_attention in place of their kernels.

    python3 tools/others_tests vllm CHECKOUT                                  latents, caches with scales of tokens
    python3 tools/others_tests cudnn CHECKOUT                                 forward of head dim 512
    python3 tools/others_tests vllm CHECKOUT --smaller 64 --device emulated:sm_90a

CHECKOUT is a folder of vllm-project/vllm or NVIDIA/cudnn-frontend; nothing of it is installed or changed. Requires torch
and pytest. Left out are tests of those packages themselves, and of other head dims. Exit status: 0 nothing failed;
1 something did; 2 wrong usage.
"""

import argparse
import collections
import contextlib
import os
import pathlib
import sys
import unittest.mock

SUITES = ("vllm", "cudnn")


def main():
    parser = argparse.ArgumentParser(prog="others_tests", description=__doc__.partition("\n\n")[0])
    parser.add_argument("suite", choices=SUITES)
    parser.add_argument("checkout", type=pathlib.Path, help="folder of vllm-project/vllm or NVIDIA/cudnn-frontend")
    parser.add_argument("--device", default="cuda", help="cuda, or emulated:sm_90a, which is slow")
    parser.add_argument("--smaller", type=int, default=1, help="divides batches and keys of vLLM's latents")
    parser.add_argument("-k", default="", help="pytest's expression: which tests")
    options = parser.parse_args()
    os.environ["JIT_ATTENTION_DEVICE"] = options.device
    os.environ.setdefault("JIT_ATTENTION_TUNING", "off")  # results are compared, not times
    sys.dont_write_bytecode = True
    suite = __import__(f"{options.suite}_stand_ins")
    root = options.checkout.resolve()
    files = [path for name in suite.FILES for path in sorted(root.glob(name))]
    if not files:
        parser.error(f"{options.checkout}: has no {suite.FILES[0]}; give a checkout of {suite.REPOSITORY}")
    import pytest

    suite.install()
    cases = Cases(suite, options.smaller)
    with on_cpu() if options.device.startswith("emulated") else contextlib.nullcontext():
        pytest.main(["-q", "-p", "no:cacheprovider", "--noconftest", "--tb=short", "-W", "ignore", "--import-mode=importlib",
                     f"--rootdir={root}", "-c", os.devnull, *(["-k", options.k] if options.k else []), *map(str, files)],
                    plugins=[cases])  # fmt: skip
    return report(cases)


class Cases:
    """Selects and counts cases."""

    def __init__(self, suite, smaller):
        self.suite, self.smaller = suite, smaller
        self.counts, self.reasons = collections.Counter(), collections.Counter()

    def pytest_collection_modifyitems(self, items):
        kept = []
        for item in items:
            if (reason := self.suite.left_out(item)) is None:
                kept.append(item)
                self.suite.make_smaller(item, self.smaller)
            else:
                self.counts["left out"] += 1
                self.reasons[reason] += 1
        items[:] = kept

    def pytest_runtest_setup(self, item):
        import torch

        torch.set_default_dtype(torch.float32)  # tests leave others

    def pytest_runtest_logreport(self, report):
        if report.when == "call" or report.outcome != "passed":
            self.counts[report.outcome] += 1
        if report.outcome == "skipped":
            self.reasons[report.longrepr[2].removeprefix("Skipped: ")] += 1

    def pytest_collectreport(self, report):
        if report.outcome == "failed":
            self.counts["failed"] += 1


def report(cases):
    for reason, count in sorted(cases.reasons.items()):
        print(f"{count:5} {reason}")
    print(", ".join(f"{cases.counts[outcome]} {outcome}" for outcome in ("passed", "failed", "skipped", "left out")))
    return 1 if cases.counts["failed"] or not cases.counts["passed"] else 0


@contextlib.contextmanager
def on_cpu():
    """Tests that name the device "cuda" run on the CPU: an emulated device's tensors are the CPU's."""
    import torch

    class Cpu(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function, kinds, arguments=(), options=None):
            options = dict(options or {})
            if str(options.get("device", "")).startswith("cuda"):
                options["device"] = "cpu"
            return function(*arguments, **options)

    def nothing(*_):
        pass

    with unittest.mock.patch.multiple(torch.cuda, is_available=lambda: True, get_device_capability=lambda *_: (9, 0),
                                      current_device=lambda: 0, synchronize=nothing), \
            unittest.mock.patch.object(torch, "set_default_device", nothing), \
            unittest.mock.patch.object(torch.accelerator, "set_device_index", nothing), Cpu():  # fmt: skip
        yield


if __name__ == "__main__":
    sys.exit(main())
