"""The command-line tool: `jit-attention`, or `python -m jit_attention`."""

import os
import signal
import sys

from ._core import run_tool


def main() -> int:
    """Runs the tool with the arguments of this process and returns its exit status."""
    # Python's handlers would wait for the command to end, and a closed pipe is no error of the tool.
    for number in (signal.SIGINT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)
    return run_tool([b"jit-attention", *map(os.fsencode, sys.argv[1:])])


if __name__ == "__main__":
    sys.exit(main())
