"""A repository for Hugging Face's kernel hub, built from wheels: one build per CPU architecture, in every variant."""

import base64
import hashlib
import json
import pathlib
import re
import shutil
import sys
import zipfile

ROOT = pathlib.Path(__file__).parent.parent.parent
CARD = ROOT / "packaging/kernel-hub"
ARCHS = ["8.0", "9.0", "10.0", "11.0", "12.0"]  # each also serves later minor versions
# A variant serves its PyTorch and later ones, and later minor versions of its CUDA: NVRTC is loaded, not linked.
BACKENDS = {"cu126": "cuda", "cu130": "cuda", "cpu": "cpu"}
ONLY_INSTALLED = re.compile(r"jit_attention/(vllm|sglang)/")  # engines find these by a distribution's entry points


def package_files(wheels):
    """Names and contents of the package's files in one architecture's wheels; their modules differ by Python."""
    files = {}
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                if name.startswith("jit_attention/") and not name.endswith("/") and not ONLY_INSTALLED.match(name):
                    content = archive.read(name)
                    if files.setdefault(name, content) != content:
                        raise ValueError(f"{wheel.name} and another wheel of its architecture differ in {name}")
    return files


def metadata(files, backend):
    """The content of metadata.json, with each file's digest."""
    digests = {name: hashlib.sha256(content).digest() for name, content in sorted(files.items())}
    of_all = hashlib.sha256(b"".join(digests.values())).hexdigest()[:10]
    return {
        "name": "jit-attention",
        "id": f"_jit_attention_{backend}_{of_all}",
        "version": 0,  # of the kernel's interface; by convention 0 until it is stable
        "license": "mit",
        "python-depends": [],
        "kernel-depends": [],
        "backend": {"type": backend, **({"archs": ARCHS} if backend == "cuda" else {})},
        "digest": {"algorithm": "sha256",
                   "files": {name: base64.b64encode(digest).decode() for name, digest in digests.items()}},
    }


def write_repository(wheels, folder):
    """Writes the repository of all wheels, of one version, to `folder`."""
    shutil.rmtree(folder, ignore_errors=True)
    by_arch = {}
    for wheel in sorted(wheels):
        by_arch.setdefault(re.search(r"manylinux_\d+_\d+_(\w+)\.whl$", wheel.name)[1], []).append(wheel)
    (version,) = {wheel.name.split("-")[1] for wheel in wheels}
    for arch, of_arch in by_arch.items():
        files = {f"package/{name}": content for name, content in package_files(of_arch).items()}
        files["__init__.py"] = (CARD / "__init__.py").read_bytes()
        files["version.txt"] = f"{version}\n".encode()
        for variant, backend in BACKENDS.items():
            target = folder / f"build/torch-stable-abi26-{variant}-{arch}-linux"
            for name, content in files.items():
                (target / name).parent.mkdir(parents=True, exist_ok=True)
                (target / name).write_bytes(content)
            (target / "metadata.json").write_text(json.dumps(metadata(files, backend), indent=2) + "\n")
    shutil.copy(CARD / "CARD.md", folder / "README.md")


if __name__ == "__main__":
    write_repository(list(pathlib.Path(sys.argv[1]).glob("*.whl")), pathlib.Path(sys.argv[2]))
