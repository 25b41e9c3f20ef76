"""Runs FlashAttention-4's own tests of gradients with jit_attention's functions in place of its own.

    python3 tools/flash_attention_tests CHECKOUT                        16 cases of each test that applies
    python3 tools/flash_attention_tests CHECKOUT --cases 40 --jobs 8 --seconds 170
    python3 tools/flash_attention_tests CHECKOUT --cases 2 --longest 128 --device emulated:sm_90a
    python3 tools/flash_attention_tests CHECKOUT --list                 tests, how many cases they have, and why not

CHECKOUT is a folder of Dao-AILab/flash-attention; nothing of it is installed or changed. Requires torch, pytest and
einops. --seed draws random cases from the products of the tests' parameters, most of which are too large to run in
full. Exit status: 0 nothing failed; 1 something did; 2 wrong usage.
"""

import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import secrets
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

FILES = ("tests/cute/test_flash_attn.py", "tests/cute/test_score_mod.py")
OUTCOMES = ("passed", "failed", "skipped", "xfailed", "left out", "no time")


def main():
    options = parsed()
    missing = [name for name in (*FILES, "flash_attn/cute/testing.py") if not (options.checkout / name).is_file()]
    if missing:
        sys.exit(f"{options.checkout}: has no {missing[0]}; give a checkout of Dao-AILab/flash-attention")
    if options.part is not None:
        from run_part import run_part

        return run_part(options)
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        parts = list(pool.map(lambda part: part_of(options, part), range(options.jobs)))
    if options.list:
        print(table(parts[0]["tests"]))
        return 0
    return report(options, parts)


def parsed():
    parser = argparse.ArgumentParser(prog="flash_attention_tests", description=__doc__.partition("\n\n")[0])
    parser.add_argument("checkout", type=pathlib.Path, help="folder of Dao-AILab/flash-attention")
    parser.add_argument("--cases", type=positive, default=16, help="cases of each test; default 16")
    parser.add_argument("--longest", type=positive, help="sequences of the cases that are drawn from, at most")
    parser.add_argument("--seed", type=int, default=secrets.randbits(16), help="of the cases that are drawn")
    parser.add_argument("--jobs", type=positive, default=1, help="processes that share the cases")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="after which no case begins")
    parser.add_argument("--device", default="cuda", help="cuda, or emulated:sm_90a, which is slow")
    parser.add_argument("--list", action="store_true", help="list tests and run none")
    parser.add_argument("--json", type=pathlib.Path, help="file for the counts and what failed")
    parser.add_argument("-k", dest="expression", default="", help="an expression of pytest's over names of tests")
    parser.add_argument("--part", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=pathlib.Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.jobs = 1 if options.list else options.jobs
    return options


def positive(text):
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text}: must be 1 or more")
    return number


def part_of(options, part):
    """Runs one process's share of the cases. Returns its outcomes of cases, and its tests."""
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "part.json"
        command = [sys.executable, __file__, options.checkout, "--cases", options.cases, "--seed", options.seed,
                   "--jobs", options.jobs, "--seconds", options.seconds, "--device", options.device, "--part", part,
                   "--out", out, *(["--longest", options.longest] if options.longest else []),
                   *(["-k", options.expression] if options.expression else []),
                   *(["--list"] if options.list else [])]
        environment = {**os.environ, "JIT_ATTENTION_DEVICE": options.device, "PYTHONDONTWRITEBYTECODE": "1"}
        environment.setdefault("JIT_ATTENTION_TUNING", "off")  # results are compared, not times
        run = subprocess.run([str(word) for word in command], env=environment, text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if not out.is_file():
            sys.exit(f"{run.stdout}\nprocess {part} ended with {run.returncode} before it could report")
        return json.loads(out.read_text())


def table(tests):
    lines = [f"{'cases':>8}  test"]
    for name, (cases, reason) in tests.items():
        lines.append(f"{cases:8}  {name}" + (f"\n{'':10}left out: {reason}" if reason else ""))
    return "\n".join(lines)


def report(options, parts):
    cases = [case for part in parts for case in part["cases"]]
    by_test = collections.defaultdict(collections.Counter)
    for case in cases:
        by_test[case["test"]][case["outcome"]] += 1
    counts = collections.Counter(case["outcome"] for case in cases)
    failures = [case for case in cases if case["outcome"] == "failed"]
    for case in failures:
        print(f"FAILED {case['test']}[{case['case']}]\n    " + case["text"].replace("\n", "\n    "))
    print("\n" + " ".join(f"{outcome:>8}" for outcome in OUTCOMES) + "  test")
    for test, own in [*sorted(by_test.items()), ("all", counts)]:
        print(" ".join(f"{own[outcome]:8}" for outcome in OUTCOMES) + f"  {test}")
    reasons = {case["text"] for case in cases if case["outcome"] == "left out"}
    print("\nleft out, because:\n" + "".join(f"    {reason}\n" for reason in sorted(reasons)) if reasons else "")
    print(f"--seed {options.seed}")
    if options.json:
        options.json.write_text(json.dumps(dict(seed=options.seed, counts=counts, by_test=by_test, failures=failures),
                                           indent=1))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
