"""PTX texts with random mistakes: each is refused with one sentence, or runs and gives a report. Nothing else happens.

300 texts, or 10,000 with JIT_ATTENTION_TEST_ALL=1; those of FlashAttention-4 and Triton where they are installed.
"""

import faulthandler
import pathlib
import random
import re

import jit_attention as ja
import ml_dtypes
import numpy
import pytest
from others_kernels import flash_attention_4, flash_attention_4_arguments, triton_kernels
from seeded import SEED, takes_all

EMULATOR = pathlib.Path(__file__).resolve().parents[2] / "emulator"
BLOCK_SUM = EMULATOR / "examples/block_sum.ptx"
PRODUCTS = EMULATOR / "tests/fuzz/corpus/ptx/tcgen05_products.ptx"
NUMBERS = ("0", "1", "-1", "2", "7", "31", "32", "64", "128", "4095", "65536", "1000000000", "4294967295", "4294967296",
           "18446744073709551615", "0x7fffffff", "0f7F800000", "0.5")  # fmt: skip
LONGEST = 120  #: seconds that a text may take


def with_mistakes(text, chance):
    """Lines deleted, duplicated, exchanged; numbers, registers and modifiers changed; now and then the end cut off."""
    lines = text.splitlines(keepends=True)

    def change(pattern, others):
        line = chance.randrange(len(lines))
        found = list(re.finditer(pattern, lines[line]))
        if found and others:
            place = chance.choice(found)
            lines[line] = lines[line][: place.start()] + chance.choice(others) + lines[line][place.end() :]

    for _ in range(chance.choice((1, 1, 1, 2, 3, 6))):
        if not lines:
            break
        one, other = (chance.randrange(len(lines)) for _ in range(2))
        kind = chance.randrange(100)
        if kind < 15:
            del lines[one]
        elif kind < 30:
            lines.insert(one, lines[one])
        elif kind < 45:
            lines[one], lines[other] = lines[other], lines[one]
        elif kind < 65:
            change(r"(?<![\w%$.])-?\d\w*", NUMBERS)
        elif kind < 85:
            change(r"%\w+", re.findall(r"%[\w.]+", lines[other]))
        elif kind < 97:
            change(r"\.[\w:]+", re.findall(r"\.[\w:]+", lines[other]))
        else:
            del lines[one + 1 :]
    return "".join(lines)


def made_up_arguments(kernel, text):
    """Arrays where a kernel reads addresses from its parameters, tensor maps in blocks of these, 1 elsewhere."""
    x = numpy.zeros(1 << 14, numpy.float32)
    tiles = ja.emulator.TensorMap(x.view(ml_dtypes.bfloat16).reshape(2, 4, 64, 64), box=(1, 1, 64, 64), swizzle=128)
    arguments = []
    for parameter in kernel.parameters:
        name = re.escape(parameter.name)
        offsets = {int(at or 0) for at in re.findall(rf"ld\.param\.(?:b|u)64\s+%\w+, \[{name}(?:\+(\d+))?\]", text)}
        ones = b"\1\0\0\0" * (parameter.bytes // 4 + 1)
        is_of_maps = parameter.bytes >= 128 and parameter.bytes % 64 == 0
        members = [tiles] * (parameter.bytes // 128) if is_of_maps else []
        end = 128 * len(members)
        for at in sorted(offsets):
            if at % 8 == 0 and end <= at <= parameter.bytes - 8:
                members += [ones[end:at], x]
                end = at + 8
        rest = ones[end : parameter.bytes]
        arguments.append((*members, rest))
    return arguments


def launched(text, arguments_of, block, **options):
    """"refused", or the kind of the last finding."""
    try:
        kernels = ja.emulator.load(text).kernels
        kind = "clean"
        for kernel in kernels:
            report = kernel(2, block, *arguments_of(kernel, text), step_limit=20000, **options)
            kind = report.findings[-1].kind if report.findings else "clean"
            assert all("\n" not in str(finding) for finding in report.findings)
        return kind
    except ja.InvalidArgumentError as error:
        assert "\n" not in str(error) and str(error)
        return "refused"


def go_wrong(text, count, arguments_of, block, **options):
    chance = random.Random(SEED)
    outcomes = {}
    for number in range(count):
        changed = with_mistakes(text, chance)
        faulthandler.dump_traceback_later(LONGEST, exit=True)
        try:
            kind = launched(changed, arguments_of, block, **options)
        except BaseException:
            print(f"text {number} of seed {SEED}:\n{changed}")
            raise
        finally:
            faulthandler.cancel_dump_traceback_later()
        outcomes[kind] = outcomes.get(kind, 0) + 1
    print(outcomes)
    assert outcomes.get("refused", 0) < count, "each text was refused: none ran"


COUNT = 2000 if takes_all() else 60


def test_a_kernel_of_cuda():
    x, sums = numpy.ones(512, numpy.float32), numpy.zeros(2, numpy.float32)
    go_wrong(BLOCK_SUM.read_text(), COUNT, lambda *_: (x, sums), 256)


def test_products_of_tcgen05():
    out = numpy.zeros(256, numpy.float32)
    assert launched(PRODUCTS.read_text(), lambda *_: (out,), 128) == "clean"
    go_wrong(PRODUCTS.read_text(), COUNT, lambda *_: (out,), 128)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_kernels_of_this_library(arch):
    kernel = ja.compile(ja.AttentionSpec(dtype="bf16", head_dim=64, mask=ja.mask.causal()), arch)
    go_wrong(kernel.ptx, COUNT, made_up_arguments, kernel.threads, dynamic_shared=kernel.smem_bytes)


@pytest.mark.parametrize("arch", [90, 120])
def test_a_matmul_of_triton(arch):
    ptx, shared = triton_kernels()["matmul", arch]
    a, b = numpy.zeros((128, 64), ml_dtypes.bfloat16), numpy.zeros((64, 64), ml_dtypes.bfloat16)
    c = numpy.zeros((128, 64), numpy.float32)
    go_wrong(ptx, COUNT, lambda kernel, _: (a, b, c, 128, 64, 64, *[None] * (len(kernel.parameters) - 6)), 128,
             dynamic_shared=shared)


@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a", "sm_120a"])
def test_flash_attention_4(arch):
    q, o = numpy.zeros((1, 200, 1, 64), ml_dtypes.bfloat16), numpy.zeros((1, 200, 1, 64), ml_dtypes.bfloat16)
    arguments = flash_attention_4_arguments(arch, q, q, q, o, numpy.zeros((1, 1, 200), numpy.float32), 0.125)
    threads = {"sm_90a": 384, "sm_100a": 512, "sm_120a": 128}[arch]
    shared = 98304 if arch == "sm_120a" else 232448
    go_wrong(flash_attention_4(arch)[64, False], COUNT, lambda *_: arguments, threads, dynamic_shared=shared)
