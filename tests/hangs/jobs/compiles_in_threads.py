"""Rank 1 traces and compiles a large JAX model before each step, in threads of XLA; the others wait in all_reduce."""

import jax
import jax.numpy as jnp
from common import join, step


def reward_model(x, number):
    for layer in range(1500):
        x = jnp.sin(x @ x + layer + number) * jnp.cos(x)
    return x


rank, _ = join()
number = 0
while True:
    if rank == 1:
        number += 1
        jax.jit(reward_model, static_argnums=1).lower(jnp.ones((8, 8)), number).compile()
    step()
