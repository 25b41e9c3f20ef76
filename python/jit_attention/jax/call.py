"""The operation of XLA that calls this library, and what it does when it runs."""

import ast
import functools

import jax
import jax.numpy as jnp

from .. import attention, attention_backward
from .._written import read
from . import ffi

_TARGET = "jit_attention"


def call(kind, problem, arrays, tensors, results, zeros=()):
    """The arrays of `results`, a dict of shapes and types, in its order. Those named in `zeros` begin as zeros, for
    what is not written. `kind`: "forward" or "backward"; the operands are `arrays`, and `tensors`, which scores and
    masks read."""
    _register()
    begun = {name: jnp.zeros(results[name].shape, results[name].dtype) for name in results if name in zeros}
    operands = [*arrays.values(), *tensors.values(), *begun.values()]
    first = len(arrays) + len(tensors)
    aliases = {first + i: list(results).index(name) for i, name in enumerate(begun)}
    names = repr((kind, tuple(arrays), tuple(tensors), tuple(results)))
    run = jax.ffi.ffi_call(_TARGET, list(results.values()), input_output_aliases=aliases)
    return run(*operands, problem=problem, names=names)


@functools.cache
def _register():
    for platform, has_stream in (("cpu", False), ("CUDA", True)):
        jax.ffi.register_ffi_target(_TARGET, ffi.handler(_run, has_stream), platform=platform)


_names = functools.lru_cache(maxsize=1024)(ast.literal_eval)


def _run(operands, results, attributes, stream):
    kind, arrays, tensors, outputs = _names(attributes["names"])
    mask, score, softmax_scale, layout, deterministic, _ = read(attributes["problem"])
    given = dict(zip(arrays, operands))
    read_by_name = dict(zip(tensors, operands[len(arrays):]))
    made = dict(zip(outputs, results))
    common = dict(mask=mask, score=score, softmax_scale=softmax_scale, layout=layout, tensors=read_by_name,
                  stream=stream)
    if kind == "forward":
        attention(**given, **common, out=made["o"], return_lse=made["lse"],
                  zero_padding=any(name in given for name in ("cu_seqlens_q", "seqused_q")))
        return
    gradients = {name: made.pop(name) for name in ("dq", "dk", "dv")}
    attention_backward(**given, **common, **gradients, deterministic=deterministic, d_sinks=made.pop("d_sinks", None),
                       d_tensors={name.removeprefix("d_"): array for name, array in made.items()} or None)
