"""Runs ffpa-attn's own tests of head dims above 256 with jit_attention in place of its CuTe kernels.

    python3 tools/ffpa_tests CHECKOUT                                       all cases
    python3 tools/ffpa_tests CHECKOUT --longest 200 --device emulated:sm_90a

CHECKOUT is a folder of xlite-dev/ffpa-attn; nothing of it is installed or changed. Requires torch and pytest. Where
tests compare with ffpa's Triton kernels, these are plain attention in fp32. Omitted are tests of ffpa's dispatch and of
what its kernels refuse. Exit status: 0 nothing failed; 1 something did; 2 wrong usage.
"""

import argparse
import collections
import contextlib
import os
import pathlib
import sys
import types
import unittest.mock

FILE = "test_ffpa_cute.py"
#: Tests of results; others are of ffpa itself.
RESULTS = ("test_cutedsl_forward_matches_triton", "test_cutedsl_autograd_matches_triton",
           "test_cutedsl_falls_back_for_small_head_dim", "test_cutedsl_small_head_dim_env_autograd_matches_triton",
           "test_cutedsl_accepts_fp16_training", "test_cutedsl_forward_nonaligned_matches_sdpa",
           "test_cutedsl_autograd_nonaligned_matches_sdpa")  # fmt: skip
#: Tokens of tests whose parameters do not say.
USUAL_TOKENS = 1024


def main():
    parser = argparse.ArgumentParser(prog="ffpa_tests", description=__doc__.partition("\n\n")[0])
    parser.add_argument("checkout", type=pathlib.Path, help="folder of xlite-dev/ffpa-attn")
    parser.add_argument("--device", default="cuda", help="cuda, or emulated:sm_90a, which is slow")
    parser.add_argument("--longest", type=int, default=1 << 30, help="tokens of a case, at most")
    options = parser.parse_args()
    file = options.checkout.resolve() / "tests" / FILE
    if not file.is_file():
        parser.error(f"{options.checkout}: has no tests/{FILE}; give a checkout of xlite-dev/ffpa-attn")
    os.environ["JIT_ATTENTION_DEVICE"] = options.device
    os.environ.setdefault("JIT_ATTENTION_TUNING", "off")  # results are compared, not times
    sys.dont_write_bytecode = True
    import pytest

    install()
    cases = Cases(options.longest)
    with on_cpu() if options.device.startswith("emulated") else contextlib.nullcontext():
        pytest.main(["-q", "-p", "no:cacheprovider", "--tb=short", f"--rootdir={file.parent}", str(file)], plugins=[cases])
    counts = cases.counts
    print(", ".join(f"{counts[outcome]} {outcome}" for outcome in ("passed", "failed", "skipped", "of ffpa itself", "longer")))
    return 1 if counts["failed"] or not counts["passed"] else 0


class Cases:
    """Selects and counts cases."""

    def __init__(self, longest):
        self.longest, self.counts = longest, collections.Counter()

    def pytest_collection_modifyitems(self, items):
        kept = []
        for item in items:
            given = getattr(item, "callspec", None)
            tokens = max((value for name, value in given.params.items() if name in ("N", "Nq", "Nkv")), default=USUAL_TOKENS) \
                if given else USUAL_TOKENS
            if item.originalname not in RESULTS:
                self.counts["of ffpa itself"] += 1
            elif tokens > self.longest:
                self.counts["longer"] += 1
            else:
                kept.append(item)
        items[:] = kept

    def pytest_runtest_logreport(self, report):
        if report.when == "call" or report.outcome != "passed":
            self.counts[report.outcome] += 1


def install():
    """Puts a stand-in for ffpa_attn into sys.modules."""
    package, functional, cute = (types.ModuleType(name) for name in ("ffpa_attn", "ffpa_attn.functional", "ffpa_attn.cute"))
    package.__path__ = []
    package.ffpa_attn_func = ffpa_attn_func
    functional.CuTeDSLBackend = dict
    cute._ffpa_attn_backward_sm80 = None  # the kernel for which a test loosens what it asks
    cute._backward_impl_for_device = lambda *_: ffpa_attn_func
    package.functional, package.cute = functional, cute
    sys.modules.update({module.__name__: module for module in (package, functional, cute)})


def ffpa_attn_func(query, key, value, is_causal=False, scale=None, enable_gqa=False, forward_backend=None,
                   backward_backend=None):
    """(batch, heads, tokens, head_dim): ffpa's signature; by this library, or for "triton" plainly in fp32."""
    import jit_attention as ja
    import torch
    from jit_attention.torch import attention

    if forward_backend == "triton":
        wide = (x.float() for x in (query, key, value))
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            return torch.nn.functional.scaled_dot_product_attention(*wide, is_causal=is_causal, scale=scale,
                                                                    enable_gqa=enable_gqa).to(query.dtype)
    rows = (x.transpose(1, 2) for x in (query, key, value))
    mask = ja.mask.causal() if is_causal else None
    return attention(*rows, mask=mask, softmax_scale=scale).transpose(1, 2)


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

    with unittest.mock.patch.multiple(torch.cuda, is_available=lambda: True, get_device_capability=lambda *_: (9, 0),
                                      current_device=lambda: 0), Cpu():
        yield


if __name__ == "__main__":
    sys.exit(main())
