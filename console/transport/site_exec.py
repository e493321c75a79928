"""Transports by the site's own engine: a step of a Slurm job, a process in a pod."""

from __future__ import annotations

import re

from ..config.exec_engine import Engine, SlurmStep
from ..config.model import NodeConfig
from ..schedulers import kubernetes, slurm
from . import errors
from .login_limiter import LoginLimiter
from .openssh import SubprocessTransport, start_behind
from .transport import Channel, Receiver

#: What srun and kubectl say of a job, a pod or themselves, and what it means.
_MEANINGS: tuple[tuple[str, type[errors.FleetError], str], ...] = (
    (r"Invalid job id|already completing or completed|Job (has )?expired", errors.JobEnded,
     "squeue --me lists yours"),
    (r"\(NotFound\)|container not found|completed pod|is not running", errors.JobEnded,
     "kubectl get pods lists them"),
    (r"not in job|Requested node configuration|Invalid node name", errors.JobEnded, "the job has other nodes now"),
    (r"\(Forbidden\)|Unauthorized", errors.NoPermission, "ask for the verb create on pods/exec in that namespace"),
    (r"Access/permission denied|Invalid account|Invalid user id", errors.NoPermission,
     "only who owns a job, or an operator, may add a step to it"),
    (r"Unable to contact slurm controller|Unable to connect to the server|was refused|i/o timeout|no such host",
     errors.ConnectionRefused, "does the command work by hand?"),
)  # fmt: skip


class SiteExecTransport(SubprocessTransport):
    """Runs the agent by `srun` or `kubectl`, as `NodeConfig.engine` says."""

    def __init__(self, gate: LoginLimiter) -> None:
        self._gate = gate

    async def open(self, node: NodeConfig, command: str, receiver: Receiver) -> Channel:
        assert node.engine is not None
        argv = argv_of(node.engine, node.name, command)
        try:
            return await start_behind(self._gate, None, argv, receiver, failure_of)
        except FileNotFoundError as error:
            raise errors.SiteCommand(
                f"this machine has no `{argv[0]}` any more", "run gconsole where the site's own commands are"
            ) from error


def argv_of(engine: Engine, node: str, command: str) -> list[str]:
    """The command line that runs shell text on a node."""
    if isinstance(engine, SlurmStep):
        return slurm.argv(engine, node, command)
    return kubernetes.argv(engine, command)


def failure_of(exit_status: int | None, said: str) -> errors.FleetError | None:
    """The failure of the engine, where its words tell one; else it was the agent that ended."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    for pattern, kind, try_ in _MEANINGS:
        for line in lines:
            if re.search(pattern, line):
                return kind(f"the site says: {line}", try_)
    return None
