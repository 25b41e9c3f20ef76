"""Trials of wheels in clean environments of every installed Python."""

import os
import subprocess

from toolchain import HERE, find_python
from wheels import tags

NEWEST = ("3.12", "3.13", "3.14")  # Pythons to try the stable-ABI wheel with


def pythons_for(version):
    """Programs to try a Python's wheel with."""
    for candidate in NEWEST if version == "3.12" else (version,):
        if program := find_python(candidate, with_headers=False):
            yield candidate, program


def try_wheels(pythons, arch, out, work):
    """Installs each wheel of an architecture with only NVRTC's and NumPy's wheels, and computes. Returns the last one's
    tool."""
    for version in pythons:
        (wheel,) = out.glob(f"*-{tags(version, arch)}.whl")
        for name, program in pythons_for(version):
            folder = work / f"try-{name}"
            subprocess.run([program, "-m", "venv", "--clear", folder], check=True)
            install = [folder / "bin/pip", "install", "--quiet", "--only-binary", ":all:"]
            subprocess.run([*install, f"{wheel}[cu13]", "numpy"], check=True)
            # No compiler on PATH, and no NVRTC in the environment.
            clean = {"PATH": str(folder / "bin"), "HOME": str(folder)}
            trial = [folder / "bin/python", "-I", HERE / "try_installed.py"]
            subprocess.run(trial, check=True, env=clean, cwd=os.sep)
    return folder / "bin/jit-attention"
