"""Processes and ranks. A process is (pid, start_ticks); a rank is (job, attempt, rank): restarts reuse numbers."""

from __future__ import annotations

from typing import Literal

from .base import Count, Int, Record

RankState = Literal["moving", "idle", "stopped", "uninterruptible", "zombie", "unknown", "waiting", "stuck"]
RankStatus = Literal["present", "exited", "stale", "no_permission", "withdrawn"]


#: A value of a watched variable: a number where it is one, else a short text.
Watched = Int | float | str


class Process(Record, tag="process", kw_only=True):
    """A Python or GPU process, or one that belongs to a rank; on discovery, on change, and when it is gone."""

    pid: Count
    start_ticks: Count  # field 22 of /proc/PID/stat: with `pid` it names one process for ever
    ppid: Count
    uid: Count
    user: str | None = None
    comm: str
    cmdline: str | None = None  # arguments joined by spaces, at most 512 characters; None where unreadable
    role: str  # rank, launcher, dataloader_worker, compile_worker, child, python, gpu
    job: str | None = None
    rank: Count | None = None
    gone: bool = False


class Rank(Record, tag="rank", kw_only=True):
    """One rank of one job, on discovery, on change and on exit.

    `source` says where the numbers were read: `environ` (as at exec), `environ (live)` (set at run time), `argv`; for a
    rank that may not be read also `launcher argv (guess)`, `parent process`, `thread names`. Such a rank, mostly of
    another user, has status `no_permission`, the remedy in `reason`, and `rank` None where nothing tells the number.
    `stale` is a leftover of an attempt that was restarted; `exited` says in `reason` how it ended, as far as anybody
    could see. `withdrawn` takes a rank back: the process turned out to be none, or another one.
    """

    job: str
    attempt: Count = 0  # TORCHELASTIC_RESTART_COUNT and the like
    rank: Count | None
    local_rank: Count | None = None
    world_size: Count | None = None
    local_world_size: Count | None = None
    group_rank: Count | None = None  # the node's number within the job
    pid: Count
    start_ticks: Count
    ns_pid: Count | None = None  # the pid inside the innermost PID namespace, where it differs
    uid: Count | None = None
    gpu: str | None = None  # uuid or index, as far as the environment tells
    nccl: str | None = None  # version of the NCCL it has loaded, as far as the library's file tells
    launcher: str | None = None  # torchrun, slurm, openmpi, …: whose variables named the rank
    source: str
    status: RankStatus = "present"
    reason: str | None = None
    exit_code: Int | None = None  # of one that exited, negative for a signal; None where nobody could read it


class RankStat(Record, tag="rank_stat", kw_only=True):
    """What a rank's process did in the last tick.

    `state` is `moving` where its CPU time (of all threads) or context switches (of the main thread) advanced, `idle`
    where neither did, `stopped` for T and t, `uninterruptible` for D, `zombie` for Z and X, `unknown` before a second
    look. Captures later add `waiting` and `stuck`.
    """

    job: str
    attempt: Count = 0
    rank: Count | None
    pid: Count
    start_ticks: Count
    state: RankState
    proc_state: str | None = None  # the kernel's letter
    cpu_pct: float | None = None  # of one core, over the last tick
    rss_bytes: Count | None = None
    threads: Count | None = None
    ctx_switches_s: float | None = None  # voluntary and involuntary, main thread
    wchan: str | None = None  # kernel function it sleeps in, where readable
    step: Int | None = None  # the watched variable that counts steps; None where none is watched, or none counts them
    watched: dict[str, Watched] | None = None  # [watch] locals by name, as last read; what no call has is not in it
    watched_at: Int | None = None  # when that was, CLOCK_REALTIME of the node, ns


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
