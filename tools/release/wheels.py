"""Building the sdist and, from it, a wheel for an architecture and a Python."""

import os
import shutil
import tarfile

from toolchain import ROOT, in_packages, run_quietly

GLIBC = "2.28"
BUILD = ["-m", "build", "--no-isolation", "--skip-dependency-check"]


def build_sdist(bin_folder, out, work):
    """Writes the sdist of the tree to `out`; its path."""
    run_quietly([bin_folder / "python", *BUILD, "--sdist", "--outdir", out, ROOT], work / "sdist.log")
    (sdist,) = out.glob("jit_attention-*.tar.gz")
    return sdist


def unpack(sdist, folder):
    """The tree of an sdist, anew, in `folder`."""
    shutil.rmtree(folder, ignore_errors=True)
    with tarfile.open(sdist) as archive:
        archive.extractall(folder.parent)
    (folder.parent / sdist.name.removesuffix(".tar.gz")).rename(folder)
    return folder


def tags(version, arch):
    """The wheel's name for a Python: from 3.12 on one for all, through the stable ABI."""
    python = "cp" + version.replace(".", "")
    abi = "abi3" if version == "3.12" else python
    return f"{python}-{abi}-manylinux_{GLIBC.replace('.', '_')}_{arch}"


def build_wheel(source, build, python_bin, version, arch, programs, tools, out, stub=None):
    """Writes a wheel to `out`; the stub of its module, which other architectures cannot make and take from here."""
    is_stable = version == "3.12"
    suffix = ".abi3.so" if is_stable else f".cpython-{version.replace('.', '')}-{arch}-linux-gnu.so"
    flags = f"-ffile-prefix-map={source}=. -ffile-prefix-map={build}=. -ffile-prefix-map={python_bin.parent}=. -g0"
    # Plain char is signed on x86-64 alone, which is where most tests run.
    settings = {
        "build-dir": build,
        "wheel.py-api": "cp312" if is_stable else "",
        "wheel.tags": tags(version, arch),
        "cmake.define.CMAKE_TOOLCHAIN_FILE": ROOT / "tools/release/zig.cmake",
        "cmake.define.CMAKE_CXX_FLAGS": f"{flags} -fsigned-char",
        "cmake.define.CMAKE_CXX_FLAGS_RELEASE": "-O2 -DNDEBUG",
        "cmake.define.CudaHeaders_CUDA_DIR": in_packages(tools, "nvidia/cu13/include"),
        "cmake.define.JIT_ATTENTION_STUB": stub or "",
    }
    environment = {
        **os.environ,
        "JIT_ZIG_BIN": str(programs),
        "JIT_ZIG_TARGET": f"{arch}-linux-gnu.{GLIBC}",
        "PATH": os.pathsep.join([str(tools), os.environ["PATH"]]),
        "SETUPTOOLS_EXT_SUFFIX": suffix,
    }
    options = [f"-C{name}={value}" for name, value in settings.items()]
    run_quietly([python_bin / "python", *BUILD, "--wheel", "--outdir", out, *options, source],
                build.parent / f"{tags(version, arch)}.log", env=environment)
    return build / "python/jit_attention/_core.pyi"
