"""Compares the CPU time of compiling a mask of text with that of the equivalent built-in mask. No GPU is needed.

    python3 bench/text_compile.py build/default/tools/jit-attention --repeats 9 --out times.jsonl

Separate processes with empty caches compile each kernel in turns, with the cost model's config or a given one. Prints
medians of the whole process's CPU time, and the median ratio of consecutive processes; --out keeps all times.
"""

import argparse
import datetime
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile

TEXTS = {
    "causal": "return k <= q + seqlen_kv - seqlen_q;",
    "sliding_window(1024)": "const int p = q + seqlen_kv - seqlen_q; return k <= p && p - k <= 1024;",
    "causal && sliding_window(1024)": "return k <= q + seqlen_kv - seqlen_q && q + seqlen_kv - seqlen_q - k <= 1024;",
    "prefix(256)": "return k < 256;",
    "causal || prefix(256)": "return k <= q + seqlen_kv - seqlen_q || k < 256;",
}


def cpu_ms(tool, arguments):
    """CPU time of one compile, including the process's start and end."""
    with tempfile.TemporaryDirectory() as cache:
        return _cpu_ms(tool, arguments, cache)


def _cpu_ms(tool, arguments, cache):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([tool, "compile", *arguments], check=True, stdout=subprocess.DEVNULL,
                   env=os.environ | {"JIT_ATTENTION_CACHE_DIR": cache})
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1000 * (after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("tool", help="jit-attention")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--arch", default="sm_90a")
    parser.add_argument("--head-dims", default="64,128")
    parser.add_argument("--config", help="of both, in place of what the cost model chooses for each")
    parser.add_argument("--out", type=argparse.FileType("w"), help="a file of JSON lines")
    options = parser.parse_args()
    kept = options.out or open(os.devnull, "w")
    version = subprocess.run([options.tool, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    now = datetime.datetime.now(datetime.timezone.utc)
    run = {"kind": "run", "date": f"{now:%Y-%m-%d}", "time": now.isoformat(timespec="seconds"), "version": version,
           "cores": os.cpu_count(), "what": "CPU time of whole processes in ms, in turns", "command": " ".join(sys.argv)}
    print(json.dumps(run), file=kept)
    print(f"{'head_dim':>8} {'mask':<26} {'built in':>9} {'text':>9} {'ratio':>6}")
    with tempfile.TemporaryDirectory() as folder:
        for head_dim in options.head_dims.split(","):
            for mask, body in TEXTS.items():
                path = os.path.join(folder, "mask.txt")
                with open(path, "w") as file:
                    file.write(body)
                common = ["--arch", options.arch, "--head-dim", head_dim]
                common += ["--config", options.config] if options.config else []
                ways = [[*common, "--mask", mask], [*common, "--mask-file", f"mine={path}"]]
                times = [[cpu_ms(options.tool, way) for way in ways] for _ in range(options.repeats)]
                built_in, text = (statistics.median(column) for column in zip(*times))
                ratio = statistics.median(text / built_in for built_in, text in times)
                cell = {"kind": "cell", "head_dim": int(head_dim), "mask": mask, "text": body,
                        "built_in_ms": [round(pair[0], 1) for pair in times],
                        "text_ms": [round(pair[1], 1) for pair in times], "ratio": round(ratio, 3)}
                print(json.dumps(cell), file=kept, flush=True)
                print(f"{head_dim:>8} {mask:<26} {built_in:>9.0f} {text:>9.0f} {ratio:>6.2f}", flush=True)


if __name__ == "__main__":
    main()
