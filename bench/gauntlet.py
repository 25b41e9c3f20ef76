#!/usr/bin/env python3
r"""jit-attention and its peers put to published silent failures of attention libraries.

The cases are those of tests/gauntlet, with larger sizes: each asks for something that some library got wrong without a
word, and compares with double precision. A library passes, fails, or has no way to be asked; what it refuses by an
exception it has not got wrong, and counts as not offered. Each library runs in a process of its own: one that loses
the GPU, or gives no answer for --limit seconds, fails in that case and goes on in another process. Libraries run at
once, but for the cases of large arrays.

    bench/gauntlet.py --out gauntlet.jsonl --table gauntlet.md
    bench/gauntlet.py --libraries ours,torch-cudnn,fa3 --cases gradients
    bench/gauntlet.py --list
    bench/gauntlet.py --from gauntlet.jsonl --table gauntlet.md     the table again, of one file or several

Exit status 1 when ours fails in any case, or was asked for and not put to it, 2 for wrong arguments.
"""

import argparse
import dataclasses
import functools
import multiprocessing
import os
import pathlib
import shlex
import sys
import threading
import time

os.environ.setdefault("OPENBLAS_NUM_THREADS", "4")  # per process, for its reference: many run at once
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # without it PyTorch's deterministic mode refuses cuBLAS
ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "tests" / "gauntlet")]

from comparison import environment, records, report  # noqa: E402
from comparison.contender import first_line  # noqa: E402
from comparison.records import FAILED, OK, UNSUPPORTED, WRONG  # noqa: E402
from failures.case import Run, all_cases  # noqa: E402
from failures.interface import NotOffered, Refused  # noqa: E402

SUITE, OURS = "gauntlet", report.OURS
START_SECONDS = 180  # to import a library's dependencies
ALONE = "sizes"  # kind of cases with large memory, in which libraries take turns
NOT_STARTED, NOT_RUN = "did not start: ", "not run: "  # prefixes of the reasons why a library skipped a case
SHOWN = {OK: "pass", WRONG: "**FAIL**", FAILED: "**FAIL**", UNSUPPORTED: "–"}


def makers():
    """{name: function that creates a library, with a `contender`}, ours first."""
    from comparison import gauntlet_packages, gauntlet_torch

    return {OURS: ours, **gauntlet_torch.libraries(), **gauntlet_packages.libraries()}


def ours():
    from comparison.ours import JitAttention
    from failures.ours import Ours
    from failures.placing import OnGpu

    library = Ours(OnGpu())
    library.contender = JitAttention("off")
    return library


def put(case, library, run):
    """(status, reason) of a library for a case."""
    try:
        case.check(library, run)
    except Refused as reason:
        return UNSUPPORTED, f"refused: {reason}"
    except NotOffered as reason:
        return UNSUPPORTED, str(reason)
    except AssertionError as wrong:
        return WRONG, first_line(wrong)
    except Exception as error:
        return FAILED, f"{type(error).__name__}: {first_line(error)}"
    return OK, None


def serve(connection, name, seed):
    """A library's process: answers each case name with put()'s result and its seconds."""
    import numpy
    import torch

    library = makers()[name]()
    cases = {case.name: case for case in all_cases()}
    connection.send(None)
    while True:
        case = cases[connection.recv()]
        begin = time.monotonic()
        status, reason = put(case, library, Run(numpy.random.default_rng(seed), gpu=True))
        torch.cuda.empty_cache()
        connection.send((status, reason, time.monotonic() - begin))


class Process:
    """A library's process, restarted when it is lost."""

    def __init__(self, name, seed, limit):
        self.name, self.seed, self.limit = name, seed, limit
        self.process = self.connection = None

    def ask(self, case):
        """(status, reason, seconds) for a case. A process that does not start counts as no failure."""
        begin, status, when = time.monotonic(), UNSUPPORTED, NOT_STARTED
        try:
            if self.process is None:
                self.begin()
            status, when = FAILED, ""
            self.connection.send(case)
            return self.answer(self.limit)
        except TimeoutError as silence:
            reason = str(silence)
        except (EOFError, OSError):
            self.process.join(10)
            reason = f"its process ended with status {self.process.exitcode}"
        self.end()
        return status, when + reason, time.monotonic() - begin

    def begin(self):
        context = multiprocessing.get_context("spawn")
        self.connection, other = context.Pipe()
        self.process = context.Process(target=serve, args=(other, self.name, self.seed), daemon=True)
        self.process.start()
        other.close()
        self.answer(START_SECONDS)

    def answer(self, limit):
        if not self.connection.poll(limit):
            raise TimeoutError(f"no answer for {limit:g} s")
        return self.connection.recv()

    def end(self):
        if self.process is not None:
            self.process.kill()
            self.process.join(10)
            self.connection.close()
        self.process = self.connection = None


def lost_gpu(reason):
    """Whether a library's error means that its process can no longer compute."""
    return reason is not None and any(text in reason for text in ("CUDA error", "illegal memory", "device-side assert"))


def measure(names, cases, options, write):
    """Runs all cases in all libraries, a thread for each library; write(record) is called for each result."""
    turns, writing = threading.Lock(), threading.Lock()

    def work(name):
        process, begin = Process(name, options.seed, options.limit), time.monotonic()
        for number, case in enumerate(cases, 1):
            if time.monotonic() - begin > options.seconds:
                status, reason, took = UNSUPPORTED, f"{NOT_RUN}{options.seconds:g} s were over", 0.0
            elif case.kind == ALONE:
                with turns:
                    status, reason, took = process.ask(case.name)
            else:
                status, reason, took = process.ask(case.name)
            if status == FAILED and lost_gpu(reason):
                process.end()
            with writing:
                write(dict(kind="result", suite=SUITE, cell=case.name, contender=name, status=status, reason=reason,
                           group=case.kind, sources=case.sources, seconds=round(took, 2)))
                if status in (WRONG, FAILED):
                    print(f"[{number}/{len(cases)}] {name}: {case.name}: {reason}", file=sys.stderr, flush=True)
        process.end()
        print(f"{name}: {time.monotonic() - begin:.0f} s", file=sys.stderr, flush=True)

    threads = [threading.Thread(target=work, args=(name,)) for name in names]
    for one in threads:
        one.start()
    for one in threads:
        one.join()


def markdown(runs):
    """A table of cases by libraries for all runs, and failures with reasons; the last run of a library wins."""
    header, found = runs[-1].header, {}
    for run in runs:
        for one in run.results:
            found[one["cell"], one["contender"]] = one
    names = list(dict.fromkeys(name for _, name in found))
    names.sort(key=lambda name: name != OURS)
    cases = [case for case in all_cases() if any((case.name, name) in found for name in names)]
    label = lambda name: next(run.header["contenders"][name]["label"] for run in runs
                              if name in run.header["contenders"])
    rows = [["case", *map(label, names)]]
    status = lambda case, name: found.get((case.name, name), {}).get("status")
    rows += [[f"`{case.name}`", *(SHOWN.get(status(case, name), "") for name in names)] for case in cases]
    for what, those in (("passed", (OK,)), ("failed", (WRONG, FAILED)), ("not offered", (UNSUPPORTED,))):
        rows.append([what, *(str(sum(status(case, name) in those for case in cases)) for name in names)])
    versions = ", ".join(f"{one['label']} {one['version']}" for run in runs
                         for name, one in run.header["contenders"].items() if name in names and one["version"])
    lines = [report.filled(f"{header['gpu']}, driver {header['driver']}, {header['date']}: {versions}."),
             report.filled(f"Command: `{header['command']}`."), "",
             *report.table_lines(rows), "", "Failures:", ""]
    failures = [f"- {label(name)}, `{case.name}`: {found[case.name, name]['reason']}" for name in names for case in cases
                if status(case, name) in (WRONG, FAILED)]
    return "\n".join([*lines, *(failures or ["None."])]) + "\n"


def is_lost(runs, asked):
    """Whether ours failed in a case, or was requested but did not run all cases."""
    results = [one for run in runs for one in run.results]
    ours = {one["cell"]: one for one in results if one["contender"] == OURS}
    failed = any(one["status"] in (WRONG, FAILED) or (one["reason"] or "").startswith((NOT_STARTED, NOT_RUN))
                 for one in ours.values())
    return failed or (asked and (not ours or set(ours) != {one["cell"] for one in results}))


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = lambda text: text.split(",")
    parser.add_argument("--libraries", type=names, metavar="A,B", help="only these (all that are installed)")
    parser.add_argument("--cases", default="", metavar="SUBSTRING", help="only cases whose name or kind holds this")
    parser.add_argument("--limit", type=float, default=120, metavar="S", help="time that a case may take (120)")
    parser.add_argument("--seconds", type=float, default=480, metavar="S",
                        help="after so long a library is put to no further case (480)")
    parser.add_argument("--seed", type=int, default=0, help="of the random inputs (0)")
    parser.add_argument("--out", type=pathlib.Path, metavar="FILE.jsonl", help="all results as JSON lines")
    parser.add_argument("--table", type=pathlib.Path, metavar="FILE.md", help="the table in Markdown")
    parser.add_argument("--list", action="store_true", help="list cases and libraries, run nothing")
    parser.add_argument("--from", dest="sources", nargs="+", type=pathlib.Path, metavar="FILE.jsonl",
                        help="take results from these files")
    options = parser.parse_args(arguments)
    known = list(makers())
    for name in options.libraries or []:
        if name not in known:
            parser.error(f'no library is called "{name}": choose from {", ".join(known)}')
    options.libraries = options.libraries or known
    cases = [case for case in all_cases() if options.cases in case.name or options.cases == case.kind]
    if not cases:
        parser.error(f'no case or kind is called "{options.cases}"; --list shows them')
    return parser, options, cases


def show(options, cases):
    for case in cases:
        print(f"{case.kind:<11} {case.name:<40} {' '.join(case.sources)}")
    for name, reason in absences(options.libraries).items():
        print(f"{name:<16} {'absent: ' + reason if reason else 'installed'}")


@functools.cache
def contender(name):
    """A library's contender, with its version and whether it is installed."""
    return Described(name, makers()[name]().contender)


@dataclasses.dataclass(frozen=True)
class Described:
    """A contender under its name in this program."""

    name: str
    inner: object

    @property
    def label(self):
        return self.inner.label

    def version(self):
        return self.inner.version()


def absences(names):
    """{name: reason why a library is absent, or None}."""
    reason = environment.no_gpu() and "it needs PyTorch and a GPU"
    return {name: reason or contender(name).inner.absent() for name in names}


def main(arguments=None):
    parser, options, cases = parse(arguments)
    if options.list:
        show(options, cases)
        return 0
    if options.sources:
        runs = [run for path in options.sources for run in records.load(path)]
    else:
        environment.require_gpu(parser)
        absent = absences(options.libraries)
        chosen = [(contender(name), reason) for name, reason in absent.items()]
        command = shlex.join([pathlib.Path(sys.argv[0]).name, *sys.argv[1:]])
        run, writer = records.Run(environment.describe(command, chosen, seed=options.seed)), records.Writer(options.out)
        writer.write(run.header)

        def write(record):
            run.results.append(record)
            writer.write(record)

        measure([name for name, reason in absent.items() if reason is None], cases, options, write)
        for name, reason in absent.items():
            if reason:
                print(f"without {name}: {reason}", file=sys.stderr)
        runs = [run]
    text = markdown(runs)
    print(text)
    if options.table:
        options.table.parent.mkdir(parents=True, exist_ok=True)
        options.table.write_text(text, encoding="utf-8")
    return 1 if is_lost(runs, asked=OURS in options.libraries and not options.sources) else 0


if __name__ == "__main__":
    sys.exit(main())
