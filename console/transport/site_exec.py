"""Transports by the site's engine: a step of a Slurm job, a process in a pod."""

from __future__ import annotations

import re

from ..config.model import Engine, NodeConfig, PodExec, SlurmStep
from . import errors
from .login_limiter import LoginLimiter
from .openssh import SubprocessTransport, start_limited
from .transport import Channel, Receiver

#: Error texts of srun and kubectl, the error type, and what to try.
_MEANINGS: tuple[tuple[str, type[errors.FleetError], str], ...] = (
    (r"Invalid job id|already completing or completed|Job (has )?expired", errors.JobEnded,
     "squeue --me lists yours"),
    (r"\(NotFound\)|container not found|completed pod|is not running", errors.JobEnded,
     "kubectl get pods lists them"),
    (r"not in job|Requested node configuration|Invalid node name", errors.JobEnded, "the job has other nodes now"),
    (r"\(Forbidden\)|Unauthorized", errors.NoPermission, "ask for the verb create on pods/exec in that namespace"),
    (r"Access/permission denied|Invalid account|Invalid user id", errors.NoPermission,
     "only the job's owner or an operator may add a step"),
    (r"Unable to contact slurm controller|Unable to connect to the server|was refused|i/o timeout|no such host",
     errors.ConnectionRefused, "run the command by hand to see its error"),
)  # fmt: skip


class SiteExecTransport(SubprocessTransport):
    """Runs the agent through `srun` or `kubectl`, whichever `NodeConfig.engine` names."""

    def __init__(self, limiter: LoginLimiter) -> None:
        self._limiter = limiter

    async def open(self, node: NodeConfig, command: str, receiver: Receiver) -> Channel:
        """Start the command as a job step or in a pod."""
        assert node.engine is not None
        argv = argv_of(node.engine, node.name, command)
        try:
            return await start_limited(self._limiter, None, argv, receiver, failure_of)
        except FileNotFoundError as error:
            raise errors.SiteCommand(
                f"`{argv[0]}` is not installed here", "run gconsole where the site's commands are available"
            ) from error


def argv_of(engine: Engine, node: str, command: str) -> list[str]:
    """The command line that runs shell text on a node."""
    if isinstance(engine, SlurmStep):
        return _step_argv(engine, node, command)
    return _pod_argv(engine, command)


def _step_argv(step: SlurmStep, node: str, command: str) -> list[str]:
    """The command line that runs `command` on one node of the job.

    --overlap: the step takes no resources from others and does not wait. --unbuffered: output arrives as it is written.
    It is bound to no core, and gets only the environment that it needs.
    """
    return [
        "srun", f"--jobid={step.job}", "--overlap", f"--nodelist={node}", "--nodes=1", "--ntasks=1", "--cpu-bind=none",
        "--unbuffered", "--quiet", "--export=HOME,PATH,USER", "--", "/bin/sh", "-c", command,
    ]  # fmt: skip


def _pod_argv(pod: PodExec, command: str) -> list[str]:
    """The command line that runs `command` in the pod's container."""
    return [
        "kubectl", "exec", "--stdin", f"--namespace={pod.namespace}", pod.pod, f"--container={pod.container}", "--",
        "/bin/sh", "-c", command,
    ]  # fmt: skip


def failure_of(exit_status: int | None, stderr: str) -> errors.FleetError | None:
    """The engine's own failure, or None if the agent ended."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    for pattern, kind, try_ in _MEANINGS:
        for line in lines:
            if re.search(pattern, line):
                return kind(f"scheduler: {line}", try_)
    return None
