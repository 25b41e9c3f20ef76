"""JAX as its tests want it, before it starts: four devices on a CPU."""

import os

import pytest

# XLA's own optimizing takes a quarter of the time, for functions that run a few times.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true "
                                   "--xla_force_host_platform_device_count=4")

jax = pytest.importorskip("jax", reason="needs JAX")
jnp = jax.numpy


@pytest.fixture(autouse=True)
def place(emulated):
    if (jax.default_backend() == "cpu") != emulated:
        pytest.skip("JAX and this library compute in different places")
