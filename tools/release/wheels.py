"""Builds of the sdist and, from it, of a wheel for an architecture and a Python."""

import os
import shutil
import tarfile

from toolchain import ROOT, in_packages, run_quietly

GLIBC = "2.28"
BUILD = ["-m", "build", "--no-isolation", "--skip-dependency-check"]


def build_sdist(bin_folder, out, work):
    """Writes the tree's sdist, including its build libraries, to `out`. Returns its path."""
    run_quietly(["cmake", "-P", ROOT / "third_party/fetch_all.cmake"], work / "fetch.log")
    # nanobind is compiled into the module, and pip leaves its license out of wheels.
    shutil.copy(in_packages(bin_folder, "nanobind-*.dist-info/licenses/LICENSE"), ROOT / "third_party/licenses/nanobind.txt")
    run_quietly([bin_folder / "python", *BUILD, "--sdist", "--outdir", out, ROOT], work / "sdist.log")
    (sdist,) = out.glob("jit_attention-*.tar.gz")
    return sdist


def unpack(sdist, folder):
    """Unpacks an sdist to `folder`. Unchanged files stay, and so do their build products."""
    with tarfile.open(sdist) as archive:
        contents = {folder / member.name.split("/", 1)[1]: archive.extractfile(member).read()
                    for member in archive if member.isfile()}
    for path in [path for path in folder.rglob("*") if path.is_file() and path not in contents]:
        path.unlink()
    for path, content in contents.items():
        if not path.exists() or path.read_bytes() != content:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)


def tags(version, arch):
    """The wheel's name for a Python: from 3.12 one for all, through the stable ABI."""
    python = "cp" + version.replace(".", "")
    abi = "abi3" if version == "3.12" else python
    return f"{python}-{abi}-manylinux_{GLIBC.replace('.', '_')}_{arch}"


def path_flags(python_bin, source, build):
    """Flags that remove this machine's folders from the binary; narrower ones come last and win. They are equal for all
    Pythons, whose environments share a folder, so that Python-independent sources are compiled once."""
    return " ".join(f"-ffile-prefix-map={folder}=." for folder in (python_bin.parents[1], source, build))


def build_wheel(source, build, python_bin, version, arch, programs, tools, out):
    """Writes a wheel to `out`. Returns the build's log."""
    is_stable = version == "3.12"
    suffix = ".abi3.so" if is_stable else f".cpython-{version.replace('.', '')}-{arch}-linux-gnu.so"
    # -fsigned-char: plain char has a sign on x86-64, where most tests run, and would have none on aarch64.
    settings = {
        "build-dir": build,
        "wheel.py-api": "cp312" if is_stable else "",
        "wheel.tags": tags(version, arch),
        "cmake.define.CMAKE_TOOLCHAIN_FILE": ROOT / "tools/release/zig.cmake",
        "cmake.define.CMAKE_CXX_FLAGS": f"{path_flags(python_bin, source, build)} -g0 -fsigned-char",
        "cmake.define.CMAKE_CXX_FLAGS_RELEASE": "-O2 -DNDEBUG",
        "cmake.define.CudaHeaders_CUDA_DIR": in_packages(tools, "nvidia/cu13/include"),
    }
    environment = {
        **os.environ,
        "JIT_ZIG_BIN": str(programs),
        "JIT_ZIG_TARGET": f"{arch}-linux-gnu.{GLIBC}",
        "PATH": os.pathsep.join([str(tools), os.environ["PATH"]]),
        "SETUPTOOLS_EXT_SUFFIX": suffix,
    }
    # Deletes CMake's results for another Python: scikit-build-core would clear all objects for a new environment.
    for name in ("CMakeCache.txt", ".skbuild-info.json"):
        (build / name).unlink(missing_ok=True)
    options = [f"-C{name}={value}" for name, value in settings.items()]
    log = build.parent / f"{tags(version, arch)}.log"
    run_quietly([python_bin / "python", *BUILD, "--wheel", "--outdir", out, *options, source], log, env=environment)
    return log
