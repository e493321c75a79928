"""Processes, ranks and jobs. A process is (pid, start_ticks); a rank is (job, attempt, rank)."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from .base import Count, Float, Int, Record
from .capture import StackFrame

RankState = Literal["moving", "idle", "stopped", "uninterruptible", "zombie", "unknown", "waiting", "stuck"]
RankStatus = Literal["present", "exited", "stale", "no_permission", "withdrawn"]


#: A value of a watched variable: a number if it is one, else a short text.
Watched = Int | float | str


class Process(Record, tag="process", kw_only=True):
    """A Python or GPU process, or one below a rank; on discovery, change and end.

    `program` of a Python process without a rank: `compute` has loaded libraries for GPUs, of machine learning or of
    MPI; `script` is a file of a user; `service` is anything else, such as a daemon, a notebook or a tool.
    """

    pid: Count  # process id on the node
    start_ticks: Count  # field 22 of /proc/PID/stat; with `pid` it identifies the process
    ppid: Count  # process id of the parent
    uid: Count  # user id of the process
    user: str | None = None  # name of that user
    comm: str  # name of the process, at most 15 characters
    cmdline: str | None = None  # arguments joined by spaces, at most 512 characters; None if not readable
    role: str  # rank, launcher, dataloader_worker, compile_worker, child, python, gpu
    program: Literal["compute", "script", "service"] | None = None  # of role python; None: another role, or unreadable
    part: str | None = None  # in Ray, vLLM or SGLang: `ray actor Trainer`; `… (guess)` if its title does not say so
    job: str | None = None  # job of its rank, if it belongs to one; of a launcher, job of the ranks below it
    rank: Count | None = None  # the rank it is or descends from
    has_children: bool | None = None  # of torchrun or accelerate above no rank: whether a process is below it
    gone: bool = False  # True in the last record: it has ended
    exit_code: Int | None = None  # of a launcher that ended: exit code, negative for a signal; None if unknown
    ended_at: Int | None = None  # of a launcher: when its end was seen, CLOCK_REALTIME of the node, ns


class Rank(Record, tag="rank", kw_only=True):
    """One rank of one job, on discovery, on change and on exit.

    `source` is the origin of the numbers: `environ` (at exec), `environ (live)` (set at run time), `argv`; if
    unreadable also `launcher argv (guess)`, `parent process`, `thread names`. These, mostly of other users, have
    status `no_permission`, the remedy in `reason`, and `rank` None if unknown. `stale`: left over from a restarted
    attempt; `exited`: `reason` has the exit status if known; `withdrawn`: the process is not a rank, or another one.
    """

    job: str  # id of the job
    attempt: Count = 0  # TORCHELASTIC_RESTART_COUNT or similar
    rank: Count | None  # global rank; None if unknown
    local_rank: Count | None = None  # number of the rank on its node
    world_size: Count | None = None  # number of ranks of the job
    local_world_size: Count | None = None  # ranks on its node
    group_rank: Count | None = None  # the node's number within the job
    pid: Count  # process id on the node
    start_ticks: Count  # start time of the process, in clock ticks after boot
    ns_pid: Count | None = None  # pid in the innermost PID namespace, if different
    uid: Count | None = None  # user id of the process
    gpu: str | None = None  # uuid or index, from the environment
    nccl: str | None = None  # version of the loaded NCCL, from the library's file
    launcher: str | None = None  # torchrun, slurm, openmpi, …: source of the variables
    source: str  # environ, environ (live), argv, launcher argv (guess), parent process or thread names
    status: RankStatus = "present"  # present, exited, stale, no_permission or withdrawn
    reason: str | None = None  # details of the status, with the remedy for no_permission
    exit_code: Int | None = None  # exit code of the process, negative for a signal; None if it runs or unknown
    alive_at: Int | None = None  # of an ended rank: when it was last seen alive, CLOCK_REALTIME of the node, ns
    ended_at: Int | None = None  # of an ended rank: when its end was seen, CLOCK_REALTIME of the node, ns


OutputStream = Literal["stdout", "stderr", "error_file", "file"]


class Output(Record, tag="output", kw_only=True):
    """The end of what a rank or a launcher has written, when the rank has ended or its job is diagnosed.

    `error_file` is the JSON of torch.distributed.elastic; `file` is the output of a launcher, or one that several
    processes of the node share, and then belongs to the rank `rank` only if that is not None.
    """

    job: str  # id of the job
    attempt: Count = 0  # restart attempt of the job, from 0
    rank: Count | None = None  # global rank; None for a launcher, or for an output that ranks share
    pid: Count | None  # process id on the node; None: of a job that had ended before the agent came
    start_ticks: Count | None  # start time of the process, in clock ticks after boot; None as above
    stream: OutputStream  # stdout, stderr, error_file or file
    path: str | None = None  # path of the file, as the process has it; None for a pipe or a terminal
    status: Literal["ok", "unreadable", "missing"] = "ok"  # ok, unreadable or missing
    reason: str | None = None  # why it is not readable, or which processes share it
    try_: str = ""  # the remedy, or ""
    text: str | None = None  # its end, whole lines, at most 16 KiB (`file`: 256 KiB); None: unknown, or sent elsewhere
    size: Count | None = None  # bytes of the whole file
    written_at: Int | None = None  # time of the last change of the file, CLOCK_REALTIME of the node, ns


class RankStat(Record, tag="rank_stat", kw_only=True):
    """Activity of a rank's process in the last tick.

    `state`: `moving` if CPU time (all threads) or context switches (main thread) increased, else `idle`; `stopped` for
    T and t, `uninterruptible` for D, `zombie` for Z and X, `unknown` before the second sample. `waiting` and
    `stuck` occur in records of 0.1.0.
    """

    job: str  # id of the job
    attempt: Count = 0  # restart attempt of the job, from 0
    rank: Count | None  # global rank; None if unknown
    pid: Count  # process id on the node
    start_ticks: Count  # start time of the process, in clock ticks after boot
    state: RankState  # moving, idle, stopped, uninterruptible, zombie or unknown
    proc_state: str | None = None  # the kernel's letter
    cpu_pct: Float | None = None  # CPU time of all threads, of one core, over the last tick
    rss_bytes: Count | None = None  # resident memory of the process
    threads: Count | None = None  # number of threads
    ctx_switches_s: Float | None = None  # voluntary and involuntary, main thread
    wchan: str | None = None  # kernel function it sleeps in, if readable
    slept_s: Float | None = None  # s; its main thread has not run for at least this long; only in its first record
    step: Int | None = None  # from the watched step counter; None without one
    watched: dict[str, Watched] | None = None  # [watch] locals by name, as last read; without undefined ones
    watched_at: Int | None = None  # time of that read, CLOCK_REALTIME of the node, ns


class RankSetting(Record, tag="rank_setting", kw_only=True):
    """Limits, CPUs and environment of a rank; on discovery, and on change within a minute.

    The environment is the one at exec, and has only variables of communication and of threads (NCCL_, OMP_, UCX_, …).
    """

    job: str  # id of the job
    attempt: Count = 0  # restart attempt of the job, from 0
    rank: Count | None  # global rank; None if unknown
    local_rank: Count | None = None  # number of the rank on its node
    pid: Count  # process id on the node
    start_ticks: Count  # start time of the process, in clock ticks after boot
    gpu: str | None = None  # uuid or index, from the environment
    memlock_bytes: Int | None = None  # memory that it may lock, for RDMA; -1 without a limit
    open_files: Int | None = None  # files that it may open; -1 without a limit
    open_files_pct: Float | None = None  # share of `open_files` in use, rounded down to tens
    cpus: str | None = None  # CPUs that it may run on, as 0-31,64
    environment: dict[str, str] | None = None  # those variables; None if not readable


class Place(Record, tag="place", kw_only=True):
    """Where the main thread of a rank was in the newest light sample of its stack; one per rank and sample.

    Calls into Python's standard library at the inner end do not distinguish places. Times are CLOCK_REALTIME of the
    node, ns. Nothing is sent of a rank whose stack cannot be read.
    """

    job: str  # id of the job
    attempt: Count = 0  # restart attempt of the job, from 0
    rank: Count | None  # global rank; None if unknown
    pid: Count  # process id on the node
    start_ticks: Count  # start time of the process, in clock ticks after boot
    frames: tuple[StackFrame, ...]  # innermost calls of the main thread, outermost first; without source lines
    since: Int  # the first of the consecutive samples with the same lines
    path_since: Int  # the first of the consecutive samples in the same calls; the line of the innermost may differ
    sampled: Int  # time of this sample
    samples: Count  # consecutive samples in the same calls, this one included
    slept: bool = False  # the main thread had not run since the previous sample, so its stack was not read again
    moved_bytes: Count | None = None  # by its TCP connections since the previous sample; None: none carries data


class RankTraffic(Record, tag="rank_traffic", kw_only=True):
    """Bytes that a rank exchanged in consecutive intervals of about a second, in both directions.

    Sent of one rank of each job whose steps are not watched, where the console looks for their period.
    """

    job: str  # id of the job
    attempt: Count = 0  # restart attempt of the job, from 0
    rank: Count | None  # global rank; None if unknown
    pid: Count  # process id on the node
    start_ticks: Count  # start time of the process, in clock ticks after boot
    source: Literal["tcp", "interfaces", "rdma"]  # its busiest connections, its network namespace, the busiest port
    began: Int  # CLOCK_MONOTONIC of the node, ns, when the first interval began; a whole multiple of `every_ms`
    every_ms: Annotated[int, msgspec.Meta(ge=20, le=1000)]  # length of an interval
    moved_bytes: Annotated[tuple[Count, ...], msgspec.Meta(max_length=1000)]  # by interval


JobNodeState = Literal["dispatching", "running", "completed", "failed", "stopping", "stopped"]
#: State of the whole job: `partial` has failed or stopped on some nodes and runs on others.
JobState = Literal["planned", "dispatching", "running", "completed", "failed", "stopping", "stopped", "partial"]


class Job(Record, tag="job", kw_only=True):
    """The plan of a job, as stored on one of its nodes; the same on all of them."""

    job: str  # the id, in GCONSOLE_JOB of its processes
    command: tuple[str, ...]  # the command as entered by the user
    launcher: str  # torchrun, accelerate, env
    nodes: tuple[str, ...]  # names at the console that started it, by node rank
    procs_per_node: Count  # ranks per node
    gpus_per_node: Count  # GPUs per node; 0 for a CPU job
    world_size: Count  # number of ranks of the job
    master_addr: str  # address of the rendezvous
    master_port: Count  # port of the rendezvous
    workdir: str | None = None  # working directory of the ranks; None: the home directory
    created: Int  # CLOCK_REALTIME of the console that started it, ns


class JobNode(Record, tag="job_node", kw_only=True):
    """State of a job on one node, on discovery and on change.

    `exit_code` is that of the first failed command, else 0; None if ended by a signal or unknown. `reason` has further
    details, such as the kernel's message.
    """

    job: str  # id of the job
    index: Count  # the node's rank in the job: NODE_RANK
    state: JobNodeState  # dispatching, running, completed, failed, stopping or stopped
    pid: Count | None = None  # process id of the supervisor of the commands
    start_ticks: Count | None = None  # start time of the supervisor, clock ticks after boot
    started: Int | None = None  # CLOCK_REALTIME of the node, ns
    ended: Int | None = None  # CLOCK_REALTIME of the node, ns
    exit_code: Int | None = None  # exit code of the first failed command, else 0
    signal: Count | None = None  # signal that ended it
    local_rank: Count | None = None  # local rank of the first failed command, if the launcher is env
    reason: str | None = None  # further details, such as the kernel's message
    gpus: tuple[str, ...] = ()  # assigned uuids
