"""Scores of FlashAttention-4's tests, which are CuTe functions, as this library's texts, by name."""

import jit_attention as ja

# Array names that the texts read, in the order of the tests' aux_tensors.
_TEXTS = {
    "identity": ("return score;", ()),
    "causal": ("return q >= k ? score : -INFINITY;", ()),
    "causal_v2": ("return q - k >= 0 ? score : -INFINITY;", ()),
    "rel_bias": ("return score + float(q > k ? q - k : k - q);", ()),
    "rel_bias_x2": ("return score + 2 * float(q > k ? q - k : k - q);", ()),
    "times_two": ("return score * 2;", ()),
    "alibi": ("return score - exp2f(-float(h + 1)) * float(q > k ? q - k : k - q);", ()),
    "sliding_window": ("return q - k <= 256 && k - q <= 256 ? score : -INFINITY;", ()),
    "block_diagonal": ("return q / 64 == k / 64 ? score : -INFINITY;", ()),
    "squared": ("return score * score;", ()),
    "batch_bias": ("return score + to_float(of_batch[b]);", ("of_batch",)),
    "dual_buffer": ("return score + to_float(of_head[h]) + to_float(of_query[q]);", ("of_head", "of_query")),
    "scalar_scale_score": ("return score * scale;", ()),
    "tensor_bias_and_scalar_scale_score": ("return score * scale + to_float(of_batch[b]);", ("of_batch",)),
}


def score_of(function, aux_tensors, aux_scalars):
    """The score and the arrays that it reads, as keywords of `jit_attention.torch.attention`."""
    name = function.__name__.removeprefix("score_mod_").removesuffix("_vectorized")
    body, arrays = _TEXTS[name]
    tensors = dict(zip(arrays, aux_tensors or (), strict=True))
    constants = {"scale": float(aux_scalars[0])} if "scale" in body else {}
    types = {array: str(tensor.dtype).removeprefix("torch.") for array, tensor in tensors.items()}
    short = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
    text = ja.score.text(body, name=name, constants=constants, tensors={k: short[v] for k, v in types.items()})
    return dict(score=text, tensors=tensors)
