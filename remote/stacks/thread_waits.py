"""What a thread waits for: the arguments of its system call, read from /proc, and the holders of the other end.

A thread in `recv` waits for the other end of a socket, one in `read` of a pipe for those that can write to it, one in
`waitpid` for a child. The descriptors are the first argument, or lie in the memory of the process (poll, select), or
in the kernel's list of an epoll descriptor. Nothing is stopped; what cannot be read is left out.
"""

import os
import stat
import threading
import time
from itertools import islice

from ..proc.activity import parse_syscall, pids_below
from ..proc.cgroups import Cgroups
from ..proc.last_run import LastRuns
from ..proc.net_tables import LISTENS, same_network, tcp_bytes, tcp_sockets, unix_peers
from ..proc.procfs import GONE, printable
from . import call_memory, file_locks
from .call_memory import EPOLLS, MAX_ENDS, MAX_PATH, POLLIN, POLLOUT, POLLS, SELECTS, is_read

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable, Iterator, Sequence, Tuple

    from ..proc.limited import Parsers
    from ..proc.net_tables import TcpSocket
    from ..proc.procfs import ProcFs

    Fields = dict[str, Any]
    Call = Tuple[str, "list[int]"]

#: Calls whose first argument is the descriptor.
_READS = frozenset(("read", "pread64", "readv", "recvfrom", "recvmsg", "accept", "accept4"))
_WRITES = frozenset(("write", "pwrite64", "writev", "sendto", "sendmsg", "sendfile", "connect"))
_LOCKS = frozenset(("flock", "fcntl", "fsync"))
#: Calls whose time is counted from their begin.
_RELATIVE = frozenset(("nanosleep", "poll"))
_SLEEPS = frozenset(("nanosleep", "clock_nanosleep"))
_MAX_SLEEP_S = 1e9
#: Calls of I/O threads, and the first letters of the names that torch, gloo and NCCL give to theirs.
_SOCKET_CALLS = EPOLLS | POLLS | SELECTS | frozenset(("recvfrom", "recvmsg", "read"))
_OF_COLLECTIVES = ("pt_", "gloo_", "NCCL", "nccl", "cuda")
_SHARED_MEMORY = ("/dev/shm/", "/memfd:")
_P_PID = 1  # waitid(): `id` is a pid
_TICK_S = 1.0 / os.sysconf("SC_CLK_TCK")
#: System calls of one process, of one sample, whose memory is read.
_MAX_CALLS = 512
#: Processes that hold one of the other ends of a wait.
MAX_HOLDERS = 16
#: TCP states (net/tcp_states.h) of a connection that is not established yet.
_CONNECTING = ("02", "03")


class Holders(object):
    """Which of the given processes hold a file, pipe or socket; their descriptors are listed once."""

    def __init__(self, procfs: "ProcFs", pids: "Iterable[int]") -> None:
        self._procfs, self._pids = procfs, sorted(set(pids))
        self._lock = threading.Lock()
        self._links: "dict[str, dict[int, str]] | None" = None
        self._shared: "list[tuple[str, dict[int, str]]] | None" = None

    def of(self, link: str, mode: str) -> "list[int]":
        """Pids that hold the object with this link (`pipe:[123]`, or a path) open for `mode`: read, write or any."""
        held = self._held().get(link, {})
        return sorted(pid for pid, modes in held.items() if mode == "any" or mode[0] in modes)

    def shared_memory(self, pid: int) -> "list[Fields]":
        """Shared memory that a process and others of the given ones have open: what they may signal each other by."""
        if self._shared is None:
            self._shared = [
                (link, held)
                for link, held in sorted(self._held().items())
                if link.startswith(_SHARED_MEMORY) and len(held) > 1
            ]
        return [
            {"kind": "memory", "path": printable(link, MAX_PATH), "pids": sorted(set(held) - {pid})[:MAX_HOLDERS]}
            for link, held in self._shared
            if pid in held
        ][:MAX_ENDS]

    def _held(self) -> "dict[str, dict[int, str]]":
        with self._lock:  # several threads read processes at a time
            if self._links is None:
                links: "dict[str, dict[int, str]]" = {}
                for pid in self._pids:
                    for link, modes in self._descriptors(pid):
                        by_pid = links.setdefault(link, {})
                        by_pid[pid] = by_pid.get(pid, "") + modes
                self._links = links
            return self._links

    def _descriptors(self, pid: int) -> "Iterator[tuple[str, str]]":
        folder = self._procfs.path(pid, "fd")
        try:
            names = os.listdir(folder)
        except OSError:
            return
        for name in names:
            path = "%s/%s" % (folder, name)
            try:
                link, mode = os.readlink(path), os.lstat(path).st_mode
            except OSError:
                continue  # closed since
            yield link, ("r" if mode & stat.S_IRUSR else "") + ("w" if mode & stat.S_IWUSR else "")


class SocketTables(object):
    """The socket tables of the processes' network namespaces, each read once."""

    def __init__(self, procfs: "ProcFs") -> None:
        self._procfs = procfs
        self._tcp: "dict[str, list[TcpSocket]]" = {}
        self._peers: "dict[int, int] | None" = None
        self._moved: "dict[int, tuple[int, float | None]] | None" = None

    def tcp(self, pid: int) -> "list[TcpSocket]":
        """All TCP sockets in the network namespace of a process."""
        try:
            network = self._procfs.link(pid, "ns/net")
        except OSError:
            return []
        if network not in self._tcp:
            self._tcp[network] = tcp_sockets(self._procfs, pid)
        return self._tcp[network]

    def unix_peer(self, pid: int, inode: int) -> "int | None":
        """The inode of the other end of a unix socket; None if unknown."""
        if not same_network(self._procfs, pid):
            return None
        if self._peers is None:
            self._peers = unix_peers()
        return self._peers.get(inode)

    def traffic(self, pid: int, inode: int) -> "tuple[int | None, float | None]":
        """(bytes that a TCP connection has moved, seconds since data arrived); None if unknown, or none arrived."""
        if not same_network(self._procfs, pid):
            return None, None
        if self._moved is None:
            self._moved = tcp_bytes()
        return self._moved.get(inode, (None, None))


class ThreadWaits(object):
    """Reads what threads wait for, for one sample of a capture. `pids`: the processes that may hold the other ends.

    `parsers` parse what the arguments of their system calls point to.
    """

    def __init__(self, procfs: "ProcFs", pids: "Iterable[int]", parsers: "Parsers") -> None:
        self._procfs, self._parsers = procfs, parsers
        self.holders = Holders(procfs, pids)
        self._tables = SocketTables(procfs)
        self._last_runs = LastRuns(procfs)
        self.cgroups = Cgroups(procfs)
        self._outer_tids: "dict[int, dict[int, int]]" = {}

    def fields(self, pid: int, inner_tids: "Sequence[int]", began: float) -> "list[Fields]":
        """Fields of `stack` records about threads: their states, system calls, and what these wait for.

        `inner_tids` are the threads' ids in their own PID namespace; `began` time.monotonic() before their stacks were
        read.
        """
        tids = [self._outer_tid(pid, inner) for inner in inner_tids]
        calls = [self._call(pid, tid) if tid is not None else None for tid in tids]
        memories = self._pointed_to(pid, calls)
        return [
            self._of_thread(pid, tid, call, memory, began) if tid is not None else {}
            for tid, call, memory in zip(tids, calls, memories)  # noqa: B905
        ]

    def _of_thread(
        self, pid: int, tid: int, call: "Call | None", memory: "call_memory.PointedTo", began: float
    ) -> "Fields":
        thread = "%d/task/%d" % (pid, tid)
        try:
            figures = self._procfs.stat(thread)
        except (OSError, ValueError, IndexError):
            return {}
        state, moved = figures.state, self._procfs.io_bytes(thread)
        slept_s = self._last_runs.slept_s(pid, tid, figures.processor) if state != "R" else None
        before_s = time.monotonic() - began
        fields: "Fields" = {
            "thread_state": state,
            "thread_wchan": self._procfs.wchan(thread) if state != "R" else None,
            "thread_syscall": call[0] if call else None,
            "thread_read_bytes": moved[0] if moved else None,
            "thread_faults": figures.faults,
            "thread_slept_s": round(slept_s - before_s, 2) if slept_s is not None and slept_s > before_s else None,
        }
        if call is not None:
            fields["waits_for"] = list(self._targets(pid, tid, call[0], call[1], memory))
            left_s = memory.time_left_s(call[0], call[1])
            if left_s is not None and call[0] in _RELATIVE:
                left_s -= slept_s or 0.0
            if left_s is not None and left_s < _MAX_SLEEP_S and self._call(pid, tid) == call:  # else it has ended
                fields["thread_wakes_in_s"] = round(max(0.0, left_s), 2)
        return fields

    def children(self, pid: int) -> "Fields":
        """Work of the processes below one: CPU time, also of those that ended, and bytes of those that live."""
        try:
            ticks = self._procfs.stat(pid).reaped_ticks
        except (OSError, ValueError, IndexError):
            return {}
        moved, below = 0, pids_below(self._procfs, pid)
        for child in below:
            try:
                figures = self._procfs.stat(child)
            except (OSError, ValueError, IndexError):
                continue  # it has ended: its parent has its time
            ticks += figures.reaped_ticks + figures.cpu_ticks
            moved += sum(self._procfs.io_bytes(child) or (0, 0))
        return {"children_cpu_s": round(ticks * _TICK_S, 2), "children_bytes": moved} if below else {}

    def native_waits(self, pid: int, python_tids: "Iterable[int]") -> "list[Fields]":
        """What the threads without a Python stack wait for on sockets, the I/O threads of libraries; and shared memory.

        Also files that another process has locked, while the main thread sleeps: it may try again and again.
        `python_tids` are ids in the PID namespace of the process. Threads of torch, gloo and NCCL are left out: they
        serve collectives, and hold a connection to every peer.
        """
        skipped = {self._outer_tid(pid, inner) for inner in python_tids}
        targets: "dict[int, Fields]" = {}
        tids = [tid for tid in sorted(self._outer_tids.get(pid, {}).values()) if tid not in skipped]
        calls = [(tid, self._call(pid, tid)) for tid in tids]
        waiting = [
            (tid, call) for tid, call in calls
            if call is not None and call[0] in _SOCKET_CALLS and not self._name(pid, tid).startswith(_OF_COLLECTIVES)
        ]  # fmt: skip
        for (tid, call), memory in zip(waiting, self._pointed_to(pid, [call for _, call in waiting])):  # noqa: B905
            if len(targets) >= MAX_ENDS:
                break
            for target in self._targets(pid, tid, call[0], call[1], memory):
                if target["kind"] in ("tcp", "unix", "listener"):
                    targets[target["fd"]] = target
        others = self.holders.shared_memory(pid)
        of_main = self._call(pid, pid)
        if of_main is not None and of_main[0] in _SLEEPS:
            others += file_locks.locked_files(self._procfs, pid)[:MAX_ENDS]
        return [targets[fd] for fd in sorted(targets)][:MAX_ENDS] + others

    def _name(self, pid: int, tid: int) -> str:
        try:
            return self._procfs.read(pid, "task/%d/comm" % tid).decode("utf-8", "replace")
        except OSError:
            return ""

    def _outer_tid(self, pid: int, inner_tid: int) -> "int | None":
        """The agent's number of a thread of a container, which numbers its own threads."""
        if pid not in self._outer_tids:
            self._outer_tids[pid] = tids = {}
            try:
                is_inner = self._procfs.status(pid).ns_pid not in (None, pid)
                for name in os.listdir(self._procfs.path(pid, "task")):
                    inner = self._procfs.status("%d/task/%s" % (pid, name)).ns_pid if is_inner else None
                    tids[inner or int(name)] = int(name)
            except (OSError, ValueError):
                pass  # gone
        return self._outer_tids[pid].get(inner_tid)

    def _call(self, pid: int, tid: int) -> "Call | None":
        try:
            return parse_syscall(self._procfs.read_at_once(pid, "task/%d/syscall" % tid))
        except (OSError, ValueError):
            return None

    def _pointed_to(self, pid: int, calls: "Sequence[Call | None]") -> "list[call_memory.PointedTo]":
        """What the arguments of each call point to, all read at once; nothing where it cannot be read."""
        memories = [call_memory.PointedTo(None) for _ in calls]
        needed = [index for index, call in enumerate(calls) if call is not None and is_read(*call)][:_MAX_CALLS]
        if needed:
            try:
                wanted = [calls[index] or ("", []) for index in needed]
                pointed = call_memory.read(self._procfs, pid, wanted, self._parsers)
            except (OSError, KeyError, ValueError):
                return memories
            for index, memory in zip(needed, pointed):  # noqa: B905
                memories[index] = memory
        return memories

    def _targets(
        self, pid: int, tid: int, call: str, args: "list[int]", memory: "call_memory.PointedTo"
    ) -> "Iterator[Fields]":
        if call in ("wait4", "waitid"):
            yield {"kind": "child", "pids": self._children(pid, tid, call, args)}
            return
        if memory.path:
            yield {"kind": "file", "direction": "any", "path": memory.path}
            return
        for fd, direction in islice(self._ends(pid, call, args, memory), MAX_ENDS):
            target = self._target(pid, fd, direction)
            if target is not None:
                yield target

    # -- descriptors ------------------------------------------------------------------------------------------------

    def _ends(
        self, pid: int, call: str, args: "list[int]", memory: "call_memory.PointedTo"
    ) -> "Iterator[tuple[int, str]]":
        if call in _READS:
            yield args[0], "read"
        elif call in _WRITES:
            yield args[0], "write"
        elif call in _LOCKS:
            yield args[0], "lock"
        elif call in EPOLLS:
            for end in self._epolled(pid, args[0]):
                yield end
        for end in memory.ends:
            yield end

    def _epolled(self, pid: int, epoll: int) -> "Iterator[tuple[int, str]]":
        try:
            lines = self._procfs.read(pid, "fdinfo/%d" % epoll).split(b"\n")
        except OSError:
            return
        for line in lines:  # tfd:        5 events:       19 data:                5  pos:0 ino:…
            words = line.split()
            if len(words) > 3 and words[0] == b"tfd:" and words[1].isdigit():
                events = int(words[3], 16)
                yield int(words[1]), "read" if events & POLLIN or not events & POLLOUT else "write"

    # -- what they lead to --------------------------------------------------------------------------------------------

    def _target(self, pid: int, fd: int, direction: str) -> "Fields | None":
        try:
            link = self._procfs.link(pid, "fd/%d" % fd)
        except OSError:
            return None  # closed since, or not ours
        if link.startswith("socket:["):
            return self._socket(pid, fd, direction, int(link[8:-1]))
        if link.startswith("pipe:["):
            return {"kind": "pipe", "fd": fd, "direction": direction, "pids": self._others(pid, link, direction)}
        if link == "anon_inode:[eventfd]":
            return {"kind": "event", "fd": fd, "direction": direction}
        if link.startswith("anon_inode:"):
            return None  # a timer has no other end
        return self._file(pid, fd, direction, link)

    def _file(self, pid: int, fd: int, direction: str, link: str) -> "Fields":
        kind, pids = "file", []  # type: tuple[str, list[int]]
        try:
            mode = os.stat(self._procfs.path(pid, "fd/%d" % fd)).st_mode if not link.startswith("/dev/") else 0
        except OSError:
            mode = 0
        if stat.S_ISFIFO(mode):
            kind, pids = "pipe", self._others(pid, link, direction)
        elif link.startswith(("/dev/pts/", "/dev/tty", "/dev/console")):
            kind = "terminal"
        elif direction == "lock":
            pids = file_locks.holders(self._procfs, pid, fd)[:MAX_HOLDERS]
        return {"kind": kind, "fd": fd, "direction": direction, "path": printable(link, MAX_PATH), "pids": pids}

    def _others(self, pid: int, link: str, direction: str) -> "list[int]":
        """The processes that can end the wait on a pipe: writers for a reader; holders of both ends if no others."""
        wanted, unwanted = ("write", "read") if direction == "read" else ("read", "write")
        holders = [other for other in self.holders.of(link, wanted) if other != pid]
        both = set(self.holders.of(link, unwanted))
        alone = [other for other in holders if other not in both]
        return (alone or holders)[:MAX_HOLDERS]

    def _socket(self, pid: int, fd: int, direction: str, inode: int) -> "Fields":
        entries = self._tables.tcp(pid)
        entry = next((entry for entry in entries if entry.inode == inode), None)
        if entry is None:
            peer = self._tables.unix_peer(pid, inode)
            pids = self.holders.of("socket:[%d]" % peer, "any") if peer else []
            if peer and pids == [pid]:
                return {"kind": "event", "fd": fd, "direction": direction}  # a pair of its own, to wake itself up
            others = [other for other in pids if other != pid][:MAX_HOLDERS]
            return {"kind": "unix", "fd": fd, "direction": direction, "pids": others}
        fields: "Fields" = {"kind": "tcp", "fd": fd, "direction": direction, "local": "%s %d" % entry.local}
        if entry.state == LISTENS:
            fields["kind"] = "listener"
            return fields
        fields["remote"] = "%s %d" % entry.remote
        fields["moved_bytes"], fields["received_ago_s"] = self._tables.traffic(pid, inode)
        fields["pids"] = [other for other in self._other_end(entry, entries) if other != pid][:MAX_HOLDERS]
        return fields

    def _other_end(self, entry: "TcpSocket", entries: "list[TcpSocket]") -> "list[int]":
        return holders_of(self.holders, entries, entry.remote, entry.local)

    def _children(self, pid: int, tid: int, call: str, args: "list[int]") -> "list[int]":
        """The processes that wait4() or waitid() waits for, as the agent numbers them."""
        try:
            words = self._procfs.read(pid, "task/%d/children" % tid).split()
            for other in os.listdir(self._procfs.path(pid, "task")):
                if other != str(tid):
                    words += self._procfs.read(pid, "task/%s/children" % other).split()
        except OSError:
            return []
        children = sorted(int(word) for word in words if word.isdigit())
        wanted = args[0] if call == "wait4" else args[1] if args[0] == _P_PID else 0
        if wanted <= 0 or wanted >= 1 << 31:
            return children[:MAX_HOLDERS]  # any child
        named = [child for child in children if self._inner_pid(child) == wanted]
        return named or children[:MAX_HOLDERS]

    def _inner_pid(self, pid: int) -> "int | None":
        try:
            return self._procfs.status(pid).ns_pid
        except GONE + (PermissionError,):
            return None


def ancestors(procfs: "ProcFs", pids: "Iterable[int]") -> "list[int]":
    """The parents of processes, their parents and so on, without init: they often hold the other ends of pipes."""
    reached = set(pids)
    parents: "list[int]" = []
    pending = sorted(reached)
    while pending:
        try:
            parent = procfs.stat(pending.pop()).ppid
        except GONE + (PermissionError, ValueError, IndexError):
            continue
        if parent > 1 and parent not in reached:
            reached.add(parent)
            parents.append(parent)
            pending.append(parent)
    return parents


def holders_of(
    holders: "Holders", entries: "list[TcpSocket]", local: "tuple[str, int]", remote: "tuple[str, int]"
) -> "list[int]":
    """Pids that hold the TCP end with these addresses; of one that waits to be accepted, those that listen for it."""
    end = next((entry for entry in entries if entry.local == local and entry.remote == remote), None)
    if end is not None and end.inode:
        return holders.of("socket:[%d]" % end.inode, "any")
    if end is None and not any(entry.remote == local and entry.state in _CONNECTING for entry in entries):
        return []
    for entry in entries:
        if entry.state == LISTENS and entry.local[1] == local[1] and entry.local[0] in (local[0], "0.0.0.0", "::"):
            return holders.of("socket:[%d]" % entry.inode, "any")
    return []
