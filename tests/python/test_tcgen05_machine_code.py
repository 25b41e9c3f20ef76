"""Counts the SASS instructions of a softmax step of forward_tcgen05 beside FlashAttention-4's. No GPU is needed."""

import collections
import importlib.util
import re
import shutil
import subprocess

import jit_attention as ja
import pytest
from others_kernels import flash_attention_4_sm100

# Instructions of FlashAttention-4 4.0.0b36, of PTX compiled by ptxas 12.9, for one tile of keys: of a softmax warp (128
# scores a lane), and of the MMA warp (both query tiles). LDTM and STTM count words of a lane.
SOFTMAX = {"LDTM": 128, "STTM": 64, "MUFU": 113, "FFMA2": 88, "FADD2": 88, "FMNMX3": 62, "FMNMX": 20, "F2FP": 64}
PRODUCT_INSTRUCTIONS = "UTCHMMA", "UTCQMMA", "UTCBAR"
PRODUCTS = {
    "forward_64": {"UTCHMMA": 24, "UTCBAR": 4},
    "forward_128": {"UTCHMMA": 32, "UTCBAR": 4},
    "fp8_128": {"UTCQMMA": 16, "UTCBAR": 4},
}
SPECS = {
    "forward_64": dict(head_dim=64),
    "forward_128": dict(head_dim=128),
    "fp8_128": dict(head_dim=128, dtype="fp8_e4m3"),
}


def tool(name):
    """A program of the CUDA toolkit, or of Triton's package."""
    found = shutil.which(name)
    triton = importlib.util.find_spec("triton")
    if found is None and triton is not None:
        found = shutil.which(f"{triton.submodule_search_locations[0]}/backends/nvidia/bin/{name}")
    return found or pytest.skip(f"needs {name}")


def disassemble(path):
    return subprocess.run([tool("nvdisasm"), path], capture_output=True, text=True, check=True).stdout


def innermost_loop(sass, marker, least):
    """Counts of opcodes in the shortest loop that has so many instructions of a kind."""
    opcodes, labels, loops = [], {}, []
    for line in sass.splitlines():
        if label := re.match(r"\s*(\.L_\w+):", line):
            labels[label[1]] = len(opcodes)
        elif instruction := re.search(r"/\*[0-9a-f]{4,}\*/\s+(?:@\S+ +)?([A-Z]\S*)([^;]*);", line):
            opcodes.append(instruction[1])
            target = re.search(r"\((\.L_\w+)\)", instruction[2])
            if instruction[1].startswith("BRA") and target and target[1] in labels:
                loops.append(opcodes[labels[target[1]]:])
    counts = collections.Counter()
    loops = [loop for loop in loops if sum(opcode.startswith(marker) for opcode in loop) >= least]
    for opcode in min(loops, key=len):
        words = re.search(r"\.x(\d+)", opcode) if opcode.startswith(("LDTM", "STTM")) else None
        counts[opcode.split(".")[0]] += int(words[1]) if words else 1
    return counts


def counts_of(sass):
    softmax, products = innermost_loop(sass, "MUFU.EX2", 64), innermost_loop(sass, ("UTCHMMA", "UTCQMMA"), 8)
    return {name: softmax[name] for name in SOFTMAX}, {name: products[name] for name in PRODUCT_INSTRUCTIONS}


def expected_of(name):
    softmax = SOFTMAX | {"STTM": 32 if name == "fp8_128" else 64}
    return softmax, {"UTCHMMA": 0, "UTCQMMA": 0} | PRODUCTS[name]


@pytest.mark.parametrize("name", SPECS)
def test_a_step_costs_what_flash_attention_4_s_does(name, tmp_path):
    kernel = ja.compile(ja.AttentionSpec(**SPECS[name]), "sm_100a")
    assert kernel.config["family"] == "forward_tcgen05"
    assert kernel.spill_bytes == 0 and kernel.registers == 128
    (tmp_path / "kernel.cubin").write_bytes(kernel.cubin)
    softmax, products = counts_of(disassemble(tmp_path / "kernel.cubin"))
    expected_softmax, expected_products = expected_of(name)
    assert products == expected_products
    for instruction, count in expected_softmax.items():
        assert abs(softmax[instruction] - count) <= 0.1 * count, (instruction, softmax[instruction], count)


@pytest.mark.parametrize("name", SPECS)
def test_the_counts_are_flash_attention_4_s(name, tmp_path):
    ptx, cubin = tmp_path / "kernel.ptx", tmp_path / "kernel.cubin"
    ptx.write_text(re.sub(r"\.version .*", ".version 8.8", flash_attention_4_sm100(name), count=1))
    assembler = tool("ptxas-blackwell")
    if "release 12.9" not in subprocess.run([assembler, "--version"], capture_output=True, text=True).stdout:
        pytest.skip("the counts are of ptxas 12.9")
    subprocess.run([assembler, "-arch=sm_100a", ptx, "-o", cubin], check=True)
    assert counts_of(disassemble(cubin)) == expected_of(name)
