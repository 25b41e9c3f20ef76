"""docs/tutorial/: its code is that of the templates, its counts are those of the tool, and its exercises have answers."""

import json
import os
import pathlib
import re
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = sorted((ROOT / "docs/tutorial").glob("*.md"))
TEMPLATES = ROOT / "templates"
SMALL = ["--m", "64", "--n", "64", "--k", "128"]


def code(text):
    """The lines of a source, without indentation and anchors of mutations."""
    return [line for line in (re.sub(r"\s*// mutate: .*", "", line).strip() for line in text.splitlines()) if line]


def test_code_is_that_of_the_templates():
    sources = ["\n".join(code(path.read_text())) for path in TEMPLATES.rglob("*.cuh")]
    blocks = [block for page in PAGES for block in re.findall(r"```cuda\n(.*?)```", page.read_text(), re.DOTALL)]
    assert len(blocks) >= 10
    for block in blocks:
        wanted = "\n".join(code(block))
        assert any(wanted in source for source in sources), block


def test_pages_are_short():
    assert len(PAGES) == 6
    for page in PAGES:
        assert len(page.read_text().split()) <= 2000, page


def bench(*words, **environment):
    tool = os.environ.get("JIT_ATTENTION_TOOL")
    if not tool:
        pytest.skip("JIT_ATTENTION_TOOL does not name the program")
    done = subprocess.run([tool, "bench", "--ladder", "matmul", "--device", "emulated:sm_90a", "--json", *words],
                          capture_output=True, text=True, timeout=500,
                          env=os.environ | {"JIT_ATTENTION_DEVICE": "emulated:sm_90a"} | environment)  # fmt: skip
    assert done.stdout, done.stderr
    return {row["name"]: row for row in json.loads(done.stdout)["rows"]}


def test_counts_are_those_of_the_tool():
    table = re.findall(r"^\| `(\w+)` \| ([\d,]+) \| ([\d,]+) \| ([\d,]+) \| ([\d,]+) \| ([\d,]+) \|$",
                       (ROOT / "docs/tutorial/index.md").read_text(), re.MULTILINE)  # fmt: skip
    rows = bench()
    assert [name for name, *_ in table] == list(rows)
    for name, *cells in table:
        instructions, *others = (int(cell.replace(",", "")) for cell in cells)
        row = rows[name]
        assert others == [row["mma_sync"], row["shared_wavefronts"], row["bank_conflicts"], row["global_read_bytes"]]
        assert row["warp_instructions"] == pytest.approx(instructions, rel=0.05)  # another NVRTC writes other PTX


@pytest.fixture
def edited(tmp_path):
    """Runs the ladder with a template changed as an exercise says, each text for another one."""

    def run(name, *changes):
        folder = tmp_path / "templates"
        shutil.copytree(TEMPLATES, folder)
        text = (folder / name).read_text()
        for old, new in changes:
            assert old in text
            text = text.replace(old, new, 1)
        (folder / name).write_text(text)
        return bench(*SMALL, JIT_ATTENTION_TEMPLATES=str(folder))

    return run


def test_padding(edited):
    row = edited("matmul/smem_tiles.cuh", ("padding = 2", "padding = 0"))["smem_tiles"]
    assert row["bank_conflicts"] > 0 and "trouble" not in row


def test_a_barrier_is_missing(edited):
    last = "sum += to_float(a_tile[y][i]) * to_float(b_tile[x][i]);\n    __syncthreads();"
    row = edited("matmul/smem_tiles.cuh", (last, last.replace("__syncthreads();", "")))["smem_tiles"]
    assert "data race" in row["trouble"]


def test_words_of_a_swizzled_tile(edited):
    include = '#include "tiles/shared_words.cuh"'
    rows = edited("matmul/tensor_cores.cuh", ("Operands<RowMajorTile,", "Operands<SmemTile,"),
                  (include, include + '\n#include "tiles/swizzled_tile.cuh"'))  # fmt: skip
    assert rows["tensor_cores"]["bank_conflicts"] == 0 and "trouble" not in rows["tensor_cores"]


def test_no_swizzle(edited):
    rows = edited("tiles/swizzled_tile.cuh", ("(chunk ^ key(row)) * chunk_bytes", "chunk * chunk_bytes"))
    assert "trouble" not in rows["ldmatrix"] and rows["ldmatrix"]["bank_conflicts"] > 0


@pytest.mark.parametrize("old, new, finding", [
    ("cp_async_wait_group<pipeline_stages - 2>()", "cp_async_wait_group<pipeline_stages - 1>()", "access in flight"),
    ("__syncthreads();", "", "access in flight"),
])  # fmt: skip
def test_a_pipeline_without(edited, old, new, finding):
    assert finding in edited("matmul/cp_async.cuh", (old, new))["cp_async"]["trouble"]


def test_host_and_program_count_the_same_stages(edited):
    rows = edited("matmul/tiles.cuh", ("pipeline_stages = 3", "pipeline_stages = 2"))
    assert "host and device disagree on shared memory" in rows["cp_async"]["trouble"]
    assert "trouble" not in rows["ldmatrix"]
