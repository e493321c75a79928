"""Real multi-process jobs on the nodes of a rig, and their launchers.

    with start_torchrun(rig, rig.nodes, nproc_per_node=2) as job:
        job.wait_ready(60)
        job.ranks        # [Rank(rank=0, node="node1", pid=…), …]: the truth to compare the product with

`gloo_allreduce.py` needs torch (no_torch() says why not), `ring.py` and `blocked_ranks.py` need nothing.
"""

from .launch import (
    TORCH_ENVIRONMENT,
    Job,
    Rank,
    find_torch_python,
    gloo_environment,
    no_torch,
    start_plain,
    start_ring,
    start_script,
    start_torchrun,
)

__all__ = [
    "TORCH_ENVIRONMENT",
    "Job",
    "Rank",
    "find_torch_python",
    "gloo_environment",
    "no_torch",
    "start_plain",
    "start_ring",
    "start_script",
    "start_torchrun",
]
