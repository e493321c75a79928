"""JAX: rank 0 is in a host callback of a compiled function, which reads a FIFO; the others reduce over processes."""

import os

import jax
import numpy as np
from common_plain import dead_pipe
from plain import RANK, WORLD, ready

address = f"{os.environ['MASTER_ADDR']}:{int(os.environ['MASTER_PORT']) + 160}"
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize(address, WORLD, RANK)
from jax.experimental import multihost_utils  # noqa: E402


def host_lookup(index):
    with open(dead_pipe(), "rb") as file:
        return np.frombuffer(file.read(4), np.float32)[0]


for _ in range(3):
    multihost_utils.process_allgather(np.ones(4))
ready()
if RANK == 0:
    shape = jax.ShapeDtypeStruct((), np.float32)
    jax.jit(lambda index: jax.pure_callback(host_lookup, shape, index))(1).block_until_ready()
multihost_utils.process_allgather(np.ones(4))
