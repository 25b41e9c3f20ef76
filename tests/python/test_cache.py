"""The cache as Python sees it, in a folder of the test's own."""

import pathlib

import pytest

SCRIPT = """
import pathlib, jit_attention as ja
spec = ja.AttentionSpec(head_dim=32)
folder = pathlib.Path({folder!r})
"""


@pytest.fixture
def with_cache(run_python, tmp_path):
    folder = tmp_path / "cache"

    def run(script, folder=folder, **environment):
        return run_python(
            SCRIPT.format(folder=str(folder)) + script, JIT_ATTENTION_CACHE_DIR=str(folder), **environment
        )

    run.folder = folder
    return run


def test_kernels_are_kept_and_listed(with_cache):
    with_cache("""
assert ja.cache.directory() == str(folder) and "JIT_ATTENTION_CACHE_DIR" in ja.cache.reason()
assert ja.cache.entries() == []
kernel = ja.compile(spec, "sm_80")
assert not kernel.cached
(entry,) = ja.cache.entries()
assert entry.key == kernel.key and entry.kernel["arch"] == "sm_80" and not entry.damaged
assert entry.unreadable == ""
assert pathlib.Path(entry.path).stat().st_size == entry.bytes and entry.layer == str(folder)
import datetime
age = datetime.datetime.now(datetime.timezone.utc) - entry.last_used
assert abs(age) < datetime.timedelta(minutes=5), age
""")
    with_cache(
        """
assert ja.compile(spec, "sm_80").cached
""",
        JIT_ATTENTION_OFFLINE="1",
    )


def test_damage_is_found_and_mended(with_cache):
    with_cache("ja.compile(spec, 'sm_80')")
    (file,) = (path for path in with_cache.folder.rglob("*.bin"))
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    with_cache("""
import logging
messages = []
handler = logging.Handler()
handler.emit = lambda record: messages.append((record.levelname, record.getMessage()))
logging.getLogger("jit_attention").addHandler(handler)
(damaged,) = ja.cache.verify()
assert damaged.damaged and damaged.kernel == {}
assert not ja.compile(spec, "sm_80").cached
assert any(level == "WARNING" for level, _ in messages), messages
assert ja.cache.verify() == [] and len(ja.cache.entries()) == 1
""")


def test_prune_and_clear(with_cache):
    with_cache("""
ja.compile(spec, "sm_80"); ja.compile(spec, "sm_90a")
assert ja.cache.prune(1 << 30) == 0
try:
    ja.cache.prune(-1)
    raise SystemExit("pruned to less than nothing")
except ja.InvalidArgumentError as error:
    assert str(error) == "max_bytes: is -1; it must be from 0 to 18446744073709551615", error
assert ja.cache.prune(max(entry.bytes for entry in ja.cache.entries()) + 5000) == 1
assert ja.cache.clear() == 1 and ja.cache.entries() == []
""")


def test_export_and_import(with_cache, tmp_path):
    archive = tmp_path / "kernels"
    with_cache(f"ja.compile(spec, 'sm_80'); assert ja.cache.export_to({str(archive)!r}) == 1")
    with_cache(
        f"""
assert ja.cache.import_from(pathlib.Path({str(archive)!r})) == (1, [])
assert ja.compile(spec, "sm_80").cached
""",
        folder=tmp_path / "other",
    )
    archive.write_bytes(archive.read_bytes()[:-100])
    with_cache(
        f"""
imported, damage = ja.cache.import_from({str(archive)!r})
assert imported == 0 and damage, (imported, damage)
try:
    ja.cache.import_from("/no/such/file")
    raise SystemExit("imported from nowhere")
except ja.IoError as error:
    assert "/no/such/file" in str(error)
""",
        folder=tmp_path / "third",
    )


def test_without_a_folder(with_cache):
    with_cache(
        """
assert ja.cache.directory() == "" and ja.cache.entries() == []
try:
    ja.cache.clear()
    raise SystemExit("cleared nothing")
except ja.IoError as error:
    assert "no cache folder" in str(error)
assert not ja.compile(spec, "sm_80").cached
""",
        JIT_ATTENTION_NO_DISK_CACHE="1",
    )
    assert not pathlib.Path(with_cache.folder).exists()
