#!/usr/bin/env python3
"""Times the most promising configs of each family for cells of the suites of serving.

    bench/serving_configs.py --each 14 paged/b16-h32/8-kv8192-p16 engine-shapes/64q1s4k-h32/32-d96

Microseconds of CUDA graphs with a cold L2 cache, all configs of a cell in turns; the fastest three of each family.
Cells are those that bench/compare.py --list shows for paged, ragged and engine-shapes. Needs a GPU and PyTorch.

Exit status 2 without a GPU and for wrong arguments.
"""

import argparse
import concurrent.futures
import pathlib
import sys
from collections import Counter

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from comparison import environment  # noqa: E402
from comparison.serving_inputs import make_request_inputs  # noqa: E402
from comparison.suites import SUITES  # noqa: E402

CELLS = {cell.name: cell for suite in ("paged", "ragged", "engine-shapes") for cell in SUITES[suite]}
SHOWN = 3


def is_wanted(config):
    """Whether the config suits few queries."""
    family = config["family"]
    if family == "forward_split_cluster":
        return config["stages"] in (2, 3, 4)
    if family == "forward_split_kv":
        return config["row_warps"] == 1 and config["stages"] in (2, 3)
    return family == "forward_split_wgmma" and config["tile_rows"] == 64


def spec_of(cell):
    import jit_attention as ja

    fields = dict(dtype="bf16", head_dim=cell.head_dim, head_dim_v=cell.head_dim_v,
                  gqa_ratio=cell.heads_q // cell.heads_kv)
    if cell.mask == "causal":
        fields["mask"] = ja.mask.causal()
    if cell.q_sequences == "varlen":
        fields["sequences_q"] = "varlen"
    if cell.kv_sequences == "paged":
        fields.update(sequences_kv="paged", page_size=cell.page_size)
    return ja.AttentionSpec(**fields)


def candidates(spec, each):
    """Up to `each` configs of each family, in the cost model's order."""
    import jit_attention as ja

    counts, chosen = Counter(), []
    for config in filter(is_wanted, ja.candidate_configs(spec, "sm_90a")):
        counts[config["family"]] += 1
        if counts[config["family"]] <= each:
            chosen.append(config)
    return chosen


def time_cell(cell, each):
    import jit_attention as ja
    from graph_time import captured, cold_us

    inputs, spec = make_request_inputs(cell, "cuda", 1), spec_of(cell)
    q, lengths = inputs.shaped_q(cell), {}
    if cell.q_sequences == "varlen":
        lengths["cu_seqlens_q"] = inputs.cu_seqlens_q
    if cell.kv_sequences == "paged":
        lengths.update(seqused_k=inputs.seqused_k, page_table=inputs.page_table)

    def prepared(config):
        try:
            return config, ja.prepare(spec, config=config)
        except ja.Error as error:
            print(f"{cell.name} {config}: {error}")
            return None

    with concurrent.futures.ThreadPoolExecutor() as pool:
        kernels = [one for one in pool.map(prepared, candidates(spec, each)) if one]
    outputs = [kernel(q, inputs.k, inputs.v, **lengths) for _, kernel in kernels]
    graphs = [captured(lambda: kernel(q, inputs.k, inputs.v, out=out, **lengths))
              for (_, kernel), out in zip(kernels, outputs)]
    shown = Counter()
    for us, config in sorted(zip(cold_us(graphs), (config for config, _ in kernels)), key=lambda one: one[0]):
        shown[config["family"]] += 1
        if shown[config["family"]] <= SHOWN:
            words = " ".join(f"{name}={value}" for name, value in config.items())
            print(f"{cell.name} {us:.1f} us {words}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cells", nargs="+", choices=CELLS, metavar="CELL")
    parser.add_argument("--each", type=int, default=14, metavar="N", help="configs of each family (14)")
    options = parser.parse_args()
    environment.require_gpu(parser)
    import torch

    torch.manual_seed(0)
    for name in options.cells:
        time_cell(CELLS[name], options.each)


if __name__ == "__main__":
    main()
