"""Profiles: stacks of the main thread of every rank for some seconds, and what the kernel counted meanwhile.

py-spy samples each rank without stopping it, in blocks, so that the spread between blocks is known. Above its share of
CPU time, the later blocks are sampled half as often.
"""

import os
import resource
import threading
import time

from ..agent import commands
from ..agent.binaries import PY_SPY
from ..proc import apart, limited
from ..proc.activity import parse_syscall
from ..proc.cgroups import Cgroups
from ..proc.procfs import ProcFs, printable
from ..proc.threads import Thread
from . import py_spy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..agent.agent import Agent
    from ..samplers.process_snapshot import RankRef

    Fields = dict[str, Any]

#: Seconds and samples per second of the two commands, and the share of this node's CPU time for the first of them.
BLOCK_S, RATES, MAX_SHARE = 2, (20, 10), 0.05
MAX_BLOCKS, MAX_RANKS = 30, 64
#: Distinct stacks kept per block, the most frequent ones, and characters of one.
MAX_STACKS, MAX_STACK = 200, 8000
#: Seconds that py-spy may take to start and end, beyond its block.
GRACE_S = 8.0
#: Calls that wait for the other end of a connection, and those that do so on a socket.
_NETWORK = frozenset(("recvfrom", "recvmsg", "sendto", "sendmsg", "connect", "accept", "accept4"))
_STREAM = frozenset(("read", "readv", "write", "writev"))
_numa_nodes: "dict[int, int]" = {}  # by processor


class ProfileOf(object):
    """One rank: its stacks per block; of its main thread, looks, those that found it in state D or waiting for the
    network (of those with a known system call), and NUMA moves."""

    def __init__(self, rank: "RankRef") -> None:
        self.rank = rank
        self.blocks: "list[list[list[Any]]]" = []
        self.problem = ""
        self.looks = self.blocked = self.moves = self.calls = self.networked = 0
        self.numa: "int | None" = None


def run_profile(agent: "Agent", args: "Fields") -> "Fields":
    """{"ranks", "cpu_s", "wall_s"}: a profile of every rank of this node, or of those of `jobs`."""
    blocks, jobs = args.get("blocks"), args.get("jobs")
    if not isinstance(blocks, int) or not 1 <= blocks <= MAX_BLOCKS or not (jobs is None or isinstance(jobs, list)):
        raise ValueError("blocks is not a number from 1 to %d, or jobs no list" % MAX_BLOCKS)
    agent.on_end(commands.end_all)
    seen, blob = agent.context.shared.get("processes"), agent.blobs.path(PY_SPY)
    ranks = [rank for rank in (seen.ranks if seen else ()) if jobs is None or rank.job in jobs][:MAX_RANKS]
    profiles, procfs = [ProfileOf(rank) for rank in ranks], ProcFs()
    before = [_counters(procfs, rank.pid) for rank in ranks]
    began, rate, cpu_s = time.monotonic(), RATES[0], 0.0
    ended = threading.Event()
    watcher = Thread(target=_watch, args=(procfs, profiles, ended), name="gconsole-profile")
    watcher.start()
    try:
        for _ in range(blocks if blob else 0):
            used_s = _block(blob or "", profiles, rate)
            cpu_s += used_s
            if used_s > MAX_SHARE * BLOCK_S * len(os.sched_getaffinity(0)):
                rate = RATES[1]
    finally:
        ended.set()
        watcher.join()
    wall_s = time.monotonic() - began
    if not blob:
        for profile in profiles:
            profile.problem = agent.blobs.problem(PY_SPY) or "py-spy is still being uploaded"
    return {
        "ranks": [
            {
                "job": rank.job, "attempt": rank.attempt, "rank": rank.rank, "pid": rank.pid, "gpu": rank.gpu,
                "blocks": profile.blocks, "problem": profile.problem,
                "counters": dict(
                    _difference(first, _counters(procfs, rank.pid)), numa_moves=float(profile.moves),
                    uninterruptible_s=wall_s * profile.blocked / profile.looks if profile.looks else None,
                    network_wait_s=wall_s * profile.networked / profile.calls if profile.calls else None,
                ),
            }
            for rank, profile, first in zip(ranks, profiles, before)  # noqa: B905 - Python 3.6
        ],
        "cpu_s": round(cpu_s, 3), "wall_s": round(wall_s, 3),
    }  # fmt: skip


def _block(blob: str, profiles: "list[ProfileOf]", rate: int) -> float:
    """Sample all ranks for one block; the CPU time that this took, seconds."""
    began = resource.getrusage(resource.RUSAGE_CHILDREN)
    workers = [Thread(target=_sample, args=(blob, profile, rate)) for profile in profiles]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - began.ru_utime - began.ru_stime


def _sample(blob: str, profile: "ProfileOf", rate: int) -> None:
    name = "py_spy_record" if rate == RATES[0] else "py_spy_record_slowly"
    try:
        user = py_spy.user_of(profile.rank.pid)
        status, out, err = commands.run_apart(name, BLOCK_S + GRACE_S, blob=blob, pid=profile.rank.pid, user=user)
    except (OSError, commands.CommandTimeout, commands.OutputTooLong, py_spy.StackError) as error:
        profile.problem = "py-spy: %s" % error
        return
    try:
        stacks = _stacks(out, (profile.rank.pid, profile.rank.ns_pid), user is not None and user.is_other)
    except ValueError as error:
        profile.problem = "output of py-spy: %s" % error
        return
    if stacks:
        profile.blocks.append(stacks)
    elif status:
        profile.problem = py_spy.classify_error(err.decode("utf-8", "backslashreplace"), status).args[0]


def _stacks(out: bytes, pids: "tuple[int | None, ...]", is_foreign: bool) -> "list[list[Any]]":
    """The same as `parse`, of another user in a child. Raises ValueError."""
    if not is_foreign:
        return parse(out, pids)
    stacks = [apart.as_fields(entry, 2) for entry in apart.as_list(limited.call(lambda: parse(out, pids)), MAX_STACKS)]
    return [[apart.as_text(stack, MAX_STACK), apart.as_number(count)] for stack, count in stacks]


def parse(out: bytes, pids: "tuple[int | None, ...]") -> "list[list[Any]]":
    """[stack, samples] of the main thread in py-spy's raw output, the most frequent first."""
    counts: "dict[str, int]" = {}
    names = [str(pid) for pid in pids]
    for line in out.decode("utf-8", "backslashreplace").splitlines():
        thread, _, rest = line.partition(";")
        stack, _, count = rest.rpartition(" ")
        tid = thread[8:].partition(")")[0]
        is_main = thread.endswith(": MainThread") or tid in names
        is_count = count.isdecimal() and len(count) < 10  # a function's name may have a newline, and forge a line
        if thread.startswith("thread (") and is_main and is_count and len(stack) <= MAX_STACK:
            stack = printable(stack, MAX_STACK)
            counts[stack] = counts.get(stack, 0) + int(count)
    frequent = sorted(counts, key=lambda stack: -counts[stack])[:MAX_STACKS]
    return [[stack, counts[stack]] for stack in frequent]


def _watch(procfs: "ProcFs", profiles: "list[ProfileOf]", ended: "threading.Event") -> None:
    """Count the states of the main threads, and how often each moved to another NUMA node."""
    while not ended.wait(1.0 / RATES[0]):
        for profile in profiles:
            try:
                stat = procfs.stat(profile.rank.pid)
            except (OSError, ValueError, IndexError):
                continue
            profile.looks += 1
            profile.blocked += stat.state == "D"
            networked = waits_for_network(procfs, profile.rank.pid)
            profile.calls += networked is not None
            profile.networked += bool(networked)
            numa = _numa_node(stat.processor)
            profile.moves += profile.numa is not None and numa != profile.numa
            profile.numa = numa


def waits_for_network(procfs: "ProcFs", pid: int) -> "bool | None":
    """Whether the main thread is in a call on a connection; None where the kernel does not tell. A poll is not counted:
    its descriptors are in the memory of the process."""
    try:
        call = parse_syscall(procfs.read_at_once(pid, "syscall"))
        if call is None or call[0] not in _STREAM:
            return call is not None and call[0] in _NETWORK
        return procfs.link(pid, "fd/%d" % call[1][0]).startswith("socket:")
    except (OSError, ValueError, IndexError):
        return None


def _numa_node(processor: int) -> int:
    if processor not in _numa_nodes:
        try:
            names = os.listdir("/sys/devices/system/cpu/cpu%d" % processor)
        except OSError:
            names = []
        _numa_nodes[processor] = next((int(name[4:]) for name in names if name[:4] == "node" and name[4:].isdigit()), 0)
    return _numa_nodes[processor]


def _counters(procfs: "ProcFs", pid: int) -> "dict[str, float | None]":
    """Totals of one process so far; None where the kernel does not tell."""
    counters: "dict[str, float | None]" = {}
    try:
        fields = procfs.read_at_once(pid, "stat").rpartition(b")")[2].split()
        tick = 1.0 / os.sysconf("SC_CLK_TCK")
        counters["cpu_s"] = (int(fields[11]) + int(fields[12])) * tick
        counters["system_s"] = int(fields[12]) * tick
        counters["minor_faults"], counters["major_faults"] = float(fields[7]), float(fields[9])
        counters["disk_wait_s"] = int(fields[39]) * tick
        counters["cpu_wait_s"] = int(procfs.read_at_once(pid, "schedstat").split()[1]) / 1e9  # of the main thread
        status = procfs.status(pid)
        if status.switches is not None and status.waits is not None:
            counters["preempted"] = float(status.switches - status.waits)
        lines = dict(line.split(b": ") for line in procfs.read_at_once(pid, "io").splitlines())
        counters["disk_read_bytes"] = float(lines[b"read_bytes"])
        counters["disk_write_bytes"] = float(lines[b"write_bytes"])
    except (OSError, ValueError, IndexError, KeyError):
        pass  # what is missing stays unknown
    cgroup = Cgroups(procfs).fields(pid)
    counters["throttled_s"] = cgroup.get("throttled_s")
    counters["memory_stalled_s"] = cgroup.get("memory_stalled_s")
    return counters


def _difference(before: "dict[str, float | None]", after: "dict[str, float | None]") -> "dict[str, float | None]":
    difference: "dict[str, float | None]" = {}
    for name, value in after.items():
        first = before.get(name)
        difference[name] = None if value is None or first is None else round(value - first, 6)
    return difference
