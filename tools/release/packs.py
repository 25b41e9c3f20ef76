"""Packs of public models: the compiled kernels of their servers."""

import argparse
import json
import os
import pathlib
import subprocess
import time

from checks import expect

HERE = pathlib.Path(__file__).parent
MODELS = sorted(path.stem for path in (HERE / "models").glob("*.json"))
PAGE_SIZES = {"deepseek-v3": 64}  # of latents; 16 elsewhere
CORES = len(os.sched_getaffinity(0))
LARGEST_PACK = 30_000_000  # bytes, of a model and an architecture


def warm_command(tool, model, arch, out, jobs):
    return [*tool, "warm", "--model", HERE / f"models/{model}.json", "--arch", arch, "--serving", "--page-size",
            str(PAGE_SIZES.get(model, 16)), "--jobs", str(jobs), "--json", "--out", out]


def write_packs(tool, models, archs, out, jobs=CORES):
    """Writes a pack for each model and architecture to `out`, and prints a line for each. Returns their paths. `tool`
    is a command."""
    out.mkdir(parents=True, exist_ok=True)
    written = []
    for model in models:
        for arch in archs:
            path = out / f"{model}.{arch}.pack"
            began = time.monotonic()
            done = subprocess.run(warm_command(tool, model, arch, path, jobs), stdout=subprocess.PIPE, text=True)  # progress: stderr
            expect(done.returncode == 0, f"warm of {model} for {arch} failed")
            kernels = json.loads(done.stdout)["kernels"]
            compiled = [kernel["compile_ms"] / 1000 for kernel in kernels if not kernel["cached"]]
            print(f"{path.name}: {path.stat().st_size / 1e6:.1f} MB, {len(kernels)} kernels, of which {len(compiled)} were compiled "
                  f"in {sum(compiled):.0f} s of NVRTC, {time.monotonic() - began:.0f} s", flush=True)
            written.append(path)
    for path in written:
        size = path.stat().st_size
        expect(size <= LARGEST_PACK, f"{path.name} has {size} bytes, {size - LARGEST_PACK} more than a pack may have")
    return written


def main():
    parser = argparse.ArgumentParser("tools/release/packs.py", description=__doc__.split("\n")[0])
    parser.add_argument("--tool", default="jit-attention", help="the program, on PATH or with a folder")
    parser.add_argument("--archs", default="sm_90a")
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--jobs", type=int, default=CORES, help="kernels that compile at once")
    parser.add_argument("--out", type=pathlib.Path, default=HERE.parents[1] / "dist/packs")
    given = parser.parse_args()
    write_packs([given.tool], given.models.split(","), given.archs.split(","), given.out, given.jobs)


if __name__ == "__main__":
    main()
