"""The nodes of a Slurm job, and the step that an agent is on each."""

from __future__ import annotations

import re

from ..config.exec_engine import SlurmStep
from ..config.fields import HOST_PATTERN
from .command import SiteError, ask

_JOB = re.compile(r"[0-9]+(_[0-9]+)?")
_TRY = "squeue --me lists your jobs"


def steps_of(job: str) -> list[tuple[str, SlurmStep]]:
    """Every node of a running job by name, in Slurm's order. Raises SiteError."""
    if not _JOB.fullmatch(job):
        raise SiteError(f"{job!r} is no id of a Slurm job", "write slurm:1234, or slurm:1234_7 for a task of an array")
    said = ask(["squeue", "--noheader", f"--jobs={job}", "--format=%T %N"], _TRY).decode("utf-8", "replace")
    rows = [line.split() for line in said.splitlines() if line.strip()]
    if not rows:
        raise SiteError(f"Slurm has no job {job} that waits or runs", _TRY)
    if len(rows) > 1:
        raise SiteError(f"job {job} is an array of {len(rows)} tasks", f"name one of them: slurm:{job}_0")
    state, *nodes = rows[0]
    if state != "RUNNING" or not nodes:
        raise SiteError(f"job {job} is {state.lower()}, so it has no nodes to look at", "attach once it runs")
    return [(name, SlurmStep(job)) for name in _hosts(nodes[0], job)]


def _hosts(folded: str, job: str) -> list[str]:
    names = ask(["scontrol", "show", "hostnames", folded], _TRY).decode("utf-8", "replace").split()
    if not names or not all(re.match(HOST_PATTERN, name) for name in names):
        raise SiteError(f"scontrol gave no names of nodes for {folded!r}, the nodes of job {job}", _TRY)
    return names


def argv(step: SlurmStep, node: str, command: str) -> list[str]:
    """The command line that runs `command` on one node of the job, beside what runs there.

    --overlap: the step takes nothing away from the others, and waits for nothing. --unbuffered: what the agent writes
    comes as it is written. It is bound to no core, as it has to see all of them; and it gets nothing of this machine's
    environment that it does not need.
    """
    return [
        "srun", f"--jobid={step.job}", "--overlap", f"--nodelist={node}", "--nodes=1", "--ntasks=1", "--cpu-bind=none",
        "--unbuffered", "--quiet", "--export=HOME,PATH,USER", "--", "/bin/sh", "-c", command,
    ]  # fmt: skip
