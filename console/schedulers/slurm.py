"""The nodes of a Slurm job, and the job step that runs an agent on each."""

from __future__ import annotations

import re

from ..config.exec_engine import SlurmStep
from ..config.fields import HOST_PATTERN
from .command import SchedulerError, run_query

_JOB = re.compile(r"[0-9]+(_[0-9]+)?")
_TRY = "squeue --me lists your jobs"


def steps_of(job: str) -> list[tuple[str, SlurmStep]]:
    """Every node of a running job by name, in Slurm's order. Raises SchedulerError."""
    if not _JOB.fullmatch(job):
        raise SchedulerError(
            f"{job!r} is not a Slurm job id", "write slurm:1234, or slurm:1234_7 for a task of an array"
        )
    output = run_query(["squeue", "--noheader", f"--jobs={job}", "--format=%T %N"], _TRY).decode("utf-8", "replace")
    rows = [line.split() for line in output.splitlines() if line.strip()]
    if not rows:
        raise SchedulerError(f"Slurm has no pending or running job {job}", _TRY)
    if len(rows) > 1:
        raise SchedulerError(f"job {job} is an array of {len(rows)} tasks", f"name one of them: slurm:{job}_0")
    state, *nodes = rows[0]
    if state != "RUNNING" or not nodes:
        raise SchedulerError(f"job {job} is {state.lower()}; it has no nodes yet", "attach when it is running")
    return [(name, SlurmStep(job)) for name in _hosts(nodes[0], job)]


def _hosts(folded: str, job: str) -> list[str]:
    names = run_query(["scontrol", "show", "hostnames", folded], _TRY).decode("utf-8", "replace").split()
    if not names or not all(re.match(HOST_PATTERN, name) for name in names):
        raise SchedulerError(f"scontrol returned no valid node names for {folded!r} of job {job}", _TRY)
    return names


def argv(step: SlurmStep, node: str, command: str) -> list[str]:
    """The command line that runs `command` on one node of the job.

    --overlap: the step takes no resources from others and does not wait. --unbuffered: output arrives as it is written.
    It is bound to no core, and gets only the environment that it needs.
    """
    return [
        "srun", f"--jobid={step.job}", "--overlap", f"--nodelist={node}", "--nodes=1", "--ntasks=1", "--cpu-bind=none",
        "--unbuffered", "--quiet", "--export=HOME,PATH,USER", "--", "/bin/sh", "-c", command,
    ]  # fmt: skip
