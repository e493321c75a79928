"""Records of a capture: stacks, collectives and process groups."""

from __future__ import annotations

from typing import Literal

import msgspec

from .base import Count, Float, Int, Record

StackStatus = Literal[
    "ok",  # read
    "no_permission",  # denied by the kernel; `try_` has the remedy
    "gone",  # ended before or during the read
    "timed_out",  # no result before the deadline of the read or capture
    "not_python",
    "tool_missing",  # py-spy is missing on the node, or does not run
    "unsupported_python",  # not supported by py-spy
    "unreadable",  # inconsistent data, also after a retry
]


class StackFrame(msgspec.Struct, frozen=True, omit_defaults=True):
    """One stack frame. `line` is the current line, 0 if unknown."""

    function: str  # qualified (`Thread.run`) from Python 3.11 on, bare before
    file: str  # full path in the process; of a native frame the library
    line: Count = 0
    source: str | None = None  # text of the line, for the innermost frame of the job's own code, if readable
    native: bool = False  # not a Python frame
    loop: str | None = None  # head of the innermost loop around that line, if it waits for a condition


class Local(msgspec.Struct, frozen=True):
    """A requested variable and its value as text."""

    frame: Count  # index in `frames`, outermost first
    name: str
    value: str


class WaitTarget(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that the system call of a thread waits for.

    `pids` are processes of the same node, ranks and their children, that can end the wait: they hold the other end of a
    pipe or socket, another descriptor of a locked file, or are the child.
    """

    kind: Literal["tcp", "listener", "unix", "pipe", "file", "terminal", "event", "child", "memory"]
    direction: Literal["read", "write", "lock", "any"] = "any"
    fd: Count | None = None  # descriptor in the process
    local: str = ""  # own TCP address: `10.0.0.1 29500`
    remote: str = ""  # TCP address of the other end
    path: str = ""  # of a file, terminal or FIFO
    pids: tuple[Count, ...] = ()
    moved_bytes: Count | None = None  # of a TCP connection, both directions, since it began; None: unknown
    received_ago_s: Float | None = None  # s since data arrived on a TCP connection; None: none so far, or unknown


class AsyncTask(msgspec.Struct, frozen=True, omit_defaults=True):
    """One asyncio task of a thread's event loop, and what it awaits."""

    name: str
    frames: tuple[StackFrame, ...]  # of its coroutines, outermost first
    awaits: str = ""  # type of what the innermost coroutine awaits: Future, Task, …; empty: unknown, or it starts
    tasks: tuple[Count, ...] = ()  # positions of the tasks that it waits for: itself, by gather, wait or a lock
    fd: Count | None = None  # descriptor of the connection that it waits for, if known
    wakes_in_s: Float | None = None  # s; its sleep ends by itself by then; None: no sleep, or unknown
    is_main: bool = False  # the thread runs its event loop until this task ends


class Stack(Record, tag="stack", kw_only=True):
    """One thread of one process in one sample of a capture; a process without a readable stack also has one record.

    Fields above `thread_id` describe the process and are the same in all records of that read. `frames` is None if no
    stack was read, or if an earlier record of the same agent and capture with the same `path` has the frames. Times are
    CLOCK_REALTIME of the node, ns. Deltas are since the previous sample, None in the first. With mode `blocking`, used
    for native frames only, the process was paused from `began` to `ended` at most.
    """

    capture: str  # id, the same on all nodes
    sample: Count  # from 0
    at: Int | None = None  # scheduled time of the sample; None: immediately
    job: str  # id of the job
    attempt: Count = 0  # restart attempt of the job, from 0
    rank: Count | None  # global rank of the process, or of its parent
    pid: Count  # process id on the node
    start_ticks: Count  # start time of the process, in clock ticks after boot
    role: str = "rank"  # rank, dataloader_worker, compile_worker, child; peer: outside of the job, ranks wait for it
    status: StackStatus  # ok, or why the stack was not read: no_permission, gone, timed_out, …
    reason: str | None = None  # why there is no stack, if the status is not ok
    try_: str = ""  # the remedy, or ""
    engine: str | None = None  # py-spy, or pystack if py-spy does not support that Python
    mode: Literal["nonblocking", "blocking"] | None = None  # nonblocking: the process was not paused
    native: bool = False  # `frames` include native frames
    looked: Int | None = None  # when /proc was read
    began: Int | None = None  # start of the stack read
    ended: Int | None = None  # end of the stack read
    proc_state: str | None = None  # the kernel's letter
    wchan: str | None = None  # kernel function the main thread sleeps in, if readable
    syscall: str | None = None  # current system call, by name or number; None while running, or if not readable
    cpu_s: Float | None = None  # CPU time of all threads
    cpu_delta_s: Float | None = None  # CPU time since the previous sample
    ctx_switches: Count | None = None  # voluntary and involuntary, main thread, since it began
    ctx_switches_delta: Count | None = None  # context switches of the main thread since the previous sample
    written_bytes: Count | None = None  # to files, pipes and sockets since it began (wchar of /proc/PID/io)
    tracer_pid: Count | None = None  # pid of its debugger; 0: none
    frozen: bool | None = None  # its cgroup is frozen; None: not read
    throttled_s: Float | None = None  # time for which the CPU quota of its cgroup has throttled it so far
    memory_stalled_s: Float | None = None  # time for which all of its cgroup waited for memory so far (PSI)
    memory_limit_hits: Count | None = None  # how often its cgroup has reached a memory limit so far
    children_cpu_s: Float | None = None  # CPU time of the processes below it, also of those that ended
    children_bytes: Count | None = None  # read and written by the processes below it that live
    swapped_bytes: Count | None = None  # memory of the process that is swapped out
    thread_id: Count | None = None  # pthread's
    os_thread_id: Count | None = None  # the kernel's
    thread_name: str | None = None  # name of the thread
    thread_state: str | None = None  # the kernel's letter for this thread
    thread_wchan: str | None = None  # kernel function this thread sleeps in
    thread_syscall: str | None = None  # system call of this thread, by name or number
    thread_slept_s: Float | None = None  # s; it had not run for at least this long when its stack was read
    thread_wakes_in_s: Float | None = None  # s; its sleep, or wait for a lock, ends by itself by then; None: no limit
    thread_read_bytes: Count | None = None  # read by this thread since it began (rchar of its /proc io file)
    thread_faults: Count | None = None  # page faults of this thread since it began
    waits_for: tuple[WaitTarget, ...] | None = None  # what its system call waits for; None: not read, or in none
    native_waits: tuple[WaitTarget, ...] | None = None  # main thread: sockets of threads without Python; shared memory
    active: bool | None = None  # running on a CPU, as reported by the engine
    gil: bool | None = None  # holds the GIL
    path: Count | None = None  # number of this stack within the agent and capture
    frames: tuple[StackFrame, ...] | None = None  # outermost first
    tasks: tuple[AsyncTask, ...] | None = None  # of the event loop that this thread runs; None: not requested or read
    locals: tuple[Local, ...] | None = None  # the requested variables; None if none were requested


class Connection(Record, tag="connection", kw_only=True):
    """Processes of a node that hold the other end of a TCP connection of another node, as a capture asked.

    `local` and `remote` are those of the holder. Of a connection that was not accepted yet, the listening processes.
    """

    capture: str  # id, the same on all nodes
    local: str  # TCP address of this end: `10.0.0.1 29500`
    remote: str  # TCP address of the other end
    pids: tuple[Count, ...]  # process ids on the node


CollectiveSource = Literal[
    "worker_server",  # Flight Recorder of a rank, through its torch.distributed worker server
    "fr_dump",  # a Flight Recorder dump file
    "ras",  # NCCL's RAS service
    "nccl_log",  # COLL lines of NCCL_DEBUG=INFO
    "inspector",  # NCCL Inspector: completed operations only
]

FlightStatus = Literal[
    "ok",
    "no_permission",  # denied by the kernel, or owned by another user
    "gone",  # the rank ended before or during the read
    "timed_out",
    "refused",  # no reply, or an error reply
    "unreadable",  # inconsistent data
    "stale",  # a file from before the rank was started
    "elsewhere",  # in another network namespace, or of another job
]


class Collective(Record, tag="collective", kw_only=True):
    """One operation of one rank, as a source recorded it.

    `collective_seq_id` counts the collectives of a group; `p2p_seq_id` those of a pair of ranks; for
    Inspector, the operations of one name within the group. Times are CLOCK_REALTIME of the node, ns. A rank waits in an
    operation while `retired` is False; gloo never changes `state` from `scheduled`.
    """

    capture: str  # id, the same on all nodes
    source: CollectiveSource  # worker_server, fr_dump, ras, nccl_log or inspector
    job: str  # id of the job
    attempt: Count = 0  # restart attempt of the job, from 0
    rank: Count | None  # global rank in the job; None if unknown
    pid: Count | None = None  # process id on the node
    start_ticks: Count | None = None  # start time of the process, in clock ticks after boot
    read_at: Int | None = None  # time of the read, or of the last write to its file; None: unknown
    version: str | None = None  # version of the source's format
    record_id: Count | None = None  # counts all operations of the process
    pg_id: Count | None = None  # number of the group within the process; differs between ranks
    process_group: tuple[str, str] | None = None  # name and description; the name is the same on all ranks
    group_rank: Count | None = None  # the rank within the group, if reported
    group_size: Count | None = None  # number of ranks in the group
    collective_seq_id: Count | None = None  # number of the collective within its group
    p2p_seq_id: Count | None = None  # number of the operation between this pair of ranks
    op_id: Count | None = None  # number of the operation within its group, p2p included
    is_earlier: bool = False  # before the newest of its group, and not sent by an earlier capture: for statistics
    profiling_name: str  # `nccl:all_reduce`, `nccl:send 1->2` (ranks of the group), `gloo:barrier`, `nccl:AllReduce`
    is_p2p: bool = False  # True for a send or receive
    input_sizes: tuple[tuple[Count, ...], ...] | None = None  # shapes of the first tensors
    output_sizes: tuple[tuple[Count, ...], ...] | None = None  # shapes of the first output tensors
    input_dtypes: tuple[str, ...] | None = None  # data types of the first input tensors
    output_dtypes: tuple[str, ...] | None = None  # data types of the first output tensors
    input_numel: Count | None = None  # elements of all tensors together
    output_numel: Count | None = None  # elements of all output tensors together
    msg_size_bytes: Count | None = None  # size of the message as reported by the source
    state: str | None = None  # scheduled, started, completed
    retired: bool | None = None  # True when finished; None if not reported
    time_created_ns: Int | None = None  # when it was enqueued
    time_discovered_started_ns: Int | None = None  # when the watchdog saw it started
    time_discovered_completed_ns: Int | None = None  # when the watchdog saw it completed
    duration_ms: Float | None = None  # on the device; with TORCH_NCCL_ENABLE_TIMING
    red_op: str | None = None  # reduction: sum, prod, max, min, avg or custom; in NCCL's log
    stream: str | None = None  # address of the CUDA stream in its process; in NCCL's log
    busbw_gbs: Float | None = None  # bus bandwidth reported by Inspector, GB/s
    timeout_ms: Count | None = None  # the group's timeout
    thread_name: str | None = None  # thread that enqueued it
    frames: tuple[StackFrame, ...] | None = None  # call stack, outermost first; not in JSON dumps


class PgStatus(Record, tag="pg_status", kw_only=True):
    """Progress of one process group on one rank; without a group, why an existing source returned no data.

    RAS records describe ranks of the whole job, identified by `host` and pid. `last_*` are sequence numbers of
    collectives, None before the first.
    """

    capture: str  # id, the same on all nodes
    source: CollectiveSource  # worker_server, fr_dump, ras, nccl_log or inspector
    job: str  # id of the job
    attempt: Count = 0  # restart attempt of the job, from 0
    rank: Count | None  # global rank; None if unknown
    pid: Count | None = None  # RAS: in the PID namespace of that rank
    start_ticks: Count | None = None  # start time of the process, in clock ticks after boot
    status: FlightStatus = "ok"  # ok, no_permission, gone, timed_out, refused, unreadable, stale or elsewhere
    reason: str | None = None  # why there is no status, or which part was omitted
    try_: str = ""  # the remedy, or ""
    read_at: Int | None = None  # time of the read, or of the last write to its file; None: unknown
    took_ns: Count | None = None  # from the request to the last byte
    size_bytes: Count | None = None  # size of the data that were read
    version: str | None = None  # version of the source's format
    pg_id: Count | None = None  # number of the group within the process; differs between ranks
    process_group: tuple[str, str] | None = None  # name and description; the name is the same on all ranks
    ranks: tuple[Count, ...] | None = None  # members, as ranks of the job; None: not reported
    last_enqueued_collective: Count | None = None  # sequence number of the newest enqueued collective
    last_started_collective: Count | None = None  # sequence number of the newest started collective
    last_completed_collective: Count | None = None  # sequence number of the newest completed collective
    oldest_record_id: Count | None = None  # above 0: the buffer has wrapped, and older operations are lost
    entries: Count | None = None  # operations in the buffer
    entries_sent: Count | None = None  # operations sent as `collective` records
    group_rank: Count | None = None  # the rank within the group, if reported
    group_size: Count | None = None  # number of ranks in the group
    host: str | None = None  # RAS only: address of that rank's node
    op_counts: dict[str, Count] = msgspec.field(default_factory=dict)  # RAS only: operations launched, by name
    group_state: str | None = None  # RAS only: running, init, finalize, abort, unresponsive, considered_dead, error N
