#!/usr/bin/env python3
"""Instructions of a call from Python, on the driver that does nothing: what of host time is this library's and Python's.

Counted by valgrind's callgrind over calls of bench/host_time.py, all in one process, which is slow to start there. Unlike
time, they are the same in each run, and on each machine of one build.

    bench/host_instructions.py --idle build/default/tests/bench/idle [--only layer]

Exit status 1 without valgrind, and when a run fails.
"""

import argparse
import itertools
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import host_time  # noqa: E402

WARM, COUNTED = 100, 300  # calls
MARK = "getppid"  # a C function that nothing else calls: callgrind dumps its counters there


def make_calls(calls):
    """The measured process: calls one function between marks; the last calls count."""
    for call in calls.values():
        for count in (WARM, COUNTED):
            for _ in range(count):
                call()
            os.getppid()


def counted(options):
    """Instructions of COUNTED calls, for each name that begins with --only, in order."""
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "counts"
        command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", f"--dump-before={MARK}", sys.executable,
                   __file__, "--idle", options.idle, "--only", options.only, "--counted"]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{command} failed:\n{done.stderr}")
        parts = (out.with_name(f"counts.{place}") for place in itertools.count(2, 2))
        texts = (part.read_text() for part in itertools.takewhile(pathlib.Path.exists, parts))
        return [int(re.search(r"^(?:totals|summary): (\d+)", text, re.MULTILINE)[1]) for text in texts]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--idle", type=pathlib.Path, required=True, metavar="FOLDER", help="of the driver that does nothing")
    parser.add_argument("--only", default="", metavar="TEXT", help="calls whose name begins with it")
    parser.add_argument("--counted", action="store_true", help=argparse.SUPPRESS)  # for the measured process
    options = parser.parse_args()
    if shutil.which("valgrind") is None:
        parser.exit(1, f"{parser.prog}: counting needs valgrind, which is not installed\n")
    os.environ.setdefault("JIT_ATTENTION_TUNING", "off")
    os.environ["JIT_ATTENTION_DEVICE"] = "cuda"
    every = host_time.calls(host_time.IdleArrays(options.idle.resolve()))
    calls = {name: call for name, call in every if name.startswith(options.only)}
    if options.counted:
        return make_calls(calls)
    for call in calls.values():
        call()  # compiles the kernel
    print("| Call | Instructions |")
    print("| --- | ---: |")
    for name, count in zip(calls, counted(options), strict=True):
        print(f"| {name} | {count // COUNTED:,} |", flush=True)


if __name__ == "__main__":
    main()
