"""Where the main thread of each rank is, from light stack samples, and since when; whether its connections carry data.

A sample is the main thread's stack without variables. Where the thread has not run since the last sample, its stack is
the same and is not read. Sampling ends by itself where it makes a job slower.
"""

from collections import deque

from ..clocks import stamps
from ..comms.sockets import inodes_of
from ..proc.net_tables import same_network, tcp_bytes
from ..stacks.source_lines import is_standard

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Deque

    from ..proc.procfs import ProcFs
    from ..stacks.py_spy import Frame, PythonThread
    from .base import Fact, Fields, ProcessKey
    from .process_snapshot import RankRef

#: Innermost frames of a place that are sent.
MOST_FRAMES = 24
#: The kernel's letters of a thread that does not run.
ASLEEP = "SDTt"
#: Bytes. A connection that moved fewer since it began carries control messages only.
DATA_BYTES = 16384
#: ns. A dump of the TCP connections serves all ranks for this long, and each of them once: their samples are spread
#: over a round, which may be as short.
TCP_NS = 2000000000


class Place(object):
    """The place of one rank. Instants are CLOCK_REALTIME, ns."""

    __slots__ = ("frames", "moved", "moved_at", "path", "path_since", "place", "samples", "since", "switches")

    def __init__(self, frames: "tuple[Frame, ...]", sampled: int, switches: "int | None") -> None:
        self.frames = frames[-MOST_FRAMES:]
        self.place, self.path = place_and_path(frames)
        self.since = self.path_since = sampled
        self.samples = 1  # consecutive ones on the same path
        self.switches = switches  # context switches of the main thread, read before its stack
        self.moved: "dict[int, int]" = {}  # TCP socket: bytes so far
        self.moved_at = 0  # when those were read


class PlaceTracker(object):
    """The places of the ranks of one node."""

    def __init__(self, procfs: "ProcFs") -> None:
        self._procfs = procfs
        self._places: "dict[ProcessKey, Place]" = {}
        self._tcp: "tuple[int, dict[int, tuple[int, float | None]]]" = (0, {})  # (instant, bytes by socket)
        self._same_network: "dict[ProcessKey, bool]" = {}

    def retain(self, keys: "dict[ProcessKey, RankRef]") -> None:
        """Forget all other ranks."""
        for key in [key for key in self._same_network if key not in keys]:
            del self._same_network[key]
            self._places.pop(key, None)

    def forget(self, key: "ProcessKey") -> None:
        """Forget a rank that could not be read."""
        self._places.pop(key, None)

    def switches(self, pid: int) -> "int | None":
        """Context switches of the main thread so far; None if unknown."""
        try:
            return self._procfs.status(pid).switches
        except (OSError, ValueError):
            return None

    def slept(self, key: "ProcessKey") -> bool:
        """Whether the main thread has not run since its last sample, so that its place is the same."""
        place = self._places.get(key)
        if place is None or place.switches is None:
            return False
        try:
            is_asleep = self._procfs.stat(key[0]).state in ASLEEP
        except (OSError, ValueError):
            return False
        return is_asleep and self.switches(key[0]) == place.switches

    def sample(self, rank: "RankRef", threads: "list[PythonThread] | None", switches: "int | None") -> "Fact":
        """The `place` record of a rank: of its threads, or with None of the last sample, since which it slept.

        `switches` were read before the threads.
        """
        key, sampled = (rank.pid, rank.start_ticks), stamps.realtime_ns()
        before = self._places.get(key)
        if threads is None:
            assert before is not None
            place = before
            place.samples += 1
        else:
            place = Place(main_thread(threads, rank).frames, sampled, switches)
            if before is not None and before.path == place.path:
                place.path_since, place.samples = before.path_since, before.samples + 1
                if before.place == place.place:
                    place.since = before.since
            if before is not None:
                place.moved, place.moved_at = before.moved, before.moved_at
        self._places[key] = place
        fields: "Fields" = {
            "job": rank.job, "attempt": rank.attempt, "rank": rank.rank, "pid": rank.pid,
            "start_ticks": rank.start_ticks,
            "frames": [
                {"function": function, "file": file, "line": line}
                for function, file, line, _ in place.frames
            ],
            "since": place.since, "path_since": place.path_since, "sampled": sampled,
            "samples": place.samples, "slept": threads is None,
        }  # fmt: skip
        fields["moved_bytes"] = self._moved_bytes(key, place, sampled)
        return "place", fields

    def _moved_bytes(self, key: "ProcessKey", place: "Place", sampled: int) -> "int | None":
        """Bytes that its data connections moved since the last sample; None without one, or where that is unknown."""
        if key not in self._same_network:
            self._same_network[key] = same_network(self._procfs, key[0])
        if not self._same_network[key]:
            return None
        try:
            inodes = inodes_of(self._procfs, key[0])
        except OSError:
            return None
        if not inodes:
            place.moved = {}
            return None
        if sampled - self._tcp[0] > TCP_NS or place.moved_at == self._tcp[0]:  # the same dump again shows no bytes
            self._tcp = (sampled, tcp_bytes())
        place.moved_at = self._tcp[0]
        moved = {inode: self._tcp[1][inode][0] for inode in inodes if inode in self._tcp[1]}
        before, place.moved = place.moved, moved
        both = [inode for inode, count in moved.items() if inode in before and count >= DATA_BYTES]
        return sum(moved[inode] - before[inode] for inode in both) if both else None


def main_thread(threads: "list[PythonThread]", rank: "RankRef") -> "PythonThread":
    """The main thread among those of a process; the first one if none is marked."""
    pids = (rank.pid, rank.ns_pid)
    for thread in threads:
        if thread.name == "MainThread" or (thread.os_thread_id is not None and thread.os_thread_id in pids):
            return thread
    return threads[0]


def place_and_path(frames: "tuple[Frame, ...]") -> "tuple[tuple[Frame, ...], tuple[Frame, ...]]":
    """A stack without the standard library's innermost calls: with all lines, and without the innermost one.

    Code that polls calls the standard library again and again; its lines change, its function does not.
    """
    count = len(frames)
    while count and is_standard(frames[count - 1][1]):
        count -= 1
    place = frames[: count or len(frames)]
    if not place:
        return place, place
    function, file, _, native = place[-1]
    return place, place[:-1] + ((function, file, 0, native),)


class SamplingEffect(object):
    """Whether a job is slower in the seconds in which its stacks are read, by how often its main thread waits.

    A step waits a certain number of times; seconds with a sample of one rank are between seconds without. A job whose
    pace differs from second to second, as where steps take seconds, is not judged: its samples may fall on the same
    part of each step.
    """

    #: Seconds with a sample before it is judged, and those that are kept.
    LEAST, MOST = 30, 90
    #: Waits per second from which they measure the pace of a job.
    LEAST_RATE = 5.0
    #: Seconds without a sample before one in which the pace is steady, and share by which it may differ from its mean.
    STEADY, UNEVEN = 3, 0.25
    #: Share of the time that sampling may cost; and of sampled seconds that must be slower than those around them: all
    #: of a long run are judged again and again.
    LIMIT, AGREEING = 0.01, 0.9

    def __init__(self) -> None:
        self._last: "dict[ProcessKey, tuple[float, int]]" = {}
        self._quiet: "dict[ProcessKey, Deque[float]]" = {}  # rates in the seconds since the last sample
        self._pending: "dict[ProcessKey, tuple[float, float]]" = {}  # (rate before, rate in) the sampled second
        self._ratios: "Deque[float]" = deque(maxlen=self.MOST)
        self._seconds = self._sampled = 0

    def add(self, key: "ProcessKey", now: float, waits: int, sampled_at: "float | None") -> None:
        """One second of one rank: its voluntary context switches until `now`, and when its stack was read last."""
        before = self._last.get(key)
        if before is not None and now <= before[0]:
            return  # the second is not over
        self._last[key] = (now, waits)
        if before is None:
            return
        sampled = sampled_at is not None and before[0] < sampled_at <= now
        rate = (waits - before[1]) / (now - before[0])
        self._seconds += 1
        self._sampled += sampled
        pending = self._pending.pop(key, None)
        if sampled:
            quiet = self._quiet.pop(key, None)
            if quiet is not None and self._is_steady(quiet):
                self._pending[key] = (quiet[-1], rate)
            return
        if pending is not None:
            around = (pending[0] + rate) / 2.0
            if around >= self.LEAST_RATE:
                self._ratios.append(pending[1] / around)
        self._quiet.setdefault(key, deque(maxlen=2 * self.STEADY)).append(rate)

    def _is_steady(self, rates: "Deque[float]") -> bool:
        mean = sum(rates) / len(rates)
        return len(rates) >= self.STEADY and max(abs(rate - mean) for rate in rates) <= self.UNEVEN * mean

    def retain(self, keys: "dict[ProcessKey, RankRef]") -> None:
        """Forget all other ranks."""
        for key in [key for key in self._last if key not in keys]:
            for table in (self._last, self._quiet, self._pending):
                table.pop(key, None)

    def lost(self) -> "float | None":
        """The share of time that sampling costs, where it is above the limit; None below it or if unknown."""
        if len(self._ratios) < self.LEAST:
            return None
        ratios = sorted(self._ratios)
        lost = (1.0 - ratios[len(ratios) // 2]) * self._sampled / self._seconds
        slower = sum(1 for ratio in ratios if ratio < 1.0)
        return lost if lost > self.LIMIT and slower >= self.AGREEING * len(ratios) else None
