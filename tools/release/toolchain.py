"""The toolchain for wheels: an environment of pinned tools, and one for each Python, all in one folder."""

import os
import pathlib
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parent.parent
TOOLS = ["abi3audit", "auditwheel", "cmake", "cyclonedx-python-lib[json-validation]", "ninja", "nvidia-cuda-runtime", "twine", "ziglang"]
BUILD_REQUIREMENTS = ["build", "nanobind", "scikit-build-core"]


def run_quietly(command, log, **options):
    """Runs a command with its output in a file. On failure prints the last lines and exits."""
    with open(log, "w") as words:
        done = subprocess.run(command, stdout=words, stderr=subprocess.STDOUT, **options)
    if done.returncode != 0:
        sys.exit("\n".join(log.read_text().splitlines()[-40:]) + f"\nrelease: {log} has all of it")


def environment(python, folder, packages):
    """The bin folder of a virtual environment of `python`, with packages in the versions of constraints.txt."""
    wanted = f"{python} {packages}\n" + (HERE / "constraints.txt").read_text()
    stamp = folder / "made-of"
    if not stamp.exists() or stamp.read_text() != wanted:
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([python, "-m", "venv", folder], check=True)
        install = [folder / "bin/pip", "install", "--quiet", "--only-binary", ":all:", "-c", HERE / "constraints.txt"]
        subprocess.run([*install, *packages], check=True)
        stamp.write_text(wanted)
    return folder / "bin"


def find_python(version, with_headers=True):
    """The python3.x of a version on PATH. Exits when none is found, or with `with_headers` none with headers."""
    probe = ("import os, sysconfig, sys; "
             "print(os.path.exists(sysconfig.get_path('include') + '/Python.h'), *sys.version_info[:2])")
    for folder in os.get_exec_path():
        program = os.path.join(folder, f"python{version}")
        if os.access(program, os.X_OK):
            found = subprocess.run([program, "-c", probe], capture_output=True, text=True).stdout.split()
            if found in (["True", *version.split(".")], [str(with_headers), *version.split(".")]):
                return program
    if not with_headers:
        return None
    sys.exit(f"release: no python{version} with its headers is on PATH; --pythons names the versions to build for")


def in_packages(bin_folder, pattern):
    """The only file with this name among an environment's Python packages."""
    (found,) = bin_folder.parent.glob(f"lib/python3*/site-packages/{pattern}")
    return found


def zig_programs(tools, folder):
    """A folder with zig's c++, ar and ranlib, since CMake needs each to be a single program."""
    zig = in_packages(tools, "ziglang/zig")
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("c++", "ar", "ranlib"):
        program = folder / name
        program.write_text(f'#!/bin/sh\nexec "{zig}" {name} "$@"\n')
        program.chmod(0o755)
    return folder
