"""The environment of FlashMLA's tests: a stand-in for flash_mla, CPU tensors for a GPU's, and their cases one by one.
"""

import ast
import contextlib
import dataclasses
import importlib.util
import io
import sys
import types
import unittest.mock

import torch


def install():
    """Puts this library's functions into sys.modules as flash_mla, and a triton without kernels when it is not
    installed."""
    from jit_attention import flash_mla

    sys.modules["flash_mla"] = flash_mla
    if importlib.util.find_spec("triton") is None:
        sys.modules["triton"] = types.ModuleType("triton")
        sys.modules["triton"].jit = lambda function: function  # marks ranges for a profiler


@contextlib.contextmanager
def on_cpu():
    """Runs on the CPU tests that name the device "cuda": an emulated device's tensors are the CPU's, and it is an
    sm_90."""
    names = ("synchronize", "empty_cache", "set_device", "manual_seed")
    silent = {name: lambda *_: None for name in names}  # one each: torch's compiler keeps a table of functions
    with unittest.mock.patch.multiple(torch.cuda, get_device_capability=lambda *_: (9, 0), **silent), \
            unittest.mock.patch.object(torch.Tensor, "cuda", lambda tensor, *_: tensor), \
            unittest.mock.patch.object(torch, "set_default_device", lambda *_: None), \
            unittest.mock.patch.object(torch, "set_num_threads", lambda *_: None):
        yield


def cases_of(path):
    """(function that runs a case, cases), except those that only measure time."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    name = "run_test" if hasattr(module, "run_test") else "test_flash_mla"
    test, cases = getattr(module, name), []
    setattr(module, name, cases.append)  # in place of running it
    torch.set_default_dtype(torch.bfloat16)
    if hasattr(module, "gen_testcase"):
        if torch.cuda.is_available():
            torch.set_default_device("cuda:0")
        cases = [case.to_test_param() for case in module.gen_testcase()]
    elif name == "test_flash_mla":
        module.main(torch.bfloat16)
    else:
        run_main_block(path, module)
    return test, [without_times(case) for case in cases if is_checked(case)]


def run_main_block(path, module):
    """Runs a script's main program except its end, which reports failures."""
    blocks = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.If)]
    with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):
        exec(compile(ast.Module(blocks[-1].body, []), str(path), "exec"), vars(module))


def is_checked(case):
    if hasattr(case, "test_performance"):
        return not case.test_performance
    return case.check_correctness and case.num_runs == 0


def without_times(case):
    return case if hasattr(case, "test_performance") else dataclasses.replace(case, num_runs=0)


def scores_of(case):
    """Estimated number of scores of a case."""
    decode = getattr(case, "decode", None)
    keys = case.topk + (decode.extra_topk or 0 if decode else 0) if hasattr(case, "topk") else case.s_k
    return (decode.b if decode else getattr(case, "b", 1)) * case.s_q * case.h_q * keys
