"""The tiles that a mask leaves, from Python."""

import xml.dom.minidom

import jit_attention as ja
import numpy
import pytest


def test_texts_skip_the_tiles_that_built_in_masks_skip():
    text = ja.mask.text("return k <= q + seqlen_kv - seqlen_q && q + seqlen_kv - seqlen_q - k <= 100;", name="near")
    sizes = {"seqlen_q": 700, "seqlen_kv": 1000, "tile_q": 64, "tile_kv": 48}
    shown = ja.tile_map(text, **sizes)
    assert shown.classes == ja.tile_map(ja.mask.causal() & ja.mask.sliding_window(100), **sizes).classes
    assert sum(shown.counts.values()) == 11 * 21 and shown.counts["empty"] > 0
    assert shown.computed_share == 1 - shown.counts["empty"] / 231 and shown.notes == []
    xml.dom.minidom.parseString(shown._repr_svg_())
    assert repr(shown).startswith("TileMap(text(near): ")
    assert text.show(**sizes)._repr_svg_() == shown._repr_svg_()


def test_texts_read_arrays_of_one_entry():
    mask = ja.mask.text("return k < lengths[b] && h != 1;", name="m", tensors={"lengths": "int32"})
    lengths = numpy.array([10, 64], numpy.int32)
    sizes = {"seqlen_q": 64, "seqlen_kv": 128, "batch": 2, "heads_q": 2, "tile_q": 64, "tile_kv": 32}
    assert ja.tile_map(mask, entry=0, tensors={"lengths": lengths}, **sizes).classes == [["partial"] + 3 * ["empty"]]
    assert ja.tile_map(mask, entry=1, tensors={"lengths": lengths}, **sizes).classes == [2 * ["full"] + 2 * ["empty"]]
    assert ja.tile_map(mask, head=1, tensors={"lengths": lengths}, **sizes).counts["empty"] == 4
    for tensors, field in [({}, "lengths"), ({"lengths": numpy.zeros(8, numpy.int32)[::4]}, "lengths")]:
        with pytest.raises(ja.errors.InvalidArgumentError) as caught:
            ja.tile_map(mask, tensors=tensors, **sizes)
        assert caught.value.field == field


def test_what_is_not_followed_says_why():
    shown = ja.tile_map(ja.mask.text("for (;;) return q > k;", name="m"), seqlen_q=100, seqlen_kv=100)
    assert shown.counts == {"full": 0, "partial": 1, "empty": 0}
    assert "line 1: loops are not followed" in shown.notes[0]


def test_scores_drop_what_they_make_infinite():
    sizes = {"seqlen_q": 700, "seqlen_kv": 1000, "tile_q": 64, "tile_kv": 48}
    score = ja.score.text("return k <= q + seqlen_kv - seqlen_q ? 2 * score : -INFINITY;", name="s")
    near = ja.mask.sliding_window(100)
    shown = ja.tile_map(near, score=score, **sizes)
    assert shown.classes == ja.tile_map(ja.mask.causal() & near, **sizes).classes
    assert ja.tile_map(score=score, **sizes).counts == ja.tile_map(ja.mask.causal(), **sizes).counts
    assert ja.tile_map(score=score.then(ja.score.softcap(3.0)), **sizes).counts["empty"] == 0
    assert "score text(s)" in repr(shown)
