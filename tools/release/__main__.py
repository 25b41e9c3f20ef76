"""Builds the sdist and the wheels of a release, checks them, and writes their accompanying files.

    python3 tools/release [--archs x86_64,aarch64] [--pythons 3.10,3.11,3.12] [--out dist] [--packs sm_90a] [--twice]

Wheels are for manylinux_2_28; the one of 3.12 serves every later Python. zig, a wheel of PyPI, compiles for both
architectures on either. Wheels for this machine's architecture are tried in clean environments of every installed
Python; the last one's tool builds packs of public models (packs.py), an hour on two cores; --packs '' builds none.
--twice builds everything again in another folder and compares bytes. Accompanying files: checksums, a bill of
materials, notes from the changelog, and a folder with a repository for Hugging Face's kernel hub.
"""

import argparse
import os
import pathlib
import shutil
import subprocess

import checks
from kernel_hub import write_repository
from packs import MODELS, write_packs
from records import digest, version_of, write_records
from toolchain import BUILD_REQUIREMENTS, ROOT, TOOLS, environment, find_python, zig_programs
from trials import try_wheels
from wheels import build_sdist, build_wheel, unpack


def options():
    parser = argparse.ArgumentParser("tools/release", description=__doc__.split("\n")[0])
    parser.add_argument("--archs", default="x86_64,aarch64", help="x86_64,aarch64, or one of them")
    parser.add_argument("--pythons", default="3.10,3.11,3.12")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "dist")
    parser.add_argument("--packs", default="sm_90a", help="architectures of the packs")
    parser.add_argument("--twice", action="store_true", help="build all again and compare bytes")
    return parser.parse_args()


def build_all(work, out, pythons, archs, tools):
    """Writes the sdist and the wheels to `out`, built in `work`."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    work.mkdir(exist_ok=True)
    os.environ["CCACHE_DISABLE"] = "1"
    os.environ["ZIG_GLOBAL_CACHE_DIR"] = os.environ["ZIG_LOCAL_CACHE_DIR"] = str(work / "zig")
    bins = {version: environment(find_python(version), work.parent / f"python{version}", BUILD_REQUIREMENTS)
            for version in pythons}
    sdist = build_sdist(next(iter(bins.values())), out, work)
    unpack(sdist, work / "source")
    programs = zig_programs(tools, work / "zig-programs")
    for arch in archs:
        for version, python_bin in bins.items():
            print(f"release: building for Python {version} on {arch}", flush=True)
            log = build_wheel(work / "source", work / arch, python_bin, version, arch, programs, tools, out)
            if version != pythons[0]:
                checks.check_compiles_extension_alone(log)
    return sorted(out.iterdir())


def main():
    given = options()
    work = ROOT / "build/release-files"
    work.mkdir(parents=True, exist_ok=True)
    last_commit = subprocess.run(["git", "-C", ROOT, "log", "-1", "--format=%ct"], capture_output=True, text=True)
    os.environ.setdefault("SOURCE_DATE_EPOCH", last_commit.stdout.strip() or "1577836800")
    tools = environment(find_python(given.pythons.split(",")[-1]), work / "tools", TOOLS)
    targets = given.pythons.split(","), given.archs.split(",")
    files = build_all(work / "once", given.out, *targets, tools)
    for path in files:
        if path.suffix == ".whl":
            checks.check_wheel(path, tools, [ROOT, pathlib.Path.home()])
        else:
            checks.check_sdist(path)
    checks.check_metadata(files, tools)
    packs = []
    if os.uname().machine in targets[1]:
        tool = try_wheels(targets[0], os.uname().machine, given.out, work)
        if given.packs:
            packs = write_packs([tool], MODELS, given.packs.split(","), given.out)
    if given.twice:
        again = build_all(work / "twice", work / "again", *targets, tools)
        for first, second in zip(files, again, strict=True):
            checks.expect(digest(first) == digest(second), f"{first.name} has other bytes when it is built again")
    bill, *others = write_records(files, packs, version_of(files), tools, given.out)
    checks.check_bill(bill, tools)
    write_repository([path for path in files if path.suffix == ".whl"], given.out / "kernel-hub")
    for path in (*files, *packs, bill, *others):
        print(f"{digest(path)}  {path.name}  {path.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
