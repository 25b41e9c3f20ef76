#!/usr/bin/env python3
"""Instructions of a call from Python, on the driver that does nothing: what of host time is this library's and Python's.

Counted by valgrind's callgrind over calls of bench/host_time.py, those of a run of few calls taken from those of a run of
many. Unlike time, they are the same in each run, and on each machine of one build.

    bench/host_instructions.py --idle build/default/tests/bench/idle [--only layer]

Exit status 1 without valgrind, and when a run fails.
"""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import host_time  # noqa: E402

FEW, MANY = 100, 400


def counted(idle, name, calls):
    """Instructions of a process that makes so many calls of this name."""
    command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", sys.executable, __file__, "--idle", idle,
               "--only", name, "--calls", str(calls)]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True)
    found = re.search(r"Collected : (\d+)", done.stderr)
    if done.returncode or not found:
        sys.exit(f"{command} failed:\n{done.stderr}")
    return int(found[1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--idle", type=pathlib.Path, required=True, metavar="FOLDER", help="of the driver that does nothing")
    parser.add_argument("--only", default="", metavar="TEXT", help="calls whose name begins with it")
    parser.add_argument("--calls", type=int, help=argparse.SUPPRESS)  # what a counted process is told
    options = parser.parse_args()
    if shutil.which("valgrind") is None:
        parser.exit(1, f"{parser.prog}: counting needs valgrind, which is not installed\n")
    os.environ.setdefault("JIT_ATTENTION_TUNING", "off")
    os.environ["JIT_ATTENTION_DEVICE"] = "cuda"
    calls = dict(host_time.calls(host_time.IdleArrays(options.idle.resolve())))
    if options.calls:
        for _ in range(options.calls):
            calls[options.only]()
        return
    print("| Call | Instructions |")
    print("| --- | ---: |")
    for name in calls:
        if name.startswith(options.only):
            calls[name]()  # compiles its kernel
            few, many = (counted(options.idle, name, count) for count in (FEW, MANY))
            print(f"| {name} | {(many - few) // (MANY - FEW):,} |", flush=True)


if __name__ == "__main__":
    main()
