"""What a wheel must be before anybody installs it."""

import re
import subprocess
import sys
import zipfile

LARGEST_WHEEL = 6 << 20
LARGEST_SDIST = 2 << 20
SYSTEM_LIBRARIES = {"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "ld-linux-x86-64.so.2",
                    "ld-linux-aarch64.so.1"}


def expect(truth, sentence):
    if not truth:
        sys.exit(f"release: {sentence}")


def output_of(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    expect(done.returncode == 0, f"{command[0].name} {command[1]} of {command[-1]}:\n{done.stdout}{done.stderr}")
    return done.stdout


def check_wheel(wheel, tools, forbidden):
    """Sizes, tags, symbols, and that no path of this machine is in it."""
    expect(wheel.stat().st_size <= LARGEST_WHEEL, f"{wheel.name} has {wheel.stat().st_size} bytes")
    platform = wheel.stem.split("-")[-1]
    shown = output_of(tools / "auditwheel", "show", wheel)
    expect(f'"{platform}"' in " ".join(shown.split()), f"{wheel.name} is no {platform}:\n{shown}")
    if "-abi3-" in wheel.name:
        output_of(tools / "abi3audit", "--strict", wheel)
    with zipfile.ZipFile(wheel) as files:
        for name in files.namelist():
            content = files.read(name)
            for path in forbidden:
                expect(str(path).encode() not in content, f"{name} of {wheel.name} holds the path {path}")
            if name.endswith(".so"):
                needed = set(re.findall(rb"\0((?:lib|ld-linux)[\w+.-]*\.so\.\d+)(?=\0)", content))
                unknown = {library.decode() for library in needed} - SYSTEM_LIBRARIES - {"libcuda.so.1"}
                expect(not {library for library in unknown if library.startswith(("libstdc++", "libgcc", "libc++"))},
                       f"{name} of {wheel.name} wants {unknown}")


def check_sdist(sdist, tools):
    expect(sdist.stat().st_size <= LARGEST_SDIST, f"{sdist.name} has {sdist.stat().st_size} bytes")


def check_metadata(files, tools):
    output_of(tools / "twine", "check", "--strict", *files)
