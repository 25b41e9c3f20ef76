"""XLA custom calls and their attributes (include/jit/xla.h)."""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy

from .. import _core
from ..mask import Mask
from ..score import Score
from ..spec import AttentionSpec

_DEFAULTS = {field.name: field.default for field in dataclasses.fields(AttentionSpec)}
_SCALARS = {bool: numpy.bool_, int: numpy.int64, float: numpy.float64}


def call(kind, spec, layout, arrays, tensors, results, *, begun=(), **options):
    """The arrays of `results`, a dict of shapes and types, in its order.

    Args:
        kind: "forward" or "backward".
        spec: The spec.
        layout: The layout.
        arrays: The operands by name.
        tensors: What scores and masks read, by name.
        results: `jax.ShapeDtypeStruct` by name.
        begun: Names of results that begin as zeros, for what is not written.
        options: Other attributes.
    """
    _register()
    operands = {**arrays, **{f"tensors.{name}": array for name, array in tensors.items()}}
    if _varying(arrays["q"]):  # then all do: see `alike`
        kind_of_q = jax.typeof(arrays["q"])
        place = jax.sharding.NamedSharding(kind_of_q.sharding.mesh, jax.sharding.PartitionSpec())
        results = {name: jax.ShapeDtypeStruct(of.shape, of.dtype, sharding=place, manual_axis_type=kind_of_q.mat)
                   for name, of in results.items()}
    zeros = {name: jnp.zeros(results[name].shape, results[name].dtype) for name in results if name in begun}
    operands |= {name: _cast(array, _varying(arrays["q"])) for name, array in zeros.items()}
    aliases = {list(operands).index(name): list(results).index(name) for name in zeros}
    run = jax.ffi.ffi_call(f"jit_attention_{kind}", list(results.values()), input_output_aliases=aliases)
    return run(*operands.values(), operands=" ".join(operands), results=" ".join(results), layout=layout,
               **_attributes(spec), **{name: _scalar(value) for name, value in options.items()})


def alike(arrays):
    """The arrays by name, all made to vary over every `jax.shard_map` axis that any of them varies over."""
    axes = frozenset().union(*(_varying(array) for array in arrays.values()))
    return {name: _cast(array, axes) for name, array in arrays.items()}


def _cast(array, axes):
    missing = axes - _varying(array)
    return jax.lax.pcast(array, tuple(missing), to="varying") if missing else array


def _varying(array):
    manual = getattr(jax.typeof(array), "mat", None)
    return frozenset() if manual is None else manual.varying


def _scalar(value):
    return _SCALARS[type(value)](value)


def _attributes(spec):
    fields = {name: getattr(spec, name) for name in _DEFAULTS}
    given = {name: value for name, value in fields.items() if value is not None and value != _DEFAULTS[name]}
    texts = {}
    for name, functor in given.items():
        if isinstance(functor, (Mask, Score)):
            texts |= {f"{name}_text_{i}": _functor(text) for i, text in enumerate(functor.texts)}
    return {"spec": {name: _field(value) for name, value in given.items()}, **texts}


def _field(value):
    if isinstance(value, (Mask, Score)):
        return value.text
    return value if isinstance(value, str) else _scalar(value)


def _functor(text):
    parts = {"name": text.name, "body": text.body, "classify": text.classify, "derivative": text.derivative,
             "constants": ", ".join(f"{name} = {_constant(value)}" for name, value in text.constants.items()),
             "tensors": ", ".join(f"{name} {dtype}" for name, dtype in text.tensors.items())}
    return {name: part for name, part in parts.items() if part}


def _constant(value):
    if isinstance(value, (bool, numpy.bool_)):
        return str(bool(value)).lower()
    return repr(float(value)) if isinstance(value, (float, numpy.floating)) else repr(int(value))


@functools.cache
def _register():
    for (name, platform), handler in _core.xla_handlers().items():
        stages = ("instantiate", "initialize", "execute")
        jax.ffi.register_ffi_target(f"jit_attention_{name}", dict.fromkeys(stages, handler), platform=platform)
