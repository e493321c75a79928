"""The wait-for graph outside of collectives: edges through sockets, pipes, file locks and child processes.

An edge needs both ends: what a thread's system call waits for, and which process holds the other end, on the same node
(`WaitTarget.pids`) or on another one (`Connection`). Processes below a rank stand for their rank.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from ...records import Connection, Stack, WaitTarget
from ..stacks.frame_models import FrameClass
from ..stacks.frames import CallPath

#: Files of installed packages, and of Python itself.
_INSTALLED: Final = re.compile(r"/(?:site|dist)-packages/")
_STDLIB: Final = re.compile(r"/lib/python3?[.\d]*t?/(?!(?:site|dist)-packages/)|^<frozen ")
#: Kinds whose other end is a process.
_HELD_BY_PROCESSES: Final = ("tcp", "unix", "pipe", "file", "memory")


class PeerWait(msgspec.Struct, frozen=True):
    """One edge: `rank` can end the wait, through `what`: `a socket (10.0.0.1 29500)`."""

    rank: int
    what: str
    node: str
    pid: int  # the process that holds the other end
    through: str = ""  # the call and the descriptor: `recvfrom(7), TCP 10.0.0.1:5000`


class Processes:
    """Which rank each process of the job belongs to, and the holders of connections between nodes."""

    def __init__(self, stacks: Iterable[Stack], connections: Iterable[Connection]) -> None:
        self._ranks: dict[tuple[str, int], int] = {
            (stack.node, stack.pid): stack.rank for stack in stacks if stack.rank is not None
        }
        self._holders: Mapping[tuple[str, str], list[tuple[str, int]]] = defaultdict(list)
        for connection in connections:
            for pid in connection.pids:
                self._holders[connection.local, connection.remote].append((connection.node, pid))

    def waits(self, stack: Stack) -> tuple[PeerWait, ...]:
        """The ranks, other than its own, that can end the wait of a thread; empty if unknown."""
        waits: dict[int, PeerWait] = {}
        for target in stack.waits_for or ():
            if target.kind in _HELD_BY_PROCESSES:
                for node, pid in self.holders(stack.node, target):
                    rank = self._ranks.get((node, pid))
                    if rank is not None and rank != stack.rank:
                        waits.setdefault(rank, PeerWait(rank, target_words(target), node, pid, through(stack, target)))
        return tuple(waits[rank] for rank in sorted(waits))

    def has_unknown_end(self, stack: Stack) -> bool:
        """Whether something that a thread waits for is, or may be, outside of the job."""
        for target in stack.waits_for or ():
            if target.kind == "event":
                continue
            holders = self.holders(stack.node, target)
            if not holders or any(holder not in self._ranks for holder in holders):
                return True
        return False

    def holders(self, node: str, target: WaitTarget) -> Sequence[tuple[str, int]]:
        """(node, pid) of the processes that hold the other end."""
        if target.pids:
            return [(node, pid) for pid in target.pids]
        return self._holders.get((target.remote, target.local), []) if target.kind == "tcp" else []


def waits_in_library(stack: Stack, trace: CallPath, cls: FrameClass, targets: Sequence[WaitTarget]) -> bool:
    """Whether a thread waits for an I/O thread of a library, as in ZeroMQ and gRPC: its sockets are those of that one.

    It polls an event of its own process, or it waits for a lock within a library that is not part of Python.
    """
    if cls not in ("unknown", "network_io", "python_lock") or stack.native_waits == ():
        return False
    kinds = {target.kind for target in targets}
    if kinds:
        return kinds == {"event"}
    outer = next((frame for frame in reversed(trace.frames) if not _STDLIB.search(frame.file)), None)
    return cls != "unknown" and outer is not None and _INSTALLED.search(outer.file) is not None


def through(stack: Stack, target: WaitTarget) -> str:
    """The system call of a thread, with the descriptor and the own address: `recvfrom(7), TCP 10.0.0.1:5000`."""
    if target.kind == "memory":
        return "polls"
    call = f"{stack.thread_syscall or 'wait'}({'' if target.fd is None else target.fd})"
    own = f", TCP {target.local.replace(' ', ':')}" if target.local else ""
    return f"{call}{own}"


def wanted_end(target: WaitTarget) -> tuple[str, str] | None:
    """(local, remote) of the other end of a connection to another node, as that node has it; None if not needed."""
    if target.kind != "tcp" or target.pids or not target.remote:
        return None
    return target.remote, target.local


def is_waiting_for_clients(targets: Iterable[WaitTarget]) -> bool:
    """Whether a listening socket is among what it waits for: a service without requests."""
    return any(target.kind == "listener" for target in targets)


def target_words(target: WaitTarget) -> str:
    """`a TCP connection to 10.0.0.2 41234`, `a pipe`, `a lock on /data/x`."""
    words = {
        "tcp": f"a TCP connection to {target.remote.replace(' ', ':')}", "listener": "new connections",
        "unix": "a unix socket", "pipe": f"the pipe {target.path}" if target.path else "a pipe",
        "file": f"the file {target.path}", "terminal": f"the terminal {target.path}", "event": "an event",
        "child": "a child process", "memory": f"shared memory, {target.path}",
    }  # fmt: skip
    return f"a lock on {target.path}" if target.direction == "lock" else words[target.kind]


def circles(waits: Mapping[int, frozenset[int]]) -> tuple[tuple[int, ...], ...]:
    """Sets of ranks that wait only for each other (deadlocks), each sorted.

    The strongly connected components without an edge to another component, found by Tarjan's algorithm (1972).
    """
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    components: list[frozenset[int]] = []

    def visit(start: int) -> None:
        path = [(start, iter(sorted(waits.get(start, ()))))]
        index[start] = low[start] = len(index)
        stack.append(start)
        while path:
            rank, successors = path[-1]
            following = next(successors, None)
            if following is None:
                path.pop()
                if path:
                    low[path[-1][0]] = min(low[path[-1][0]], low[rank])
                if low[rank] == index[rank]:
                    members: set[int] = set()
                    while rank not in members:
                        members.add(stack.pop())
                    components.append(frozenset(members))
            elif following not in index:
                index[following] = low[following] = len(index)
                stack.append(following)
                path.append((following, iter(sorted(waits.get(following, ())))))
            elif following in stack:
                low[rank] = min(low[rank], index[following])

    for rank in sorted(waits):
        if rank not in index:
            visit(rank)
    closed = [
        tuple(sorted(members))
        for members in components
        if len(members) > 1 and all(waits.get(member, frozenset()) <= members for member in members)
    ]
    return tuple(sorted(closed))
