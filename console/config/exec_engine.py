"""What already runs a site's jobs, and can run an agent beside them: the other ways to a node than SSH."""

from __future__ import annotations

import msgspec


class SlurmStep(msgspec.Struct, frozen=True, tag="slurm"):
    """A node of a Slurm job: the agent is a step of that job, beside those that train."""

    job: str  # as squeue shows it: 1234, or 1234_7 of an array


class PodExec(msgspec.Struct, frozen=True, tag="k8s"):
    """A pod: the agent is a process in its container."""

    namespace: str
    pod: str
    container: str


Engine = SlurmStep | PodExec
