#!/usr/bin/env python3
r"""jit-attention beside cuDNN, FlashAttention-2, -3 and -4, FlashInfer, XQA, FlashMLA, FlexAttention and SageAttention,
in one process.

Every result is checked against fp32 attention before it is timed; a wrong one is reported and not timed. Samples are
interleaved over all contenders in an order shuffled each round, on the same random bf16 inputs; figures are medians.
--mode cold: each sample is one call after the L2 cache was overwritten. --mode sustained: each of five samples is a
burst of 20 ms of calls back to back, in CUDA graphs so that no host is too slow for it; who cannot be captured is
called from the host, and a note says so. Suite latency has modes of its own: it goes by the host's clock with warm
caches, until the GPU has finished a call. The suites of serving (decode, paged, ragged, mixed, fp8-cache, mla,
engine-shapes, append, merge) have one mode: single replays of a CUDA graph of one call with a cold L2 cache, whose
results are what is checked, before they are timed and after. In those of training (backward and others) gradients of
q, k and v are checked against fp32 autograd; forward is in the times of training-step alone. What is prepared once for
many calls is not in the times: plan(), FlashAttention-3's schedule over pages, block masks, torch.compile, our
compiling and tuning. Compare figures of one run only.

Suite distributed times calls that all ranks of a group begin at the same moment, by themselves and in bursts, beside one
GPU; efficiencies are explained in bench/comparison/group_measure.py. --emulated tries it without a GPU.

Cells are measured in a process of its own. A contender that loses the GPU there fails in that cell; one that gives no
answer for --limit seconds, in all cells of the suite that are left; another process goes on with the others.

    bench/compare.py --suite forward                                    the grid of sizes, no mask
    bench/compare.py --suite forward causal --mode sustained            as in a busy server or a training step
    bench/compare.py --suite backward backward-causal training-step deterministic backward-masks backward-gqa \
        backward-varlen deterministic-varlen --mode sustained --peers cudnn,fa2,fa4,flex     training
    bench/compare.py --suite sparse                                     masks as text, block masks, blocks alone
    bench/compare.py --suite dsa block-topk video-sparse                latents, blocks and video's blocks that were chosen
    bench/compare.py --suite tree                                       a prompt and its answers, packed or in rows
    bench/compare.py --suite decode paged ragged mixed fp8-cache mla append merge     serving, in microseconds
    bench/compare.py --suite engine-shapes --tuning off                 what vLLM's benchmark of attention has
    bench/compare.py --suite distributed --tuning off --ranks 2         a sequence over two GPUs, one process for each
    bench/compare.py --suite all --results bench/results --charts docs/images      all that the documentation shows
    bench/compare.py --from bench/results/*-compare-*.jsonl.gz --charts docs/images   its charts again, without a GPU
    bench/compare.py --from … --suite paged mixed --charts docs/images --into docs/records/performance.md   and its tables
    bench/compare.py --list --suite decode                              what would be measured, and with what

Exit status 1 when ours is wrong or fails in any cell, or nothing can be measured; 2 for wrong arguments.
"""

import argparse
import functools
import math
import os
import pathlib
import re
import shlex
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from comparison import chart, document, environment, records, report  # noqa: E402
from comparison.cells import RUN_MODES, in_mode, titled  # noqa: E402
from comparison.contenders import COLORS, NAMES, all_contenders  # noqa: E402
from comparison.group_processes import GroupProcesses  # noqa: E402
from comparison.group_suites import GroupCell, over_ranks, tiny  # noqa: E402
from comparison.isolation import Lost, MeasuringProcess, measure_all  # noqa: E402
from comparison.suites import SUITES  # noqa: E402

OURS = report.OURS
PEERS = tuple(name for name in NAMES if not report.is_ours(name))
TUNINGS = ("off", "recorded", "first_run", "exhaustive")


class Parser(argparse.ArgumentParser):
    def error(self, message):
        self.exit(2, f"{self.prog}: {message}\n")


def names_of(text, known, what):
    """Names separated by commas, each in `known`; "all" gives all of them."""
    names = [name for name in text.split(",") if name]
    for name in names:
        if name not in known and name != "all":
            raise argparse.ArgumentTypeError(f'no {what} is called "{name}": choose from all, {", ".join(known)}')
    return list(known) if "all" in names else names


def seconds(text):
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f'"{text}" is no number of seconds above 0')
    return value


def parse(arguments):
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_argument_group("what is measured")
    what.add_argument("--suite", action="extend", nargs="+", metavar="NAME", default=[],
                      type=lambda text: names_of(text, SUITES, "suite"),
                      help=f"all, or some of {', '.join(SUITES)} (forward; with --from: all that the files hold)")
    what.add_argument("--cells", metavar="SUBSTRING", default="", help="only cells whose name holds this")
    what.add_argument("--peers", metavar="A,B", type=lambda text: names_of(text, PEERS, "peer"),
                      help=f"only these of {', '.join(PEERS)} (all, but for what --list shows as left out)")
    what.add_argument("--list", action="store_true", help="list cells and contenders, measure nothing")
    how = parser.add_argument_group("how")
    how.add_argument("--tuning", choices=TUNINGS, default="first_run",
                     help="how ours chooses its configs (first_run)")
    how.add_argument("--tuning-seconds", type=seconds, metavar="S",
                     help="time that tuning one cell may take (JIT_ATTENTION_TUNING_SECONDS, else 10)")
    how.add_argument("--mode", choices=RUN_MODES, default=RUN_MODES[0],
                     help="single calls with a cold L2 cache, or bursts of calls back to back (cold)")
    how.add_argument("--seconds", type=seconds, default=1.0, metavar="S",
                     help="time for the samples of a cell, unless sustained (1)")
    how.add_argument("--limit", type=seconds, default=150.0, metavar="S",
                     help="time to prepare one contender for one cell, its compiling included, or to sample all (150)")
    how.add_argument("--ranks", type=int, choices=range(2, 65), metavar="N", default=2, help="GPUs of suite distributed (2)")
    how.add_argument("--emulated", action="store_true",
                     help="suite distributed over emulated devices and gloo, in tiny sizes: a trial, whose times mean nothing")
    how.add_argument("--seed", type=int, default=0, help="of the random inputs (0)")
    to = parser.add_argument_group("where to")
    to.add_argument("--out", type=pathlib.Path, metavar="FILE.jsonl", help="all measurements as JSON lines")
    to.add_argument("--table", type=pathlib.Path, metavar="FILE.md", help="all suites as Markdown tables")
    to.add_argument("--chart", type=pathlib.Path, metavar="FILE.svg", help="the chart of the one suite")
    to.add_argument("--results", type=pathlib.Path, metavar="DIR",
                    help="DATE-GPU-compare-SUITE-MODE.jsonl and .md in this folder, for each suite")
    to.add_argument("--charts", type=pathlib.Path, metavar="DIR", help="compare-SUITE-MODE.svg in this folder")
    to.add_argument("--into", type=pathlib.Path, metavar="FILE.md",
                    help="tables, with the charts of --charts, where the file has places for the suites")
    to.add_argument("--from", dest="sources", nargs="+", type=pathlib.Path, metavar="FILE.jsonl",
                    help="take measurements from these files instead of measuring; of a suite and mode the last")
    options = parser.parse_args(arguments)

    options.suite = list(dict.fromkeys(name for names in options.suite for name in names))
    if options.sources and (options.out or options.results or options.list):
        parser.error("--from measures nothing, so it goes with --table, --into, --chart and --charts only")
    if options.into and not options.into.is_file():
        parser.error(f'--into "{options.into}" must be a file, with a place for each suite')
    if options.chart and options.chart.suffix != ".svg":
        parser.error(f'--chart "{options.chart}" must end in .svg')
    if not options.sources:
        options.suite = options.suite or ["forward"]
        options.selected = {suite: [in_mode(cell, options.mode) for cell in SUITES[suite]
                                    if options.cells in cell.name] for suite in options.suite}
        options.selected = {suite: [over_ranks(cell, options.ranks) for cell in cells]
                            for suite, cells in options.selected.items() if cells}
        if options.emulated:
            others = [suite for suite, cells in options.selected.items() if not isinstance(cells[0], GroupCell)]
            if others:
                parser.error(f"--emulated measures suite distributed alone, not {', '.join(others)}")
            options.selected = {suite: list(map(tiny, cells)) for suite, cells in options.selected.items()}
        if not options.selected:
            suites = ", ".join(options.suite)
            parser.error(f'no cell of {suites} has "{options.cells}" in its name; --list shows them')
        if options.chart and len(options.selected) > 1:
            parser.error("--chart takes one suite; --charts DIR draws one for each")
    return parser, options


def choose(options):
    """[(contender, reason why it is absent or None)] for this machine and these options."""
    chosen = []
    for one in all_contenders(options.tuning):
        left = options.peers is not None and not report.is_ours(one.name) and one.name not in options.peers
        chosen.append((one, "not asked for" if left else one.absent()))
    return chosen


def left_out(contender, suite, options):
    """The reason why a contender is not measured in a suite unless --peers names it; None: it is."""
    return None if options.peers and contender.name in options.peers else contender.left_out.get(suite)


def show_list(options):
    for suite, cells in options.selected.items():
        print(f"{suite}: {len(cells)} cells")
        for cell in cells:
            print(f"  {cell.name:<38} {cell}")
    print("contenders:")
    for one, reason in choose(options):
        without = [suite for suite in options.selected if left_out(one, suite, options)]
        note = f"absent: {reason}" if reason else one.version()
        if without and not reason:
            note += f"; left out of {', '.join(without)} unless --peers names it: {one.left_out[without[0]]}"
        print(f"  {one.name:<15} {one.label:<25} {note}")


def progress(number, count, cell, results, elapsed):
    row = {one["contender"]: one for one in results}
    words = [f"{name} {one['speed']:.1f}" if one["status"] == records.OK else f"{name} {one['status']}"
             for name, one in row.items() if one["status"] != records.UNSUPPORTED]
    value = report.ratio(row)
    ratio = "" if value is None else f", ratio {value:.2f}"
    print(f"[{number}/{count}] {cell.name} ({cell.unit}): {', '.join(words) or 'nobody'}{ratio}; {elapsed:.1f} s",
          file=sys.stderr, flush=True)


def measure_cell(cell, present, options, process, silent):
    """The results of all present contenders that support this kind of problem, including those left out of the suite.
    silent, Lost and RuntimeError: see measure_all."""
    present = [one for one in present if one.preparing(cell)]
    left = {one.name: reason for one in present if (reason := left_out(one, cell.suite, options))}
    here = [one.name for one in present if one.name not in left]
    results = measure_all(process, cell, here, options.seconds, options.seed, silent)
    return results + [records.result(cell, name, records.UNSUPPORTED, f"left out of this suite: {reason}")
                      for name, reason in left.items()]


def measure(options, chosen):
    """Measures `chosen` contenders in all selected cells, writing lines as they come. Returns the Run."""
    command = shlex.join([pathlib.Path(sys.argv[0]).name, *sys.argv[1:]])
    device = "cpu" if options.emulated else "cuda"
    header = environment.describe(command, chosen, device, mode=options.mode, tuning=options.tuning, seconds=options.seconds,
                                  seed=options.seed)
    run = records.Run(header)
    for line in report.absent(run):
        print(f"without {line}", file=sys.stderr)
    present = [one for one, reason in chosen if reason is None]
    everything = records.Writer(options.out)
    everything.write(header)
    make = functools.partial(all_contenders, options.tuning)
    of_one, of_group = (kind(make, options.limit, device) for kind in (MeasuringProcess, GroupProcesses))
    number, count = 0, sum(map(len, options.selected.values()))
    for suite, cells in options.selected.items():
        silent = {}
        process, other = (of_group, of_one) if isinstance(cells[0], GroupCell) else (of_one, of_group)
        other.end()
        own = records.Writer(result_path(options, header, titled(suite, cells[0].mode), ".jsonl"))
        own.write(header)
        for cell in cells:
            number, begin = number + 1, time.monotonic()
            try:
                results = measure_cell(cell, present, options, process, silent)
            except (Lost, RuntimeError) as error:  # later cells may succeed; this one shows as not measured
                print(f"compare.py: {cell.name} was not measured: {error}", file=sys.stderr, flush=True)
                continue
            for one in results:
                run.results.append(one)
                everything.write(one)
                own.write(one)
            progress(number, count, cell, results, time.monotonic() - begin)
    of_one.end()
    of_group.end()
    return run


def result_path(options, header, title, ending):
    if options.results is None:
        return None
    gpu = re.sub(r"[^a-z0-9]+", "-", header["gpu"].lower().removeprefix("nvidia")).strip("-")
    return options.results / f"{header['date']}-{gpu}-compare-{title}{ending}"


def load(parser, options):
    """The runs of --from, limited to the selected suites and cells; the last one of a suite and mode wins."""
    runs = []
    for path in options.sources:
        try:
            runs += records.load(path)
        except (OSError, ValueError) as error:
            parser.error(f"--from: {error}")
    last = {(suite, run.mode(suite)): run for run in runs for suite in run.suites()}
    for run in runs:
        run.results = [one for one in run.results
                       if last[one["suite"], run.mode(one["suite"])] is run and options.cells in one["cell"]
                       and (not options.suite or one["suite"] in options.suite)
                       and (options.peers is None or report.is_ours(one["contender"])
                            or one["contender"] in options.peers)]
    runs = [run for run in runs if run.results]
    if not runs:
        parser.error("--from: the files hold no result that was asked for")
    if options.chart and sum(len(run.suites()) for run in runs) > 1:
        parser.error("--chart takes one suite; --charts DIR draws one for each")
    return runs


def write_reports(options, runs):
    if options.into:
        for title in document.fill(options.into, runs, options.charts):
            print(f"{options.into} has no place for {title}: no line <!-- compare.py: {title} -->", file=sys.stderr)
    if options.table:
        options.table.parent.mkdir(parents=True, exist_ok=True)
        options.table.write_text(report.markdown(runs), encoding="utf-8")
    for run in runs:
        for suite in run.suites():
            print(f"\n{report.text_table(run, suite)}")
            for line in report.notes(run, suite):
                print(f"  {line}")
            title = titled(suite, run.mode(suite))
            own = result_path(options, run.header, title, ".md")
            if own:
                alone = records.Run(run.header, [one for one in run.results if one["suite"] == suite])
                own.write_text(report.markdown([alone]), encoding="utf-8")
            if options.chart:
                chart.draw(run, suite, options.chart, COLORS)
            if options.charts:
                chart.draw(run, suite, options.charts / f"compare-{title}.svg", COLORS)


def main(arguments=None):
    parser, options = parse(arguments)
    if options.sources:
        write_reports(options, load(parser, options))
        return 0
    if options.tuning_seconds:
        os.environ["JIT_ATTENTION_TUNING_SECONDS"] = f"{options.tuning_seconds:g}"
    os.environ.setdefault("JIT_ATTENTION_TUNING_SECONDS", "10")
    if options.list:
        show_list(options)
        return 0
    cells = [cell for cells in options.selected.values() for cell in cells]
    reason = None if options.emulated else environment.no_gpu() or environment.too_few_gpus(cells)
    if reason:
        parser.exit(1, f"{parser.prog}: {reason}\n")
    chosen = choose(options)
    if chosen[0][1]:
        parser.exit(1, f"{parser.prog}: there is nothing to compare with the peers: {chosen[0][1]}\n")
    run = measure(options, chosen)
    write_reports(options, [run])
    lost = dict.fromkeys(one["cell"] for one in run.results if report.is_ours(one["contender"])
                         and one["status"] in (records.WRONG, records.FAILED))
    measured = {one["cell"] for one in run.results}
    missing = sum(cell.name not in measured for cells in options.selected.values() for cell in cells)
    if missing:
        print(f"{parser.prog}: {missing} cells were not measured", file=sys.stderr)
    if lost:
        print(f"{parser.prog}: jit-attention is wrong or failed in {', '.join(lost)}", file=sys.stderr)
    return 1 if lost or missing else 0


if __name__ == "__main__":
    sys.exit(main())
