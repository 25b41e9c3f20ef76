"""Error messages for calls that do not match a function's parameters: one sentence with the right keyword."""

from __future__ import annotations

import difflib
import inspect
import typing
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

Function = typing.TypeVar("Function", bound=Callable[..., Any])

#: The annotation of ``**unknown``: type checkers refuse every keyword there.
Nothing = NoReturn

#: Other libraries' names of parameters: flash-attn, PyTorch, FlashInfer, xFormers, cuDNN, JAX, Transformers, vLLM.
_OTHER_NAMES = {
    "q": ("query", "queries"),
    "k": ("key", "keys"),
    "v": ("value", "values"),
    "do": ("dout", "d_o", "grad", "grad_out", "grad_output", "grad_outputs"),
    "o": ("out", "output"),
    "lse": ("softmax_lse", "logsumexp", "stats"),
    "out": ("output", "o"),
    "dlse": ("d_lse", "grad_lse", "grad_logsumexp"),
    "softmax_scale": ("scale", "sm_scale", "attn_scale", "scaling", "softmax_factor"),
    "scale": ("softmax_scale", "sm_scale", "attn_scale", "scaling"),
    "dropout_p": ("dropout", "dropout_rate", "dropout_prob", "p"),
    "rng_state": ("seed", "generator", "philox_seed", "dropout_seed", "rng", "dropout_rng"),
    "cu_seqlens_q": ("qo_indptr", "q_indptr", "cu_seq_lens_q", "cum_seq_q", "cu_seqlens", "query_start_loc"),
    "cu_seqlens_k": ("kv_indptr", "cu_seqlens_kv", "cu_seq_lens_k", "cum_seq_k", "k_indptr"),
    "seqused_q": ("seq_len_q", "actual_seq_lens_q", "q_lens", "query_seq_lengths"),
    "seqused_k": ("cache_seqlens", "seq_len_kv", "seq_lens", "actual_seq_lens_kv", "kv_lens", "context_lens",
                  "seqused_kv", "key_value_seq_lengths"),
    "page_table": ("block_table", "block_tables", "paged_kv_indices", "kv_indices", "page_tables"),
    "cache_leftpad": ("leftpad_k", "left_pad", "leftpad"),
    "layout": ("kv_layout", "tensor_layout", "qkv_format", "data_layout"),
    "sinks": ("sink", "s_aux", "learnable_sink", "attention_sinks", "sink_token"),
    "q_descale": ("descale_q", "q_scale", "scale_q"),
    "k_descale": ("descale_k", "k_scale", "scale_k"),
    "v_descale": ("descale_v", "v_scale", "scale_v"),
    "num_splits": ("n_splits", "split_k", "kv_splits"),
    "out_dtype": ("o_dtype", "o_data_type", "output_dtype"),
    "kv_dtype": ("kv_cache_dtype", "kv_data_type"),
    "dtype": ("q_data_type", "data_type", "dtypes"),
    "cache_dtype": ("kv_cache_dtype", "kv_dtype"),
    "k_cache": ("key_cache", "paged_k_cache"),
    "v_cache": ("value_cache", "paged_v_cache"),
    "cos_sin": ("cos_sin_cache", "rotary_cos_sin"),
    "cos": ("rotary_cos",),
    "sin": ("rotary_sin",),
    "positions": ("position_ids", "pos_ids", "rope_pos"),
    "outs": ("v_a", "vs", "partial_outs", "outputs", "out_partial"),
    "lses": ("s_a", "ss", "partial_lses", "lse_partial", "logits"),
    "head_dim": ("headdim", "d", "d_qk", "head_size", "dim_head"),
    "head_dim_v": ("headdim_v", "d_v", "v_head_size"),
    "seqlen_kv": ("seqlen_k", "kv_len", "seq_len_kv"),
    "seqlen_k": ("seqlen_kv", "kv_len", "seq_len_kv"),
    "window_size_left": ("left", "window_left", "window", "window_size", "left_window_size"),
    "window_size_right": ("right", "window_right", "right_window_size"),
    "length": ("prefix_length", "prefix"),
    "cap": ("softcap", "logits_soft_cap", "soft_cap"),
    "block_size": ("BLOCK_SIZE", "sparse_block_size"),
    "arch": ("target", "sm", "compute_capability"),
    "mask": ("mask_mod",),
    "score": ("score_mod",),
}

#: Other libraries' options that this one expresses differently: the parameter and its value.
_WRITTEN_AS = {
    "causal": ("mask", "mask=jit_attention.mask.causal()"),
    "is_causal": ("mask", 'mask=jit_attention.mask.causal("top_left")'),
    "use_causal_mask": ("mask", 'mask=jit_attention.mask.causal("top_left")'),
    "use_causal_mask_bottom_right": ("mask", "mask=jit_attention.mask.causal()"),
    "window_size": ("mask", "mask=jit_attention.mask.sliding_window(left, right)"),
    "local_window_size": ("mask", "mask=jit_attention.mask.sliding_window(left, right)"),
    "window_left": ("mask", "mask=jit_attention.mask.sliding_window(window_left)"),
    "sliding_window": ("mask", "mask=jit_attention.mask.sliding_window(sliding_window - 1)"),
    "attn_mask": ("mask", "mask=jit_attention.mask.text(...) with tensors={...}, or score=jit_attention.score.bias() "
                          'with tensors={"bias": attn_mask} for numbers to add'),
    "custom_mask": ("mask", "mask=jit_attention.mask.text(...) with tensors={...}"),
    "mask_mod": ("mask", "mask=jit_attention.mask.text(...), the mask as C++"),
    "score_mod": ("score", "score=jit_attention.score.text(...), the score as C++"),
    "attn_bias": ("score", 'score=jit_attention.score.bias() with tensors={"bias": attn_bias}'),
    "bias": ("score", 'score=jit_attention.score.bias() with tensors={"bias": bias}'),
    "softcap": ("score", "score=jit_attention.score.softcap(cap)"),
    "logits_soft_cap": ("score", "score=jit_attention.score.softcap(cap)"),
    "alibi_slopes": ("score", 'score=jit_attention.score.alibi() with tensors={"alibi_slopes": alibi_slopes}'),
    "return_softmax_lse": ("return_lse", "return_lse=True"),
    "return_attn_probs": ("return_lse", "return_lse=True; probabilities are never stored"),
    "return_softmax": ("return_lse", "return_lse=True; probabilities are never stored"),
    "return_residual": ("return_lse", "return_lse=True"),
    "generate_stats": ("return_lse", "return_lse=True"),
    "top_left": ("alignment", 'alignment="top_left"'),
    "bottom_right": ("alignment", 'alignment="bottom_right"'),
    "is_neox": ("rotary_interleaved", "rotary_interleaved=not is_neox"),
    "seqlens_k": ("seqused_k", "seqused_k"),
}
_WRITTEN_AS["attention_mask"] = _WRITTEN_AS["attn_mask"]
_WRITTEN_AS.update(dict.fromkeys(
    ("heads", "num_heads", "n_heads", "heads_q", "heads_kv", "num_kv_heads", "num_qo_heads"),
    ("gqa_ratio", "gqa_ratio, the number of query heads per KV head; the number of heads is known at a call")))

#: Options of others that calls do without, and why.
_NEEDLESS = {
    **dict.fromkeys(
        ("max_seqlen_q", "max_seqlen_k", "max_seqlen_kv", "max_s_q", "max_s_kv", "max_q_len", "max_kv_len"),
        "lengths are read on the device"),
    **dict.fromkeys(("enable_gqa", "num_kv_heads", "num_qo_heads", "page_size", "batch_size"),
                    "sizes are those of the arrays"),
    **dict.fromkeys(
        ("backend", "impl", "implementation", "op", "pack_gqa", "sm_margin", "scheduler_metadata", "workspace",
         "use_fp16_qk_reduction", "allow_fp16_qk_reduction"),
        "the library chooses the kernel"),
    "deterministic": "equal inputs always give bitwise identical results",
}

_MOST_LISTED = 12


def signature_of(parameters: str) -> inspect.Signature:
    """The signature of a function with these parameters."""
    return inspect.signature(eval(f"lambda {parameters}: None"))


def wrong_call(name: str, parameters: str, count: int, keywords: Iterable[str]) -> str | None:
    """Why `count` positional arguments and these keywords do not fit; None: they fit.

    Args:
        name: The function, "attention" or "Kernel.dump".
        parameters: Its parameters, "q, k, v=None, *, mask=None".
        count: Number of positional arguments.
        keywords: Names of the keyword arguments.
    """
    known = signature_of(parameters).parameters
    positional = [p.name for p in known.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    given = list(keywords)
    for keyword in given:
        if keyword not in known:
            return _unknown(name, list(known), keyword)
    if count > len(positional):
        own = positional[positional[:1] == ["self"]:]
        if not known or not own:
            return f"{name}() takes no positional arguments"
        return (f"{name}() takes {len(own)} positional arguments ({', '.join(own)}), and "
                f"{count - len(positional) + len(own)} were given; name the others")
    for keyword in given:
        if keyword in positional[:count]:
            return f"{name}() was given {keyword} twice: by position and by name"
    missing = [p.name for p in known.values() if p.default is p.empty and p.name not in {*positional[:count], *given}]
    if missing:
        return f"{name}() needs {' and '.join([', '.join(missing[:-1]), missing[-1]] if missing[1:] else missing)}"
    return None


def hides_unknown(function: Function) -> Function:
    """Removes ``**unknown``, which `refuse_unknown` handles, from a function's signature."""
    signature = inspect.signature(function)
    parameters = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
    function.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return function


def answers_unknown(kind: type[Any]) -> None:
    """Makes a dataclass report keywords that are not its fields."""
    signature = inspect.signature(kind)

    def new(cls: type[Any], *values: Any, **fields: Any) -> Any:
        if unknown := [name for name in fields if name not in signature.parameters]:
            refuse_unknown(kind, unknown)
        return object.__new__(cls)

    setattr(kind, "__signature__", signature)
    setattr(kind, "__new__", new)


def refuse_unknown(function: Callable[..., Any], unknown: Iterable[str]) -> NoReturn:
    """Raises TypeError for the first keyword that the function lacks."""
    known = [name for name in inspect.signature(function).parameters if name not in ("self", "cls")]
    raise TypeError(_unknown(function.__qualname__, known, next(iter(unknown))))


def _unknown(name: str, known: list[str], keyword: str) -> str:
    """The message about a keyword that the function lacks."""
    known = [parameter for parameter in known if parameter != "self"]
    return f"{name}() has no argument {keyword!r}; {_advice(name, known, keyword)}"


def _advice(name: str, known: list[str], keyword: str) -> str:
    parameter, given = _WRITTEN_AS.get(keyword, ("", ""))
    if parameter in known:
        return f"give {given}"
    for parameter, others in _OTHER_NAMES.items():
        if parameter in known and keyword.lower() in map(str.lower, others):
            return f"here it is {parameter}"
    if keyword in _NEEDLESS:
        return f"leave it out: {_NEEDLESS[keyword]}"
    if close := difflib.get_close_matches(keyword.lower(), known, 1, 0.7):
        return f"did you mean {close[0]}?"
    if not known:
        return "it has none"
    if len(known) <= _MOST_LISTED:
        return f"it has {', '.join(known)}"
    return f"help(jit_attention.{name}) lists what it has"
