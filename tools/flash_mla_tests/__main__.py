"""Runs FlashMLA's own tests with jit_attention.flash_mla in place of flash_mla.

    python3 tools/flash_mla_tests CHECKOUT                                all cases but those that only measure time
    python3 tools/flash_mla_tests CHECKOUT --cases 40 --seconds 300       so many of each file, drawn by --seed
    python3 tools/flash_mla_tests CHECKOUT --largest 2e5 --device emulated:sm_90a
    python3 tools/flash_mla_tests CHECKOUT --list                         how many cases each file has

CHECKOUT is a folder of deepseek-ai/FlashMLA; nothing of it is installed or changed. Requires torch, numpy and rich.
Exit status: 0 nothing failed; 1 something did; 2 wrong usage.
"""

import argparse
import collections
import contextlib
import io
import json
import os
import pathlib
import random
import secrets
import sys
import time
import traceback

FILES = ("dense_decoding", "sparse_decoding", "sparse_prefill")
OUTCOMES = ("passed", "failed", "left out", "no time")


def main():
    options = parsed()
    folder = options.checkout.resolve() / "tests"
    for name in FILES:
        if not (folder / f"test_flash_mla_{name}.py").is_file():
            sys.exit(f"{options.checkout}: has no tests/test_flash_mla_{name}.py; give a checkout of deepseek-ai/FlashMLA")
    os.environ["JIT_ATTENTION_DEVICE"] = options.device
    os.environ.setdefault("JIT_ATTENTION_TUNING", "off")  # results are compared, not times
    sys.dont_write_bytecode = True
    sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent), str(folder)]
    import stand_ins

    stand_ins.install()
    deadline = time.monotonic() + options.seconds
    with stand_ins.on_cpu() if options.device.startswith("emulated") else contextlib.nullcontext():
        cases = [case for name in FILES if options.only in name for case in of_file(options, stand_ins, folder, name, deadline)]
    return report(options, cases)


def parsed():
    parser = argparse.ArgumentParser(prog="flash_mla_tests", description=__doc__.partition("\n\n")[0])
    parser.add_argument("checkout", type=pathlib.Path, help="folder of deepseek-ai/FlashMLA")
    parser.add_argument("--cases", type=int, help="cases of each file, drawn at random; default: all")
    parser.add_argument("--largest", type=float, default=float("inf"), help="scores of a case, at most")
    parser.add_argument("--seed", type=int, default=secrets.randbits(16), help="of the cases that are drawn")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="after which no case begins")
    parser.add_argument("--device", default="cuda", help="cuda, or emulated:sm_90a, which is slow")
    parser.add_argument("--only", default="", help="a part of the name of a file")
    parser.add_argument("--list", action="store_true", help="count cases and run none")
    parser.add_argument("--json", type=pathlib.Path, help="file for the counts and what failed")
    return parser.parse_args()


def of_file(options, stand_ins, folder, name, deadline):
    """Outcomes of a file's cases, in their order."""
    test, cases = stand_ins.cases_of(folder / f"test_flash_mla_{name}.py")
    chosen = [number for number, case in enumerate(cases) if stand_ins.scores_of(case) <= options.largest]
    if options.cases is not None and len(chosen) > options.cases:
        chosen = sorted(random.Random(f"{options.seed} {name}").sample(chosen, options.cases))
    found = [dict(file=name, case=str(case), outcome="left out", text="") for case in cases]
    for number in () if options.list else chosen:
        late = time.monotonic() > deadline
        outcome, text = ("no time", "") if late else run(test, cases[number])
        found[number].update(outcome=outcome, text=text)
    return found


def run(test, case):
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            result = test(case)
    except Exception:
        return "failed", printed.getvalue() + traceback.format_exc()
    # The first file asserts, the second returns whether results are right, the third a struct with is_correct.
    return ("failed", printed.getvalue()) if getattr(result, "is_correct", result) is False else ("passed", "")


def report(options, cases):
    counts = {name: collections.Counter(case["outcome"] for case in cases if case["file"] == name) for name in FILES}
    failures = [case for case in cases if case["outcome"] == "failed"]
    for case in failures:
        print(f"FAILED {case['file']}: {case['case']}\n    " + "\n    ".join(case["text"].splitlines()[-12:]))
    print(" ".join(f"{outcome:>8}" for outcome in OUTCOMES) + "  file")
    for name, own in [*counts.items(), ("all", sum(counts.values(), collections.Counter()))]:
        print(" ".join(f"{own[outcome]:8}" for outcome in OUTCOMES) + f"  {name}")
    print(f"--seed {options.seed}")
    if options.json:
        options.json.write_text(json.dumps(dict(seed=options.seed, counts=counts, failures=failures), indent=1))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
