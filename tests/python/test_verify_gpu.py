"""tools/verify-gpu with programs that stand in for the tests: what its table says of each way a step can end."""

import os
import pathlib
import subprocess
import sys

import pytest

TOOL = pathlib.Path(__file__).resolve().parents[2] / "tools" / "verify-gpu"


def verify(*arguments, **environment):
    return subprocess.run([sys.executable, TOOL, *map(str, arguments)], capture_output=True, text=True, check=False,
                          env=os.environ | environment)


@pytest.fixture
def build(tmp_path):
    """A build folder whose tests do what the test wants."""
    folder = tmp_path / "build"
    (folder / "tests" / "device").mkdir(parents=True)

    def add(name, script):
        path = folder / "tests" / "device" / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return folder

    return add


def test_a_row_names_the_command_and_what_came_of_it(build, tmp_path):
    folder = build("device_tests", 'echo "sweep: seed 7, $JIT_ATTENTION_TEST_SWEEP triples of 3 kernels, 0 failures"\n'
                                'echo "[  PASSED  ] 1 test."')
    result = verify("--build", folder, "--only", "sweep", "--triples", 12, "--out", tmp_path / "out")
    assert result.returncode == 0, result.stderr
    row = result.stdout.splitlines()[2]
    assert row.startswith("| `JIT_ATTENTION_TEST_SWEEP=12 tests/device/device_tests --gtest_filter=SweepTest*` | sweep: seed 7, 12 triples")
    assert "PASSED 1 test." in row
    assert "failed" not in row
    assert "seed 7" in (tmp_path / "out" / "sweep.log").read_text()


def test_a_failure_does_not_stop_the_others(build, tmp_path):
    build("device_tests", 'echo "[  FAILED  ] 2 tests, listed below:"; exit 1')
    folder = build("tool_device_tests", 'echo "[  PASSED  ] 4 tests."')
    result = verify("--build", folder, "--only", "tests", "cli")
    assert result.returncode == 1
    rows = result.stdout.splitlines()[2:]
    assert "**failed**: FAILED 2 tests" in rows[0] and "exit status 1" in rows[0]
    assert "failed" not in rows[1]
    assert {log.name for log in (folder / "verify-gpu").iterdir()} == {"tests.log", "cli.log"}


def test_what_does_not_end_is_stopped_and_tells_its_last_words(build, tmp_path):
    folder = build("device_tests", 'echo "[ RUN      ] AttentionTest.HeadDims"; exec sleep 100')
    result = verify("--build", folder, "--only", "tests", "--seconds", 1, "--out", tmp_path / "out")
    assert result.returncode == 1
    assert "**failed**: no end within 1 s; last: [ RUN      ] AttentionTest.HeadDims" in result.stdout


def test_a_run_that_skips_everything_has_not_passed(build, tmp_path):
    folder = build("device_tests", 'echo "[  PASSED  ] 0 tests."; echo "[  SKIPPED ] 31 tests, listed below:"')
    result = verify("--build", folder, "--only", "tests", "--out", tmp_path / "out")
    assert result.returncode == 1
    assert "**failed**: nothing ran: PASSED 0 tests.; SKIPPED 31 tests, listed below:" in result.stdout


def test_the_package_of_the_build_is_tested(build, tmp_path):
    folder = build("device_tests", "true")
    (folder / "python" / "pytest").mkdir(parents=True)
    (folder / "python" / "pytest" / "__main__.py").write_text(
        "import os, sys; print(len(sys.argv), 'of', os.environ['JIT_ATTENTION_TOOL']); print('1 passed in 0.1s')")
    (folder / "python" / "pytest" / "__init__.py").write_text("")
    result = verify("--build", folder, "--only", "python", "--out", tmp_path / "out")
    assert result.returncode == 0, result.stdout
    assert "| `python3 -m pytest -q tests/python` | 1 passed in 0.1s" in result.stdout
    assert f"of {folder}/tools/jit-attention" in (tmp_path / "out" / "python.log").read_text()


def test_missing_programs_are_failures(build, tmp_path):
    folder = build("device_tests", "true")
    result = verify("--build", folder, "--only", "memcheck", "--out", tmp_path / "out", PATH="/nowhere")
    assert result.returncode == 1
    assert "did not start: No such file or directory: compute-sanitizer" in result.stdout


@pytest.mark.parametrize("arguments, text", [
    (["--build", "nowhere"], "there is no such folder"),
    (["--build", ".", "--triples", "0"], "must be at least 1"),
    (["--build", ".", "--seconds", "0"], "must be at least 1"),
    (["--build", ".", "--out", str(TOOL)], "verify-gpu: File exists"),
    (["--build", ".", "--only", "everything"], "invalid choice: 'everything'"),
    ([], "--build"),
])
def test_wrong_usage(arguments, text):
    result = verify(*arguments)
    assert result.returncode == 2
    assert text in result.stderr
