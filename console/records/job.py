"""Jobs that gconsole itself started: what was ordered, and what became of it on each node.

Both are said by the agents, from the files that each node keeps: a console that comes later knows as much as the one
that started the job.
"""

from __future__ import annotations

from typing import Literal

from .base import Count, Int, Record

JobNodeState = Literal["dispatching", "running", "completed", "failed", "stopping", "stopped"]
#: Of the whole job, folded over its nodes: `partial` is one that failed or stopped somewhere and runs elsewhere.
JobState = Literal["planned", "dispatching", "running", "completed", "failed", "stopping", "stopped", "partial"]


class Job(Record, tag="job", kw_only=True):
    """What was ordered, as one of its nodes keeps it; the same on all of them but for the head."""

    job: str  # the id, in GCONSOLE_JOB of every process of it
    command: tuple[str, ...]  # as the person gave it
    launcher: str  # torchrun, accelerate, env
    nodes: tuple[str, ...]  # names at the console that started it, in the order of their node rank
    procs_per_node: Count
    gpus_per_node: Count
    world_size: Count
    master_addr: str
    master_port: Count
    workdir: str | None = None  # None: the home folder
    created: Int  # CLOCK_REALTIME of the console that started it, ns


class JobNode(Record, tag="job_node", kw_only=True):
    """A job on one node, on discovery and on change.

    `exit_code` is that of the command that decided (the first that failed, else 0), None where a signal ended it or
    nobody could read it; `reason` says in words what is known beyond that, such as the kernel's own line.
    """

    job: str
    index: Count  # the node's rank in the job: NODE_RANK
    state: JobNodeState
    pid: Count | None = None  # of the process that watches the commands there
    start_ticks: Count | None = None
    started: Int | None = None  # CLOCK_REALTIME of the node, ns
    ended: Int | None = None
    exit_code: Int | None = None
    signal: Count | None = None  # the number of the signal that ended it
    local_rank: Count | None = None  # of the command that decided, where the launcher is env
    reason: str | None = None
    gpus: tuple[str, ...] = ()  # uuids it was given
