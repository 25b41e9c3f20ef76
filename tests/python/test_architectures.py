"""The page of features by architecture agrees with the library."""

import pathlib
import re

import jit_attention as ja
import pytest

PAGE = pathlib.Path(__file__).parents[2] / "docs/reference/architectures.md"
ARCHS = "sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_103a", "sm_120a", "sm_121a"
HOPPER = [fields for fields in re.findall(r"^\| [^|]+ \| `(.+)` \|$", PAGE.read_text(), re.MULTILINE) if "=" in fields]
PAGED = dict(sequences_q="varlen", sequences_kv="paged", page_size=16)


def served(**fields):
    return {arch for arch in ARCHS if not ja.refusals(arch, **fields)}


def test_rows_are_of_hopper_alone():
    assert len(HOPPER) == 4
    for fields in HOPPER:
        assert served(**eval(f"dict({fields})")) == {"sm_90a"}, fields


@pytest.mark.parametrize("fields", [
    dict(head_dim=256), dict(head_dim=512), PAGED, dict(mask=ja.mask.block_mask(128, 128)), dict(sinks=True),
    dict(dropout=True), dict(dtype="fp8_e4m3"), PAGED | dict(kv_dtype="fp8_e4m3"), PAGED | dict(kv_dtype="nvfp4"),
    dict(split_keys=1024), dict(max_logit=True, mean_score=True), dict(output=ja.output.sigmoid_gate()),
    dict(out_dtype="int8", o_descale=True), dict(q_positions=True, k_positions=True),
    dict(list_block=128, sequences_q="varlen", sequences_kv="varlen", gqa_ratio=16)], ids=str)
def test_all_serve_the_rest(fields):
    assert served(**fields) == set(ARCHS)
