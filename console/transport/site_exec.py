"""Commands of the site's engine, their failures, and the transport by a process in a pod."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..config.model import NodeConfig, PodExec
from . import errors
from .login_limiter import LoginLimiter
from .openssh import SubprocessTransport, start_limited
from .transport import Channel, Receiver

#: Error texts of srun and kubectl, the error type, and what to try.
_MEANINGS: tuple[tuple[str, type[errors.FleetError], str], ...] = (
    (r"Invalid job id|already completing or completed|[Jj]ob (\S+ )?(has )?expired", errors.JobEnded,
     "squeue --me lists yours"),
    (r"\(NotFound\)|container not found|completed pod|is not running", errors.JobEnded,
     "kubectl get pods lists them"),
    (r"not in job|Requested node configuration|Required node not available|Invalid node name", errors.NodeNotInJob,
     "the job has other nodes now"),
    (r"Task launch for \S+ failed on node", errors.TaskNotLaunched, "check slurmd on that node"),
    (r"\(Forbidden\)|Unauthorized", errors.NoPermission, "ask for the verb create on pods/exec in that namespace"),
    (r"Access/permission denied|Invalid account|Invalid user id", errors.NoPermission,
     "only the job's owner or an operator may add a step"),
    (r"Unable to contact slurm controller|Unable to connect to the server|was refused|i/o timeout|no such host",
     errors.ConnectionRefused, "run the command by hand to see its error"),
)  # fmt: skip


class PodTransport(SubprocessTransport):
    """Runs the agent through `kubectl exec`, in the pod that `NodeConfig.engine` names."""

    def __init__(self, limiter: LoginLimiter) -> None:
        self._limiter = limiter

    async def open(self, node: NodeConfig, command: str, receiver: Receiver) -> Channel:
        """Start the command in a pod."""
        assert isinstance(node.engine, PodExec)
        argv = pod_argv(node.engine, command)
        try:
            return await start_limited(self._limiter, None, argv, receiver, failure_of)
        except FileNotFoundError as error:
            raise not_installed(argv[0]) from error


def not_installed(program: str) -> errors.SiteCommand:
    """The failure to find a program of the site."""
    return errors.SiteCommand(
        f"`{program}` is not installed here", "run gconsole where the site's commands are available"
    )


def step_argv(job: str, nodes: Sequence[str], command: str) -> list[str]:
    """The command line that runs shell text once on each of some nodes of a job, in one step.

    --overlap: the step takes no resources from others and does not wait. Each line of output is sent at once, behind
    the number of its task. A task or node that fails does not end the others. The tasks are bound to no core, and get
    only the environment that they need.
    """
    count = len(nodes)
    return [
        "srun", f"--jobid={job}", "--overlap", f"--nodelist={','.join(nodes)}", f"--nodes={count}", f"--ntasks={count}",
        "--ntasks-per-node=1", "--cpu-bind=none", "--label", "--no-kill", "--wait=0", "--kill-on-bad-exit=0", "--quiet",
        "--export=HOME,PATH,USER", "--", "/bin/sh", "-c", command,
    ]  # fmt: skip


def pod_argv(pod: PodExec, command: str) -> list[str]:
    """The command line that runs `command` in the pod's container."""
    return [
        "kubectl", "exec", "--stdin", f"--namespace={pod.namespace}", pod.pod, f"--container={pod.container}", "--",
        "/bin/sh", "-c", command,
    ]  # fmt: skip


def node_of(failure: errors.TaskNotLaunched) -> str:
    """The node that the failure names; "" if the message is another one."""
    named = re.search(r"failed on node ([^\s:]+):", failure.text)
    return named[1] if named else ""


def failure_of(exit_status: int | None, stderr: str) -> errors.FleetError | None:
    """The engine's own failure, or None if the agent ended."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    for pattern, kind, try_ in _MEANINGS:
        for line in lines:
            if re.search(pattern, line):
                return kind(f"scheduler: {line}", try_)
    return None
