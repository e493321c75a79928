"""Real multi-process jobs on the nodes of a rig, and their launchers.

    with start_torchrun(rig, rig.nodes, nproc_per_node=2) as job:
        job.wait_ready(60)
        job.ranks        # [Rank(rank=0, node="node1", pid=…), …]: the expected values for assertions

`gloo_allreduce.py` needs torch (no_torch() returns the reason if it is missing); `ring.py` and `blocked_ranks.py` do
not.
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
