"""The wait-for graph outside of collectives: edges through sockets, pipes, file locks and child processes.

An edge needs both ends: what a thread's system call waits for, and which process holds the other end, on the same node
(`WaitTarget.pids`) or on another one (`Connection`). Processes below a rank stand for their rank.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
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
    via: str = ""  # the process outside of the job that waits for it in turn: `process 4242 on node00`


ProcessId = tuple[str, int]  # (node, pid)


class Processes:
    """Which rank each process of the job belongs to, the holders of connections between nodes, and the peers.

    A peer is a process outside of the job that ranks wait for, such as a controller. `peer_waits` is what each waits
    for, as far as it was read.
    """

    def __init__(
        self,
        stacks: Iterable[Stack],
        connections: Iterable[Connection],
        peer_waits: Mapping[ProcessId, Sequence[WaitTarget]] = MappingProxyType({}),
    ) -> None:
        self._ranks: dict[ProcessId, int] = {
            (stack.node, stack.pid): stack.rank for stack in stacks if stack.rank is not None
        }
        self._peer_waits = peer_waits
        self._holders: Mapping[tuple[str, str], list[ProcessId]] = defaultdict(list)
        for connection in connections:
            for pid in connection.pids:
                self._holders[connection.local, connection.remote].append((connection.node, pid))

    def waits(self, stack: Stack) -> tuple[PeerWait, ...]:
        """The ranks, other than its own, that can end the wait of a thread; empty if unknown."""
        waits: dict[int, PeerWait] = {}
        for target, holder in self._ends(stack):
            is_peer = holder not in self._ranks
            for process in self._ranks_behind(holder, (stack.node, stack.pid)) or ():
                rank = self._ranks[process]
                if rank != stack.rank:
                    via = f"process {holder[1]} on {holder[0]}" if is_peer else ""
                    what, call = target_words(target), through(stack, target)
                    waits.setdefault(rank, PeerWait(rank, what, *process, call, via))
        return tuple(waits[rank] for rank in sorted(waits))

    def has_unknown_end(self, stack: Stack) -> bool:
        """Whether something that a thread waits for is, or may be, outside of the job."""
        for target in stack.waits_for or ():
            if target.kind == "event":
                continue
            holders = self.holders(stack.node, target)
            waiter = (stack.node, stack.pid)
            if not holders or any(self._ranks_behind(holder, waiter) is None for holder in holders):
                return True
        return False

    def peers(self, stack: Stack) -> tuple[ProcessId, ...]:
        """The processes outside of the job, if known, that hold the other ends of what a thread waits for."""
        return tuple(sorted({holder for _, holder in self._ends(stack) if holder not in self._ranks}))

    def holders(self, node: str, target: WaitTarget) -> Sequence[ProcessId]:
        """(node, pid) of the processes that hold the other end."""
        if target.pids:
            return [(node, pid) for pid in target.pids]
        return self._holders.get((target.remote, target.local), []) if target.kind == "tcp" else []

    def _ends(self, stack: Stack) -> Iterator[tuple[WaitTarget, ProcessId]]:
        for target in stack.waits_for or ():
            if target.kind in _HELD_BY_PROCESSES:
                for holder in self.holders(stack.node, target):
                    yield target, holder

    def _ranks_behind(self, holder: ProcessId, waiter: ProcessId) -> Sequence[ProcessId] | None:
        """The processes of ranks that can end a wait for `holder`: itself, or those that it waits for in turn.

        None if that is unknown: a peer that also waits for the waiter, or for new clients, has nothing to do for it.
        """
        reached: list[ProcessId] = []
        visited: set[ProcessId] = set()
        pending = [holder]
        while pending:
            process = pending.pop()
            if process in visited:
                continue
            visited.add(process)
            if process in self._ranks:
                reached.append(process)
                continue
            targets = self._peer_waits.get(process, ())
            ends = [end for target in targets for end in self.holders(process[0], target)]
            if not ends or waiter in ends or is_waiting_for_clients(targets):
                return None
            pending += ends
        return reached


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
