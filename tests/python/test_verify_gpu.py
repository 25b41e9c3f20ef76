"""tools/verify-gpu with programs that stand in for the tests: what it records and says of each way they can end."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

SHARE = 2  # programs take long to begin
TOOL = pathlib.Path(__file__).resolve().parents[2] / "tools" / "verify-gpu"


def verify(*arguments, **environment):
    return subprocess.run([sys.executable, TOOL, *map(str, arguments)], capture_output=True, text=True, check=False,
                          env=os.environ | environment)


def add_program(path, script):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


@pytest.fixture
def build(tmp_path):
    """A build folder whose tests, and a compute-sanitizer beside them, do what the test wants."""

    def add(name, script):
        add_program(tmp_path / "build" / "tests" / "device" / name, script)
        return tmp_path / "build"

    return add


def record(folder, name):
    return json.loads((folder / f"{name}.json").read_text())


def test_a_slice_leaves_a_row_a_record_and_its_output(build, tmp_path):
    folder = build("device_tests", 'echo "sweep: seed 7, $JIT_ATTENTION_TEST_SWEEP triples of 3 kernels, 0 failures, '
                                   'worst error 0.250 of what is allowed (x)"\necho "[  PASSED  ] 1 test."')
    result = verify("--build", folder, "--slice", "sweep", "--out", tmp_path / "out", "--commit", "1a2b3c")
    assert result.returncode == 0, result.stderr
    row = "| `sweep` | 1 passed, 2,000 triples, worst error 0.250 of what is allowed, seed 7 (0 s) |"
    assert result.stdout.splitlines() == [row]
    found = record(tmp_path / "out", "sweep")
    assert found["counts"] == {"passed": 1, "triples": 2000, "seeds": [7], "worst error": 0.25}
    assert found["troubles"] == [] and found["commit"] == "1a2b3c"
    assert found["command"] == "JIT_ATTENTION_TEST_SWEEP=2000 tests/device/device_tests --gtest_filter=SweepTest*"
    assert {"gpu", "driver", "date", "time", "cores", "seconds"} <= set(found)
    assert "seed 7, 2000 triples" in (tmp_path / "out" / "sweep.log").read_text()
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["sweep.json", "sweep.log"]


def test_programs_of_a_slice_share_the_tests_and_are_added_up(build, tmp_path):
    folder = build("device_tests", 'echo "shard $GTEST_SHARD_INDEX of $GTEST_TOTAL_SHARDS"\n'
                                   'echo "[  PASSED  ] 3 tests."\n'
                                   'echo "[  SKIPPED ] $GTEST_SHARD_INDEX tests, listed below:"')
    result = verify("--build", folder, "--slice", "device", "--out", tmp_path / "out")
    assert result.returncode == 0, result.stdout
    assert record(tmp_path / "out", "device")["counts"] == {"passed": 18, "skipped": 0 + 1 + 2 + 3 + 4 + 5}
    log = (tmp_path / "out" / "device.log").read_text()
    assert all(f"shard {index} of 6" in log for index in range(6))


def test_a_failure_is_told_and_does_not_stop_the_others(build, tmp_path):
    build("device_tests", 'test $GTEST_SHARD_INDEX = 2 || { echo "[  PASSED  ] 3 tests."; exit; }\n'
                          'echo "[  FAILED  ] 2 tests, listed below:"\necho "2 FAILED TESTS"; exit 1')
    folder = build("tool_device_tests", 'echo "[  PASSED  ] 4 tests."')
    result = verify("--build", folder, "--slice", "device", "cli")
    assert result.returncode == 1
    rows = result.stdout.splitlines()
    assert rows[0] == "| `device` | **failed**: exit status 1; last: 2 FAILED TESTS; 15 passed, 2 failed (0 s) |"
    assert "failed" not in rows[1]
    files = {path.name for path in (folder / "verify-gpu").iterdir()}
    assert files == {"device.json", "device.log", "cli.json", "cli.log"}


def test_what_does_not_end_is_stopped_and_tells_its_last_words(build, tmp_path):
    folder = build("tool_device_tests", 'echo "[ RUN      ] CliGpu.Bench"; exec sleep 100')
    result = verify("--build", folder, "--slice", "cli", "--seconds", 1, "--out", tmp_path / "out")
    assert result.returncode == 1
    assert "**failed**: no end within 1 s; last: [ RUN      ] CliGpu.Bench" in result.stdout


def test_a_run_that_skips_everything_has_not_passed(build, tmp_path):
    folder = build("tool_device_tests", 'echo "[  PASSED  ] 0 tests."; echo "[  SKIPPED ] 31 tests, listed below:"')
    result = verify("--build", folder, "--slice", "cli", "--out", tmp_path / "out")
    assert result.returncode == 1
    assert "**failed**: nothing ran; 0 passed, 31 skipped" in result.stdout


@pytest.mark.parametrize("name, words, said", [
    ("memcheck-2", "ERROR SUMMARY: 3 errors", "6 passed, 240 triples, 18 memory errors"),
    ("racecheck", "RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)", "4 passed, 160 triples, 4 hazards")])
def test_findings_of_a_sanitizer_are_counted(build, tmp_path, name, words, said):
    folder = build("device_tests", 'echo "sweep: seed 7, $JIT_ATTENTION_TEST_SWEEP triples of 8 kernels, 0 failures, '
                                   'worst error 0.5 of what is allowed (x)"; echo "[  PASSED  ] 1 test."')
    add_program(tmp_path / "bin" / "compute-sanitizer", f'shift 3; "$@"; echo "========= {words}"; exit 1')
    result = verify("--build", folder, "--slice", name, "--out", tmp_path / "out",
                    PATH=f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    assert result.returncode == 1
    assert f"**failed**: exit status 1; last: ========= {words}; " in result.stdout and said in result.stdout


def test_the_package_of_the_build_is_tested_file_by_file(build, tmp_path):
    folder = build("device_tests", "true")
    (folder / "python" / "pytest").mkdir(parents=True)
    (folder / "python" / "pytest" / "__main__.py").write_text(
        "import os, sys; print(sys.argv[-1], 'of', os.environ['JIT_ATTENTION_TOOL'])\n"
        "print('1 failed, 20 passed, 3 skipped in 0.1s'); sys.exit(5 if 'torch_op' in sys.argv[-1] else 0)")
    (folder / "python" / "pytest" / "__init__.py").write_text("")
    result = verify("--build", folder, "--slice", "python", "--out", tmp_path / "out")
    assert result.returncode == 0, result.stdout
    files = len(list(pathlib.Path(__file__).parent.glob("test_*.py")))
    counts = record(tmp_path / "out", "python")["counts"]
    assert counts == {"passed": 20 * files, "failed": files, "skipped": 3 * files}
    log = (tmp_path / "out" / "python.log").read_text()
    assert f"tests/python/test_verify_gpu.py of {folder}/tools/jit-attention" in log


def test_missing_programs_are_failures(build, tmp_path):
    folder = build("device_tests", "true")
    result = verify("--build", folder, "--slice", "memcheck-1", "--out", tmp_path / "out", PATH="/nowhere")
    assert result.returncode == 1
    assert "did not start: No such file or directory: compute-sanitizer" in result.stdout


def test_slices_are_listed_with_their_minutes():
    result = verify("--list")
    assert result.returncode == 0
    slices = {line.split()[0]: float(line.split()[1]) for line in result.stdout.splitlines()}
    assert {"device", "cli", "sweep", "memcheck-1", "racecheck", "python", "two-devices"} <= set(slices)
    assert all(0 < minutes <= 8 for minutes in slices.values())


def test_records_of_several_machines_make_one_table(tmp_path):
    def write(folder, name, time, **fields):
        (tmp_path / folder).mkdir(exist_ok=True)
        given = {"slice": name, "time": time, "gpu": "NVIDIA H200", "driver": "580", "date": "2026-01-02",
                 "commit": "1a2b", "troubles": [], "counts": {"passed": 5}, "seconds": 70, **fields}
        (tmp_path / folder / f"{name}.json").write_text(json.dumps(given))

    write("a", "device", "10:00", counts={"passed": 31, "skipped": 1})
    write("a", "cli", "10:05", troubles=["exit status 1; last: oh"])
    write("b", "cli", "11:00", counts={"passed": 6})
    write("b", "two-devices", "11:05", gpu="2 × NVIDIA H200")
    result = verify("--table", tmp_path / "b", tmp_path / "a")
    assert result.returncode == 1, "not all were run"
    lines = result.stdout.splitlines()
    assert lines[:2] == ["NVIDIA H200, driver 580, 2026-01-02, commit 1a2b: device, cli.",
                         "2 × NVIDIA H200, driver 580, 2026-01-02, commit 1a2b: two-devices."]
    assert "| `device` | 31 passed, 1 skipped (70 s) |" in lines
    assert "| `cli` | 6 passed (70 s) |" in lines, "the last run counts"
    assert "| `racecheck` | **not run** |" in lines
    assert "    device       tests/device/device_tests --gtest_filter=-*SweepTest*  # 6 side by side" in lines


def test_a_table_of_everything_passed_says_so(tmp_path):
    for line in verify("--list").stdout.splitlines():
        name = line.split()[0]
        given = {"slice": name, "time": "1", "gpu": "H", "driver": "5", "date": "d", "commit": "c", "troubles": [],
                 "counts": {"passed": 5}, "seconds": 7}
        (tmp_path / f"{name}.json").write_text(json.dumps(given))
    result = verify("--table", tmp_path)
    assert result.returncode == 0
    assert result.stdout.splitlines()[0] == "H, driver 5, d, commit c." and "not run" not in result.stdout


@pytest.mark.parametrize("arguments, text", [
    (["--build", "nowhere"], "nowhere: there is no such folder"),
    (["--table", "nowhere"], "nowhere: there is no such folder"),
    (["--build", ".", "--seconds", "0"], "must be at least 1"),
    (["--build", ".", "--out", str(TOOL)], "verify-gpu: File exists"),
    (["--build", ".", "--slice", "everything"], "invalid choice: 'everything'"),
    ([], "one of the arguments --list --build --table is required"),
])
def test_wrong_usage(arguments, text):
    result = verify(*arguments)
    assert result.returncode == 2
    assert text in result.stderr
