"""The files of tools/release beside sdist and wheels, from inputs that are made here."""

import base64
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import zipfile

import pytest

ROOT = pathlib.Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools/release"))

import checks  # noqa: E402
import kernel_hub  # noqa: E402
import packs  # noqa: E402
import records  # noqa: E402
import wheels as building  # noqa: E402

VERSION = re.search(r"project\(jit_attention VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text())[1]


@pytest.fixture
def wheels(tmp_path):
    """Wheels of two Pythons and two architectures, with one version of a module and a file of Python."""
    made = []
    for arch in ("x86_64", "aarch64"):
        for python in ("cp311-cp311", "cp312-abi3"):
            made.append(tmp_path / f"jit_attention-{VERSION}-{python}-manylinux_2_28_{arch}.whl")
            with zipfile.ZipFile(made[-1], "w") as archive:
                archive.writestr("jit_attention/__init__.py", "__version__ = '1'")
                archive.writestr("jit_attention/vllm/__init__.py", "")
                archive.writestr(f"jit_attention/_core.{python}.so", arch)
                archive.writestr(f"jit_attention-{VERSION}.dist-info/METADATA", "Name: jit-attention")
    return made


def test_checksums_are_those_that_sha256sum_reads(wheels, tmp_path):
    (tmp_path / "SHA256SUMS").write_text(records.checksums(wheels))
    check = ["sha256sum", "--check", "--quiet", "--strict", "SHA256SUMS"]
    assert subprocess.run(check, cwd=tmp_path).returncode == 0
    wheels[0].write_bytes(b"another")
    assert subprocess.run(check, cwd=tmp_path, capture_output=True).returncode == 1


def test_notes_are_the_section_of_the_version():
    changelog = "# Changelog\n\n## Unreleased (1.2.0)\n\n### Added\n\n- New.\n\n## 1.1.0 (2026-01-02)\n\n- Old.\n"
    assert records.notes(changelog, "1.2.0") == "### Added\n\n- New.\n"
    assert records.notes(changelog, "1.1.0") == "- Old.\n"
    with pytest.raises(ValueError, match="no section of 1.2"):
        records.notes(changelog, "1.2")
    assert "### Added" in records.notes((ROOT / "CHANGELOG.md").read_text(), VERSION)


def test_the_bill_names_every_library_that_is_fetched(wheels, tmp_path, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    monkeypatch.setattr(records, "compiled_in", lambda tools: iter(()))
    bill = records.bill_of_materials(wheels, records.version_of(wheels), tmp_path)
    assert bill == records.bill_of_materials(wheels, VERSION, tmp_path)
    assert {part["name"] for part in bill["components"]} == {"fmt", "json", "CLI11", "xxHash"}
    listed = {file["hashes"][0]["content"] for part in bill["components"] for file in part["components"]}
    lines = (ROOT / "third_party/files.txt").read_text().splitlines()
    assert listed == {line.split()[0] for line in lines if not line.startswith("#")}
    (main,) = [part for part in bill["dependencies"] if part["ref"] == f"pkg:pypi/jit-attention@{VERSION}"]
    assert len(main["dependsOn"]) == 4
    notice = (ROOT / "third_party/licenses/NOTICE.txt").read_text()
    assert all(part["name"] in notice for part in bill["components"])


def test_the_library_is_compiled_with_equal_flags_for_all_pythons():
    """Other flags would compile all of it again."""
    work = pathlib.Path("/release")
    flags = {building.path_flags(work / f"python{version}/bin", work / "once/source", work / "once/x86_64")
             for version in ("3.10", "3.12")}
    assert flags == {"-ffile-prefix-map=/release=. -ffile-prefix-map=/release/once/source=. "
                     "-ffile-prefix-map=/release/once/x86_64=."}


def test_files_of_an_sdist_that_are_as_before_keep_their_time(tmp_path):
    """By their time the build knows what to compile."""
    def unpack(**files):
        with tarfile.open(tmp_path / "a-1.tar.gz", "w:gz") as archive:
            for name, text in files.items():
                (tmp_path / "file").write_text(text)
                archive.add(tmp_path / "file", f"a-1/sources/{name}.cpp")
        building.unpack(tmp_path / "a-1.tar.gz", tmp_path / "source")
        return {path.stem: path for path in (tmp_path / "source").rglob("*.cpp")}

    first = unpack(same="1", changed="2", removed="3")
    for path in first.values():
        os.utime(path, (1, 1))
    second = unpack(same="1", changed="4", new="5")
    assert {name: path.read_text() for name, path in second.items()} == {"same": "1", "changed": "4", "new": "5"}
    assert {name for name, path in second.items() if path.stat().st_mtime > 1} == {"changed", "new"}


def test_a_build_that_compiles_the_library_again_is_refused(tmp_path):
    log = tmp_path / "log"
    log.write_text("[1/2] Building CXX object python/CMakeFiles/jit_attention_python.dir/Unity/unity_python_src_0_cxx.cxx.o\n")
    checks.check_compiles_extension_alone(log)
    for target in ("emulator/CMakeFiles/jit_emulator.dir", "CMakeFiles/jit_attention.dir"):
        log.write_text(f"[1/2] Building CXX object {target}/Unity/unity_cache_0_cxx.cxx.o\n")
        with pytest.raises(SystemExit, match="the library is compiled for each Python: .* has 1 of its objects"):
            checks.check_compiles_extension_alone(log)


def test_a_wheel_with_a_path_of_this_machine_is_refused(wheels):
    checks.check_content(wheels[0], [ROOT, pathlib.Path.home()])
    with zipfile.ZipFile(wheels[0], "a") as archive:
        archive.writestr("jit_attention/_core.so", f"at {ROOT}/generator/attention.cpp")
    with pytest.raises(SystemExit, match="_core.so of jit_attention.* holds the path"):
        checks.check_content(wheels[0], [ROOT])
    with pytest.raises(SystemExit, match="wants libstdc"):
        with zipfile.ZipFile(wheels[1], "a") as archive:
            archive.writestr("jit_attention/_core.so", "libstdc++.so.6")
        checks.check_content(wheels[1], [ROOT])


STAND_IN = """#!{python}
import json, pathlib, sys
given = dict(zip(sys.argv[2::1], sys.argv[3::1]))
pathlib.Path(given["--out"]).write_bytes(bytes({size}))
print(json.dumps({{"kernels": [{{"cached": False, "compile_ms": 1500}}, {{"cached": True, "compile_ms": 9}}]}}))
"""


@pytest.mark.parametrize("size", [1_000_000, packs.LARGEST_PACK + 1])
def test_a_pack_of_each_model_and_architecture_is_made_and_measured(tmp_path, capsys, size):
    tool = tmp_path / "tool"
    tool.write_text(STAND_IN.format(python=sys.executable, size=size))
    tool.chmod(0o755)
    if size > packs.LARGEST_PACK:
        with pytest.raises(SystemExit, match="llama-3-8b.sm_90a.pack has 30000001 bytes, 1 more than a pack may have"):
            packs.write_packs([tool], ["llama-3-8b"], ["sm_90a"], tmp_path / "packs")
        return
    made = packs.write_packs([tool], packs.MODELS, ["sm_80", "sm_90a"], tmp_path / "packs")
    assert len(packs.MODELS) == 5
    assert [path.name for path in made] == [f"{model}.{arch}.pack" for model in packs.MODELS for arch in ("sm_80", "sm_90a")]
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 10 and all("1.0 MB, 2 kernels, of which 1 were compiled in 2 s of NVRTC" in line for line in lines)


def test_files_of_two_versions_are_no_release(wheels):
    with pytest.raises(ValueError):
        records.version_of([*wheels, pathlib.Path("jit_attention-9.9.9.tar.gz")])


def test_a_kernel_repository_has_a_build_of_each_architecture(wheels, tmp_path):
    kernel_hub.write_repository(wheels, tmp_path / "hub")
    variants = sorted(path.name for path in (tmp_path / "hub/build").iterdir())
    assert variants == sorted(f"torch-stable-abi26-{backend}-{arch}-linux"
                              for backend in ("cpu", "cu126", "cu130") for arch in ("aarch64", "x86_64"))
    for name in variants:
        variant = tmp_path / "hub/build" / name
        told = json.loads((variant / "metadata.json").read_text())
        assert told["id"].isidentifier() and told["backend"]["type"] == ("cpu" if "-cpu-" in name else "cuda")
        files = {str(path.relative_to(variant)): path for path in variant.rglob("*") if path.is_file()}
        hashed = {name: base64.b64encode(hashlib.sha256(path.read_bytes()).digest()).decode()
                  for name, path in files.items() if name != "metadata.json"}
        assert told["digest"] == {"algorithm": "sha256", "files": hashed}
        assert set(hashed) == {"__init__.py", "version.txt", "package/jit_attention/__init__.py",
                               "package/jit_attention/_core.cp311-cp311.so", "package/jit_attention/_core.cp312-abi3.so"}
        assert (variant / "package/jit_attention/_core.cp312-abi3.so").read_text() in name


def test_wheels_that_differ_in_a_file_are_no_kernel(wheels, tmp_path):
    with zipfile.ZipFile(wheels[0], "w") as archive:
        archive.writestr("jit_attention/__init__.py", "another")
    with pytest.raises(ValueError, match="differ in jit_attention/__init__.py"):
        kernel_hub.write_repository(wheels, tmp_path / "hub")


def test_a_kernel_refuses_another_version_of_the_package(tmp_path):
    """Its file is run where a package is loaded that it was not made with."""
    (tmp_path / "version.txt").write_text("9.9.9\n")
    (tmp_path / "kernel.py").write_bytes((ROOT / "packaging/kernel-hub/__init__.py").read_bytes())
    run = subprocess.run([sys.executable, "-c", "import jit_attention, kernel"], cwd=tmp_path, capture_output=True, text=True)
    assert run.stderr.splitlines()[-1].endswith("and this kernel is 9.9.9: a process holds one version")


def test_recipes_are_of_this_version_and_name_options_that_there_are():
    recipes = [path for path in (ROOT / "packaging").rglob("*") if path.is_file() and path.suffix in (".yaml", ".json", ".nix", ".py")]
    versioned = [path for path in recipes if re.search(r"\d\.\d", path.read_text()) and path.parent.name != "kernel-hub"]
    assert len(versioned) == 5
    for path in versioned:
        assert re.search(rf"[\"']{re.escape(VERSION)}[\"']", path.read_text()), path
    cmake = "".join(path.read_text() for path in (ROOT / "CMakeLists.txt", ROOT / "runtime/CMakeLists.txt"))
    for path in [*recipes, ROOT / "packaging/vcpkg/portfile.cmake"]:
        for option in re.findall(r"JIT_ATTENTION_[A-Z_]+", path.read_text()):
            assert re.search(rf"(option|find_path)\({option}\b", cmake), f"{path}: {option}"
