"""A driver or an NVRTC that does not do: one sentence says which and why, and the next NVRTC is taken."""

import json
import pathlib
import shutil
import subprocess
import sys

import pytest

FIND = [sys.executable, "-m", "jit_attention", "info", "--json"]


@pytest.fixture
def library(tmp_path):
    """Makes a shared library of C declarations and definitions."""
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    if not compiler:
        pytest.skip("no C compiler makes a library that pretends to be another")

    def make(name, source):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run([compiler, "-shared", "-fPIC", "-x", "c", "-", "-o", path], input=source, text=True, check=True)
        return path

    return make


DRIVERS = {
    "no driver": ("int nothing;", "is not a CUDA driver: it lacks cuInit or cuDriverGetVersion"),
    "too old": ("int cuInit(unsigned f) { return 0; } int cuDriverGetVersion(int *v) { *v = 11040; return 0; }",
                "the CUDA driver is too old: it supports CUDA 11.4, 12.0 is the oldest that works"),
    "a stub": ("int cuInit(unsigned f) { return 34; } int cuDriverGetVersion(int *v) { *v = 12080; return 0; }",
               "libcuda.so.1 is the CUDA toolkit's stub, not a driver"),
    "does not start": ("int cuInit(unsigned f) { return 999; } int cuDriverGetVersion(int *v) { return 0; }",
                       "the CUDA driver does not start: cuInit returned 999"),
}


@pytest.mark.parametrize("kind", DRIVERS)
def test_a_driver_that_does_not_do_is_named(run_python, library, kind):
    source, sentence = DRIVERS[kind]
    library("libcuda.so.1", source)
    printed = run_python("""
import jit_attention as ja
try:
    ja.devices()
except ja.DriverUnavailableError as error:
    print(error)
""", LD_LIBRARY_PATH=str(library("nothing.so", "int nothing;").parent), JIT_ATTENTION_DEVICE="")
    assert sentence in printed and "JIT_ATTENTION_DEVICE=emulated:sm_90a" in printed and printed.count("\n") == 1


@pytest.fixture
def nvrtc():
    """The folder of an NVRTC that works, and its path."""
    found = json.loads(subprocess.run(FIND, capture_output=True, text=True, check=True).stdout)["nvrtc"]
    if "path" not in found:
        pytest.skip("no NVRTC is here")
    return found["path"]


def test_an_old_and_a_broken_nvrtc_are_passed_over(run_python, library, nvrtc, tmp_path):
    for version in ("libnvrtc.so", "libnvrtc-builtins.so.11.8"):
        library(f"old/lib/{version}", "int nothing;")
    library("hollow/lib/libnvrtc.so.13", "int nothing;")
    library("hollow/lib/libnvrtc-builtins.so.13.0", "int nothing;")
    for name in ("libnvrtc.so.12", "libnvrtc-builtins.so.12.9"):
        (tmp_path / "cut" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "cut" / name).write_bytes(pathlib.Path(nvrtc).read_bytes()[:5000])
    places = dict(
        CUDA_HOME=str(tmp_path / "old"),
        CUDA_PATH=str(tmp_path / "hollow"),
        LD_LIBRARY_PATH=f"{tmp_path / 'cut'}:{pathlib.Path(nvrtc).parent}",
        JIT_ATTENTION_NVRTC="",
        JIT_ATTENTION_CACHE_DIR=str(tmp_path / "cache"),
    )
    told = run_python("""
import json, logging, subprocess, sys
import jit_attention as ja
info = subprocess.run([sys.executable, "-m", "jit_attention", "info", "--json"], capture_output=True, text=True, check=True)
logging.basicConfig(stream=sys.stderr)
records = []
logging.getLogger("jit_attention").addFilter(lambda record: records.append(record.getMessage()) or True)
ja.compile(ja.AttentionSpec(), "sm_80")
print(json.dumps([json.loads(info.stdout)["nvrtc"], records]))
""", **places)
    found, records = json.loads(told)
    passed = dict(entry.split(": ", 1) for entry in found["passed_over"])
    assert passed[str(tmp_path / "old/lib/libnvrtc.so")] == "is of CUDA 11.8"
    assert "lacks the function nvrtcVersion" in passed[str(tmp_path / "hollow/lib/libnvrtc.so.13")]
    warned = [message for message in records if message.endswith(" is used")]
    assert len(warned) == 1 and "lacks the function nvrtcVersion" in warned[0] and found["path"] in warned[0]
    if str(tmp_path / "cut/libnvrtc.so.12") in passed:  # unless a wheel beside the package comes first
        assert "cannot be opened" in passed[str(tmp_path / "cut/libnvrtc.so.12")]


def test_one_nvrtc_that_does_not_open_says_why(run_python, library, tmp_path):
    library("libnvrtc.so.13", "int nothing;")
    library("libnvrtc-builtins.so.13.0", "int nothing;")
    printed = run_python("""
import jit_attention as ja
try:
    ja.compile(ja.AttentionSpec(), "sm_80")
except ja.NvrtcUnavailableError as error:
    print(error)
""", JIT_ATTENTION_NVRTC=str(tmp_path), JIT_ATTENTION_CACHE_DIR=str(tmp_path / "cache"))
    assert f"{tmp_path}/libnvrtc.so.13 lacks the function nvrtcVersion" in printed and printed.count("\n") == 1


@pytest.mark.parametrize("setting, sentence", [
    ("CMAKE_SYSTEM_NAME=FreeBSD", "jit-attention needs Linux, and this is FreeBSD"),
    ("JIT_ATTENTION_HAS_GLIBC=OFF", "jit-attention needs glibc, as the CUDA driver and NVRTC do"),
])
def test_a_system_without_cuda_is_refused_before_the_build(tmp_path, setting, sentence):
    """The output of pip where no wheel fits and it builds the sdist."""
    cmake = shutil.which("cmake")
    if not cmake:
        pytest.skip("no cmake is here")
    source = pathlib.Path(__file__).parents[2]
    run = subprocess.run([cmake, "-S", source, "-B", tmp_path, f"-D{setting}"], capture_output=True, text=True)
    assert run.returncode != 0 and sentence in " ".join(run.stderr.split())
