#!/usr/bin/env python3
"""Time of chosen 8-bit latents beside chosen 16-bit ones, with rows that are converted where they are copied.

    bench/latent_lists_time.py
    bench/latent_lists_time.py --seconds 3 --flash-mla PATH

Queries each choose 2,048 of 131,072 latents at random: a chunk of prefill, and decoding. Medians of bursts of CUDA graphs
without a pause, in turns. "share" is the time over that of 16-bit latents; "pools" is half of the list from each of two pools,
merged. Needs a GPU and PyTorch; with --flash-mla, the folder that has FlashMLA's package flash_mla, also the time of FlashMLA's
kernel over the same rows of 656 bytes.

Exit status 2 without a GPU and for wrong arguments.
"""

import argparse
import functools
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from comparison import environment, report  # noqa: E402

PAGES, PAGE, ENTRIES = 2048, 64, 2048
SHAPES = {"prefill, 128 heads": (2048, 128), "prefill, 16 heads": (2048, 16), "decoding, 128 heads": (128, 128),
          "decoding, 16 heads": (128, 16)}
FORMATS = {"latent_656": (576, 656), "latent_584": (512, 584), "latent_528": (512, 528)}
PLAIN = "16 bits"


def calls_of(tokens, heads, flash_mla, device="cuda"):
    """{name: call} for a shape. Compiles their kernels."""
    import jit_attention as ja
    import torch

    q = {columns: torch.randn(tokens, heads, columns, device=device).bfloat16() for columns in (512, 576)}
    pages = {columns: torch.randn(PAGES, PAGE, 1, columns, device=device).bfloat16() for columns in (512, 576)}
    lists = torch.randint(PAGES * PAGE, (tokens, 1, ENTRIES), device=device, dtype=torch.int32)
    half = ENTRIES // 2
    calls = {PLAIN: functools.partial(ja.sparse.dsa, q[576], pages[576], lists),
             "512 columns": functools.partial(ja.sparse.dsa, q[512], pages[512], lists),
             "pools": functools.partial(ja.sparse.scopes, q[576], (pages[576], lists[..., :half]),
                                        (pages[576], lists[..., half:]))}
    for name, (columns, row) in FORMATS.items():
        stride = -(-PAGE * row // 576) * 576 if name == "latent_584" else PAGE * row
        memory = torch.full((PAGES, stride), 0x38, dtype=torch.uint8, device=device)  # ones with small scales
        held = memory.as_strided((PAGES, PAGE, 1, row), (stride, row, row, 1))
        calls[name] = functools.partial(ja.sparse.dsa, q[columns], held, lists, kv_dtype=name)
        if name == "latent_656" and flash_mla:
            wide = heads if heads % 64 == 0 else 64  # FlashMLA has kernels for 64 and 128 heads
            own = q[576].new_zeros(tokens, 1, wide, 576)
            metadata, _ = flash_mla.get_mla_metadata()
            calls["FlashMLA"] = functools.partial(flash_mla.flash_mla_with_kvcache, own, held, None, None, 512, metadata,
                                                  is_fp8_kvcache=True, indices=lists)
    for call in calls.values():
        call()
    return calls


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=1, metavar="S", help="for each row, at least ten rounds (1)")
    parser.add_argument("--flash-mla", type=pathlib.Path, metavar="PATH", help="folder that has the package flash_mla")
    options = parser.parse_args(arguments)
    environment.require_gpu(parser)
    from output_time import times

    flash_mla = None
    if options.flash_mla:
        sys.path.insert(0, str(options.flash_mla))
        import flash_mla
    names = ["512 columns", "pools", *FORMATS, *(["FlashMLA"] if flash_mla else [])]
    print(environment.one_line(), "", *report.table_lines([["µs", PLAIN, *(text for name in names for text in (name, "share"))]]),
          sep="\n", flush=True)
    for label, (tokens, heads) in SHAPES.items():
        us = times(calls_of(tokens, heads, flash_mla), options.seconds)
        texts = [label, f"{us[PLAIN]:.1f}", *(text for name in names for text in (f"{us[name]:.1f}", f"{us[name] / us[PLAIN]:.3f}"))]
        print("| " + " | ".join(texts) + " |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
