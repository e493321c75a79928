"""JAX on several processes; rank 1 reads a FIFO without a writer. With HEALTHY, it trains on."""

import os
import sys
import time

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

FAULTY = not os.environ.get("HEALTHY")


def read_vocabulary():
    path = f"/tmp/vocabulary-{os.getpid()}"
    os.mkfifo(path)
    with open(path) as file:
        return file.read()


jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_cpu_collectives_implementation", "gloo")
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
jax.distributed.initialize(f"{os.environ['MASTER_ADDR']}:{int(os.environ['MASTER_PORT']) + 100}", world, rank)
sharding = NamedSharding(Mesh(np.array(jax.devices()), ("data",)), PartitionSpec("data"))
batch = jax.make_array_from_callback((world * 4,), sharding, lambda _: np.ones(4, np.float32))
loss = jax.jit(lambda x: (x * 2).sum())
for number in range(10**9):
    float(loss(batch))
    if number == 5:
        sys.stdout.write(f"READY rank={rank} pid={os.getpid()}\n")
        sys.stdout.flush()
    if number == 20 and rank == 1 and FAULTY:
        read_vocabulary()
    time.sleep(0.02)
