"""Files beside a release's wheels: checksums, a bill of materials (CycloneDX), and notes from the changelog."""

import datetime
import hashlib
import json
import os
import pathlib
import re
import uuid

from toolchain import HERE, ROOT, in_packages

LICENSES = {"fmt": "MIT", "nlohmann_json": "MIT", "CLI11": "BSD-3-Clause", "xxhash": "BSD-2-Clause"}


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def checksums(files):
    """The text of SHA256SUMS, which `sha256sum --check` reads."""
    return "".join(f"{digest(path)}  {path.name}\n" for path in files)


def notes(changelog, version):
    """The changelog's section on a version, without its heading."""
    section = re.search(rf"^## (?:[^\n]*[ (])?{re.escape(version)}(?![\d.])[^\n]*\n(.*?)(?=^## |\Z)", changelog, re.M | re.S)
    if not section:
        raise ValueError(f"CHANGELOG.md has no section of {version}")
    return section[1].strip() + "\n"


def component(name, version, license_id, purl, **more):
    return {"type": "library", "bom-ref": purl, "name": name, "version": version,
            "licenses": [{"license": {"id": license_id}}], "purl": purl, **more}


def fetched_headers():
    """The libraries of third_party/files.txt, with their files' hashes."""
    files = {}
    for line in (ROOT / "third_party/files.txt").read_text().splitlines():
        if not line.startswith("#"):
            sha256, library, _, source = line.split()
            owner, project, version, path = source.split("/", 3)
            files.setdefault((library, owner, project, version), []).append((path, sha256))
    for (library, owner, project, version), parts in files.items():
        purl = f"pkg:github/{owner.lower()}/{project.lower()}@{version}"
        yield component(project, version.removeprefix("v"), LICENSES[library], purl, components=[
            {"type": "file", "name": path, "hashes": [{"alg": "SHA-256", "content": sha256}]} for path, sha256 in parts])


def compiled_in(tools):
    """Third-party code in the wheels: parts of the build's packages."""
    pins = dict(line.split("==") for line in (HERE / "constraints.txt").read_text().split())
    zig = in_packages(tools, "ziglang/lib/libcxx/include/__config").read_text()
    number = re.search(r"# *define _LIBCPP_VERSION (\d+)(\d\d)(\d\d)\n", zig).groups()
    llvm = ".".join(str(int(part)) for part in number)
    yield component("nanobind", pins["nanobind"], "BSD-3-Clause", f"pkg:pypi/nanobind@{pins['nanobind']}")
    yield component("robin-map", "1.4.0", "MIT", "pkg:github/tessil/robin-map@v1.4.0")
    for name in ("libcxx", "libcxxabi", "libunwind"):
        yield {**component(name, llvm, "", f"pkg:github/llvm/llvm-project@llvmorg-{llvm}#{name}"),
               "licenses": [{"expression": "Apache-2.0 WITH LLVM-exception"}]}


def bill_of_materials(files, version, tools):
    """A CycloneDX 1.6 document: a release's files and their components. Equal files give equal bytes."""
    parts = [*fetched_headers(), *compiled_in(tools)]
    purl = f"pkg:pypi/jit-attention@{version}"
    hashes = [{"type": "file", "name": path.name, "hashes": [{"alg": "SHA-256", "content": digest(path)}]} for path in files]
    made = datetime.datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), datetime.timezone.utc)
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, checksums(files))}",
        "version": 1,
        "metadata": {"timestamp": made.isoformat(), "component": component("jit-attention", version, "MIT", purl,
                                                                           components=hashes)},
        "components": parts,
        "dependencies": [{"ref": purl, "dependsOn": [part["bom-ref"] for part in parts]}],
    }


def write_records(files, packs, version, tools, out):
    """Writes SHA256SUMS, the files' bill of materials and the notes to `out`. Returns their paths."""
    bill = out / f"jit_attention-{version}.cdx.json"
    bill.write_text(json.dumps(bill_of_materials(files, version, tools), indent=2) + "\n")
    said = out / f"jit_attention-{version}.notes.md"
    said.write_text(notes((ROOT / "CHANGELOG.md").read_text(), version))
    sums = out / "SHA256SUMS"
    sums.write_text(checksums([*files, *packs, bill, said]))
    return bill, said, sums


def version_of(files):
    """The version in the files' names."""
    (version,) = {re.match(r"jit_attention-([^-]+?)(-cp.*\.whl|\.tar\.gz)$", pathlib.Path(path).name)[1] for path in files}
    return version
