"""Stacks: what one thread of one process executed at one instant of a capture, and what the kernel said of the process.

A capture reads all ranks of a job, and the processes below them, at one instant; it may look several times (samples).
"""

from __future__ import annotations

from typing import Literal

import msgspec

from .base import Count, Int, Record

StackStatus = Literal[
    "ok",  # read
    "no_permission",  # the kernel refused; `try_` has the remedy for that node
    "gone",  # it ended before or while it was read
    "timed_out",  # no answer in time, or its turn did not come before the capture's deadline
    "not_python",
    "tool_missing",  # py-spy is not on the node, or does not run there
    "unsupported_python",  # a Python whose insides py-spy does not know
    "unreadable",  # what was read made no sense, also when tried again
]


class StackFrame(msgspec.Struct, frozen=True, omit_defaults=True):
    """One call. `line` is where it stands, 0 where nobody knows."""

    function: str  # as the interpreter names it: qualified (`Thread.run`) from Python 3.11 on, bare before
    file: str  # full path as the process knows it; of a native call the library
    line: Count = 0
    source: str | None = None  # that line, of the job's own innermost call, where the node could read the file
    native: bool = False  # a call that is no Python


class Local(msgspec.Struct, frozen=True):
    """One variable that was asked for by name, and its value as text."""

    frame: Count  # index in `frames`, outermost first
    name: str
    value: str


class Stack(Record, tag="stack", kw_only=True):
    """One thread of one process in one sample of a capture; a process without a readable stack has one record too.

    Everything above `thread_id` is of the process and the same in all records of that read. `frames` is None where no
    stack was read, and also where an earlier record of the same agent and capture has it: the one with the same
    `path`. Instants are CLOCK_REALTIME of the node, ns. Deltas are since the previous sample, None in the first.
    With mode `blocking` the process stood still from `began` to `ended` at most: only native calls are read so.
    """

    capture: str  # id, the same on all nodes
    sample: Count  # from 0
    at: Int | None = None  # when the sample was to be taken; None: at once
    job: str
    attempt: Count = 0
    rank: Count | None  # of the process, or of the rank it belongs to
    pid: Count
    start_ticks: Count
    role: str = "rank"  # rank, dataloader_worker, compile_worker, child
    status: StackStatus
    reason: str | None = None  # what happened, where the status is not ok
    try_: str = ""  # what to do about it; empty where nothing can be done
    engine: str | None = None  # what read the stack: py-spy, or pystack where py-spy does not know that Python
    mode: Literal["nonblocking", "blocking"] | None = None  # nonblocking: the process ran on while it was read
    native: bool = False  # `frames` has the calls that are no Python too
    looked: Int | None = None  # when /proc was read
    began: Int | None = None  # when the engine began to read the stack
    ended: Int | None = None  # when it was done
    proc_state: str | None = None  # the kernel's letter
    wchan: str | None = None  # kernel function the main thread sleeps in, where readable
    syscall: str | None = None  # that it is in, by name or number; None while it runs, or where not readable
    cpu_s: float | None = None  # CPU time of all threads
    cpu_delta_s: float | None = None
    ctx_switches: Count | None = None  # voluntary and involuntary, main thread, since it began
    ctx_switches_delta: Count | None = None
    written_bytes: Count | None = None  # to files, pipes and sockets since it began (wchar of /proc/PID/io)
    tracer_pid: Count | None = None  # who debugs it; 0 is nobody
    thread_id: Count | None = None  # pthread's
    os_thread_id: Count | None = None  # the kernel's
    thread_name: str | None = None
    active: bool | None = None  # on a CPU, as far as the engine can tell
    gil: bool | None = None  # holds the interpreter's lock
    path: Count | None = None  # number of this stack among those of the agent in this capture
    frames: tuple[StackFrame, ...] | None = None  # outermost first
    locals: tuple[Local, ...] | None = None  # those that were asked for; None where none were
