#!/usr/bin/env python3
"""Seconds of the first call of jit_attention.attention in a new process, until the GPU has finished it.

bf16, batch 4, 4,096 tokens, heads · head_dim = 2,048. "untuned" (tuning="off") and "tuned" (tuning="first_run") begin
with an empty cache folder; "recorded" is one more process with the folder that a tuned one left. Imports, the start of
CUDA and the inputs are not in the time: processes import side by side, and then call one after another.

    bench/first_call.py --out first-call.jsonl --table first-call.md      # needs a GPU

Exit status 1 when a call failed.
"""

import argparse
import itertools
import json
import logging
import os
import pathlib
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from comparison import environment, records, report  # noqa: E402

BATCH, SEQLEN, WIDTH = 4, 4096, 2048
STATES = {"untuned": "off", "tuned": "first_run", "recorded": "first_run"}  # and the argument tuning of each


@dataclass(frozen=True)
class Call:
    """A first call to be timed."""

    state: str  # of STATES
    head_dim: int
    causal: bool
    repeat: int

    @property
    def problem(self):
        return f"head_dim {self.head_dim}, {'causal' if self.causal else 'no mask'}"


def make_call():
    """The child process: imports, reports it, reads a Call, runs it, and prints the result."""
    import jit_attention as ja
    import torch

    said = []
    log = logging.getLogger("jit_attention")
    log.setLevel(logging.INFO)
    log.addHandler(logging.Handler())
    log.handlers[0].emit = lambda record: said.append(record.getMessage())
    print("imported", flush=True)
    call = Call(**json.loads(sys.stdin.readline()))
    shape = (BATCH, SEQLEN, WIDTH // call.head_dim, call.head_dim)
    q, k, v = (torch.randn(shape, dtype=torch.bfloat16, device="cuda") for _ in range(3))
    mask = ja.mask.causal() if call.causal else None
    torch.cuda.synchronize()
    seconds, compiled = [], []
    for _ in range(2):
        begin = time.perf_counter()
        ja.attention(q, k, v, mask=mask, tuning=STATES[call.state])
        torch.cuda.synchronize()
        seconds.append(round(time.perf_counter() - begin, 6))
        compiled.append([text for text in said if text.startswith("compiled ")])
    print(json.dumps(dict(first_s=seconds[0], second_s=seconds[1], compiled=compiled[0])), flush=True)


def processes(calls, folder):
    """Child processes of `calls`, which import concurrently; calls with one cache folder keep their order."""
    for call in calls:
        name = f"{call.head_dim}-{call.causal}-{call.repeat}-{'untuned' if call.state == 'untuned' else 'tuned'}"
        settings = dict(JIT_ATTENTION_CACHE_DIR=str(pathlib.Path(folder) / name))
        yield call, subprocess.Popen([sys.executable, __file__, "--child"], text=True, env=os.environ | settings,
                                     stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def measure(calls):
    """Yields a "result" record for each call."""
    with tempfile.TemporaryDirectory() as folder:
        children = list(processes(calls, folder))
        for _, child in children:
            child.stdout.readline()
        for call, child in children:
            try:
                output, errors = child.communicate(json.dumps(asdict(call)) + "\n", timeout=120)
                found = dict(status=records.OK, **json.loads(output))
            except (OSError, ValueError, subprocess.TimeoutExpired) as error:
                child.kill()
                found = dict(status=records.FAILED, reason=f"{error}; {(errors or '').strip()[-400:]}"
                             if isinstance(error, ValueError) else str(error))
            yield dict(kind="result", batch=BATCH, seqlen=SEQLEN, heads=WIDTH // call.head_dim, **asdict(call), **found)


def markdown(header, results):
    """A row for each problem: medians and all samples of the first calls."""
    rows = {}
    for one in results:
        if one["status"] == records.OK:
            problem = Call(*(one[name] for name in Call.__dataclass_fields__)).problem
            rows.setdefault(problem, {}).setdefault(one["state"], []).append(one)
    lines = [report.filled(f"{header['gpu']}, {header['cores']} cores, driver {header['driver']}, "
                           f"CUDA {header['versions']['cuda']}, {header['date']}; `{header['command']}`."), "",
             "| s, medians (all) | " + " | ".join(STATES) + " | compiled untuned, tuned |",
             "| --- |" + " ---: |" * (len(STATES) + 1)]
    for problem, states in rows.items():
        cells = []
        for state in STATES:
            times = sorted(one["first_s"] for one in states.get(state, []))
            all_of_them = ", ".join(f"{s:.2f}" for s in times)
            cells.append(f"{statistics.median(times):.3f} ({all_of_them})" if times else "failed")
        counts = [", ".join(sorted({str(len(one["compiled"])) for one in states.get(state, [])})) or "failed"
                  for state in ("untuned", "tuned")]
        lines.append(f"| {problem} | {' | '.join(cells)} | {'; '.join(counts)} |")
    return "\n".join(lines) + "\n"


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3, metavar="N", help="processes of each state (3)")
    parser.add_argument("--head-dims", type=int, nargs="+", default=[64, 128, 256], metavar="D", help="(64 128 256)")
    parser.add_argument("--out", type=pathlib.Path, metavar="FILE.jsonl", help="all calls as JSON lines")
    parser.add_argument("--table", type=pathlib.Path, metavar="FILE.md", help="a table, which is printed, too")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.child:
        return make_call()
    for name, values in (("--repeats", [options.repeats]), ("--head-dims", options.head_dims)):
        if min(values) < 1:
            parser.error(f"{name}: {min(values)} must be at least 1")
    reason = environment.no_gpu()
    if reason:
        parser.exit(1, f"{parser.prog}: {reason}\n")
    command = shlex.join([pathlib.Path(sys.argv[0]).name, *sys.argv[1:]])
    header = environment.describe(command, [], cores=os.cpu_count())
    writer, results = records.Writer(options.out), []
    writer.write(header)
    for repeat, causal in itertools.product(range(options.repeats), (False, True)):
        calls = [Call(state, head_dim, causal, repeat) for head_dim in options.head_dims for state in STATES]
        for one in measure(calls):
            results.append(one)
            writer.write(one)
            print(f"{one['state']}, head_dim {one['head_dim']}: {one.get('first_s', one.get('reason'))}",
                  file=sys.stderr, flush=True)
    text = markdown(header, results)
    if options.table:
        options.table.write_text(text, encoding="utf-8")
    print(text)
    return 1 if any(one["status"] != records.OK for one in results) else 0


if __name__ == "__main__":
    sys.exit(main())
