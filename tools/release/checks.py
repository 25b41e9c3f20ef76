"""Checks of a wheel before it is published."""

import re
import subprocess
import sys
import tarfile
import zipfile

LARGEST_WHEEL = 6 << 20
LARGEST_SDIST = 2 << 20


def expect(truth, sentence):
    if not truth:
        sys.exit(f"release: {sentence}")


def output_of(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    expect(done.returncode == 0, f"{command[0].name} {command[1]} of {command[-1]}:\n{done.stdout}{done.stderr}")
    return done.stdout


def check_compiles_extension_alone(log):
    """Checks that the build for a further Python reused the library."""
    again = re.findall(r"Building CXX object (\S*jit_(?:attention|emulator)\.dir/\S+)", log.read_text())
    expect(not again, f"the library is compiled for each Python: {log} has {len(again)} of its objects")


def check_content(wheel, forbidden):
    """Checks that a wheel needs no C++ library and contains none of the paths."""
    with zipfile.ZipFile(wheel) as files:
        for name in files.namelist():
            content = files.read(name)
            for path in forbidden:
                expect(str(path).encode() not in content, f"{name} of {wheel.name} holds the path {path}")
            if name.endswith(".so"):
                for library in (b"libstdc++.so", b"libgcc_s.so", b"libc++.so"):
                    expect(library not in content, f"{name} of {wheel.name} wants {library.decode()}")


def check_wheel(wheel, tools, forbidden):
    """Checks a wheel's size, tag, symbols and content."""
    expect(wheel.stat().st_size <= LARGEST_WHEEL, f"{wheel.name} has {wheel.stat().st_size} bytes")
    tag = re.compile(r"manylinux_2_(\d+)_(\w+)")
    (promised,) = tag.findall(wheel.stem)
    shown = output_of(tools / "auditwheel", "show", wheel)
    found = tag.search(shown)
    keeps = found and found[2] == promised[1] and int(found[1]) <= int(promised[0])
    expect(keeps, f"auditwheel of {wheel.name}:\n{shown}")
    if "-abi3-" in wheel.name:
        output_of(tools / "abi3audit", "--strict", wheel)
    check_content(wheel, forbidden)


def check_sdist(sdist):
    """Checks the sdist's size, and that it has no build products."""
    expect(sdist.stat().st_size <= LARGEST_SDIST, f"{sdist.name} has {sdist.stat().st_size} bytes")
    with tarfile.open(sdist) as files:
        for name in files.getnames():
            foreign = re.search(r"/(build/(?!\w+\.(cpp|h)$)|\.deps|dist|__pycache__)|\.(so|o|a|pyc)$", name)
            expect(not foreign, f"{sdist.name} holds {name}")


def check_metadata(files, tools):
    output_of(tools / "twine", "check", "--strict", *files)


def check_bill(bill, tools):
    """Checks the bill of materials against CycloneDX's schema."""
    program = """
import sys
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
error = JsonStrictValidator(SchemaVersion.V1_6).validate_str(open(sys.argv[1]).read())
sys.exit(error and str(error))
"""
    output_of(tools / "python", "-c", program, bill)
