#!/usr/bin/env python3
"""Times many configs of many problems: the data that the constants of a cost model are fitted to.

    bench/search.py --tool build/release/tools/jit-attention --among family=forward_wgmma --out configs.jsonl
    bench/search.py --tool … --out … --head-dims 96 --seqlens 1024 8192 --masks causal "sliding_window(1024)" --bake

Needs a GPU, and nothing but Python. For each problem `jit-attention bench` compiles the configs that the cost model
ranks best, checks each against a reference and times them interleaved, each after the L2 cache was overwritten. By
default head_dim 64, 128 and 256, 512 to 16,384 tokens, without a mask and causal; batch * seqlen is at most 16384
(more where one sequence is longer), heads * head_dim at most 2048.

The file is JSON lines: one of kind "run", then one of kind "timing" for each problem and config; "us" is the median.
It begins with the first timing, and lines are written as they come. A problem that fails is reported and skipped, so is
a config without a time. Exit status 1 when a problem failed; 2 for wrong arguments.
"""

import argparse
import datetime
import json
import pathlib
import shlex
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from comparison import environment, records  # noqa: E402

TOKENS = 16384  # batch * seqlen
WIDTH = 2048  # heads * head_dim
PROBLEM_SECONDS = 1800  # for one problem; then a hanging kernel is abandoned


class Failed(Exception):
    """The tool failed; the text is one sentence."""


class Refused(Exception):
    """The tool rejected its arguments; the text is its sentence."""


class Parser(argparse.ArgumentParser):
    def error(self, message):
        self.exit(2, f"{self.prog}: {message}; see {self.prog} --help\n")


def positive(text):
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f'"{text}" is no whole number above 0')
    return int(text)


def parse(arguments):
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tool", required=True, metavar="PATH", help="the jit-attention program")
    parser.add_argument("--out", required=True, type=pathlib.Path, metavar="FILE.jsonl",
                        help="where the timings go; must not exist")
    what = parser.add_argument_group("problems")
    what.add_argument("--head-dims", nargs="+", type=positive, default=[64, 128, 256], metavar="D",
                      help="of q, k, v and o (64 128 256)")
    what.add_argument("--seqlens", nargs="+", type=positive, default=[512 << i for i in range(6)], metavar="N",
                      help="queries and keys (512 to 16384)")
    what.add_argument("--masks", nargs="+", default=["none", "causal"], metavar="MASK",
                      help="as jit-attention takes them (none causal)")
    what.add_argument("--bake", action="store_true", help="bake the lengths into the kernels")
    how = parser.add_argument_group("configs")
    how.add_argument("--candidates", type=positive, default=20, metavar="N",
                     help="configs of each problem, the best by the cost model (20)")
    how.add_argument("--among", metavar="FIELDS", help='fields that these have, such as "family=forward_wgmma"')
    how.add_argument("--config", action="append", default=[], metavar="FIELDS",
                     help="a further config; may be repeated")
    how.add_argument("--samples", type=positive, default=9, metavar="N", help="timed launches of each config (9)")
    options = parser.parse_args(arguments)
    try:
        options.out.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        parser.error(f"--out {options.out}: no folder {options.out.parent} can be made: {error.strerror}")
    if options.out.exists():
        parser.error(f"--out {options.out} exists already, and measurements are not overwritten; name another file")
    return parser, options


def run_tool(tool, *arguments):
    """The JSON that the tool prints, whatever its exit status. Raises Failed when it prints none, Refused for 2."""
    command = [tool, *arguments, "--json"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PROBLEM_SECONDS)
    except OSError as error:
        raise Failed(f"{tool} cannot be run: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise Failed(f"{shlex.join(command)} was ended after {PROBLEM_SECONDS} s") from None
    try:
        return json.loads(done.stdout)
    except ValueError:
        reason = " ".join(done.stderr.split()) or "it printed no JSON"
        if done.returncode == 2:
            raise Refused(reason) from None
        raise Failed(f"{shlex.join(command)} failed with status {done.returncode}: {reason}") from None


def describe(options, arguments):
    """The "run" line. Raises Failed when nothing can be measured."""
    info = run_tool(options.tool, "info")
    if info.get("no_gpu") or not info["devices"] or info["devices"][0]["emulated"]:
        raise Failed(f"measuring needs a GPU{', and ' + info['no_gpu'] if info.get('no_gpu') else ''}")
    command = shlex.join([f"bench/{pathlib.Path(__file__).name}", *arguments])
    return dict(kind="run", date=datetime.date.today().isoformat(), gpu=info["devices"][0]["name"],
                driver=environment.driver_version(), cuda=info["nvrtc"].get("version", "unknown"), command=command,
                what=f"medians of {options.samples} interleaved launches by jit-attention bench, cold L2 cache, "
                     f"random bf16 data{', lengths baked in' if options.bake else ''}")


def problems(options):
    """[(batch, heads, seqlen, head_dim, mask)], similar kernels together."""
    return [(max(1, TOKENS // seqlen), max(1, WIDTH // head_dim), seqlen, head_dim, mask)
            for head_dim in options.head_dims for mask in options.masks for seqlen in options.seqlens]


def measure(options, batch, heads, seqlen, head_dim, mask):
    """The "timing" lines of one problem, and [(config, trouble)] of configs without a time. Raises Failed."""
    sizes = {"--batch": batch, "--heads": heads, "--seqlen-q": seqlen, "--seqlen-kv": seqlen, "--head-dim": head_dim,
             "--mask": mask, "--samples": options.samples, "--candidates": options.candidates}
    arguments = [str(word) for pair in sizes.items() for word in pair]
    if options.among:
        arguments += ["--among", options.among]
    for config in options.config:
        arguments += ["--config", config]
    if options.bake:
        arguments.append("--bake")
    report = run_tool(options.tool, "bench", *arguments)
    problem = dict(kind="timing", batch=batch, heads=heads, seqlen=seqlen, head_dim=head_dim, head_dim_v=head_dim,
                   mask=mask)
    timings = [dict(problem, us=round(row["median_us"], 2), local_bytes=row["local_bytes"],
                    serialized=row["serialized"], config=row["config"])
               for row in report["rows"] if "trouble" not in row]
    return timings, [(row["config"], row["trouble"]) for row in report["rows"] if "trouble" in row]


def search(parser, options, header):
    """Measures all problems, writing lines as they come. Returns the number of failures. Raises Refused."""
    writer = None
    failed, grid = 0, problems(options)
    for number, problem in enumerate(grid, 1):
        batch, heads, seqlen, head_dim, mask = problem
        name = f"[{number}/{len(grid)}] head_dim {head_dim}, {seqlen} tokens, {mask}"
        begin = time.monotonic()
        try:
            timings, troubles = measure(options, *problem)
            if not timings:
                raise Failed(f"no config has a time: {troubles[0][1] if troubles else 'there is none'}")
        except Failed as error:
            failed += 1
            print(f"{parser.prog}: {name}: {error}", file=sys.stderr, flush=True)
            continue
        if writer is None:
            writer = records.Writer(options.out)
            writer.write(header)
        for timing in timings:
            writer.write(timing)
        for config, trouble in troubles:
            print(f"{parser.prog}: {name}: {config}: {trouble}", file=sys.stderr)
        best = min(timings, key=lambda timing: timing["us"])
        print(f"{name}: {len(timings)} configs, best {best['us']:.1f} us, {best['config']}; "
              f"{time.monotonic() - begin:.1f} s", file=sys.stderr, flush=True)
    return failed


def main():
    parser, options = parse(sys.argv[1:])
    try:
        failed = search(parser, options, describe(options, sys.argv[1:]))
    except Failed as error:
        parser.exit(1, f"{parser.prog}: {error}\n")
    except Refused as error:
        parser.exit(2, f"{parser.prog}: {error}\n")
    if failed:
        print(f"{parser.prog}: {failed} of {len(problems(options))} problems were not measured", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
