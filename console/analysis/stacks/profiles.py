"""Comparison of sampled stacks: where one rank spends its time and its peers do not, and what the kernel counted.

A profile has blocks of two seconds. A difference is significant if every block of the one side is above every block of
the other: under the hypothesis of no difference each order of all blocks is equally probable, so that p is 1 over the
number of ways to choose one side's blocks. Ranks that differ among each other separate no block.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from statistics import mean
from typing import Any, Final

import msgspec

from ...records import StackFrame
from .frames import Reader

#: Most ranks of which each is compared with all others.
MOST_COMPARED: Final = 64
#: Share of the time from which a difference counts, and largest p.
LEAST_SHARE: Final = 0.05
MOST_P: Final = 0.01
#: A call that has this share of the difference of its caller is the more precise name of it.
_PRECISE: Final = 0.8
#: Classes of calls in which a rank waits for others.
WAITS: Final = frozenset({"collective", "p2p", "store_wait", "group_setup"})
#: Figures of the kernel, per second: title, unit, and the least difference that counts.
COUNTERS: Final[dict[str, tuple[str, str, float]]] = {
    "throttled_s": ("throttled by the CPU quota", "s/s", 0.02),
    "cpu_wait_s": ("main thread waited for a CPU", "s/s", 0.05),
    "disk_wait_s": ("waited for disks", "s/s", 0.05),
    "uninterruptible_s": ("main thread blocked in the kernel (disk, NFS, driver)", "s/s", 0.05),
    "network_wait_s": ("main thread waited for the network", "s/s", 0.05),
    "memory_stalled_s": ("waited for memory", "s/s", 0.02),
    "major_faults": ("page faults with disk reads", "1/s", 10.0),
    "minor_faults": ("page faults", "1/s", 2000.0),
    "disk_read_bytes": ("read from disks", "B/s", 1e6),
    "disk_write_bytes": ("written to disks", "B/s", 1e6),
    "numa_moves": ("moves to another NUMA node", "1/s", 1.0),
    "preempted": ("main thread was preempted", "1/s", 50.0),
    "system_s": ("time in the kernel", "s/s", 0.05),
    "cpu_s": ("CPU time", "s/s", 0.05),
    "sm_clock_mhz": ("SM clock of its GPU", "MHz", 50.0),
}
#: Figures of which less is worse.
_LESS_IS_WORSE: Final = frozenset({"sm_clock_mhz"})
#: Figures that describe work, not a cause: shown, never named.
_SHOWN_ONLY: Final = frozenset({"cpu_s", "system_s", "preempted", "minor_faults"})
#: A figure counts if it is this many times as large as that of any peer.
_FACTOR: Final = 1.5
_FRAME: Final = re.compile(r"(?P<function>.*) \((?P<file>.*?)(?::(?P<line>\d{1,9}))?\)")

Frames = tuple[StackFrame, ...]
#: A call without its line: function and file.
Place = tuple[str, str]


class RankProfile(msgspec.Struct, frozen=True):
    """The samples of one rank's main thread: per block, stacks with their counts; figures per second."""

    job: str
    attempt: int
    rank: int
    node: str
    blocks: tuple[Mapping[str, int], ...]  # frames `NAME (FILE:LINE)`, outermost first, joined by `;`
    counters: Mapping[str, float | None] = {}
    problem: str = ""

    @property
    def samples(self) -> int:
        """Samples in all blocks."""
        return sum(sum(block.values()) for block in self.blocks)


class CallShare(msgspec.Struct, frozen=True):
    """One call with all calls below it: shares of the time, and p of the difference; None if it is not significant."""

    path: tuple[Place, ...]
    line: int | None  # most frequent line of the compared rank
    share: float
    peers: float
    p: float | None

    @property
    def difference(self) -> float:
        """Share of the time that the compared rank spends more in it."""
        return self.share - self.peers


class CounterShare(msgspec.Struct, frozen=True):
    """One figure of the kernel of the compared rank, and of its peers: the median and the one nearest to it."""

    name: str
    value: float
    peers: float
    nearest: float
    is_significant: bool


class ProfileComparison(msgspec.Struct, frozen=True):
    """One rank, or a whole job, against its peers, or an earlier profile."""

    subject: str
    against: str
    samples: int
    peer_samples: int
    calls: tuple[CallShare, ...]  # depth first, callers before their calls
    counters: tuple[CounterShare, ...]
    wait_share: float = 0.0  # of the time, in which it waits for other ranks
    peer_wait_share: float = 0.0
    named: CallShare | None = None  # largest significant difference, outside of waiting for others
    cause: CounterShare | None = None  # figure of the kernel that differs most

    @property
    def has_difference(self) -> bool:
        """Whether anything differs significantly."""
        return self.named is not None or self.cause is not None


def parse_frames(stack: str) -> Frames:
    """The frames of a stack in py-spy's raw format, outermost first."""
    frames = []
    for text in stack.split(";"):
        match = _FRAME.fullmatch(text)
        if match is None:
            frames.append(StackFrame(text, ""))
        else:
            frames.append(StackFrame(match["function"], match["file"], int(match["line"] or 0)))
    return tuple(frames)


def straggler_of(profiles: Sequence[RankProfile], reader: Reader | None = None) -> RankProfile | None:
    """The rank that waits for others significantly less than each of its peers; None if there is none.

    Where the waiting is invisible, as in DDP, whose backward pass waits in C++, it is the only rank with a call
    that differs significantly.
    """
    reader = reader or Reader()
    if len(profiles) < 2 or any(not profile.blocks for profile in profiles):
        return None
    waits = {profile.rank: [_wait_share(block, reader) for block in profile.blocks] for profile in profiles}
    if max(map(mean, waits.values())) < LEAST_SHARE:
        return _different(profiles, reader)
    least = min(profiles, key=lambda profile: mean(waits[profile.rank]))
    own = waits[least.rank]
    others = [share for rank, shares in waits.items() if rank != least.rank for share in shares]
    return least if _p_above(others, own) is not None and mean(others) - mean(own) >= LEAST_SHARE else None


def _different(profiles: Sequence[RankProfile], reader: Reader) -> RankProfile | None:
    """The only rank with a call in which it spends significantly more of its time than all others."""
    if not 2 < len(profiles) <= MOST_COMPARED:
        return None
    tree = _Tree(reader)
    blocks = [[tree.add(block, is_subject=True) for block in profile.blocks] for profile in profiles]
    different = [
        profile
        for index, profile in enumerate(profiles)
        if _named(
            tree.calls(blocks[index], [block for rest in (*blocks[:index], *blocks[index + 1 :]) for block in rest])
        )
    ]
    return different[0] if len(different) == 1 else None


def _wait_share(block: Mapping[str, int], reader: Reader) -> float:
    total = sum(block.values())
    waiting = sum(count for stack, count in block.items() if reader.trace(parse_frames(stack)).cls in WAITS)
    return waiting / total if total else 0.0


def compare(
    subject: Sequence[RankProfile], peers: Sequence[RankProfile], names: tuple[str, str], reader: Reader | None = None
) -> ProfileComparison:
    """Compare two sides by the inclusive time of every call. `names`: how the sides are called."""
    tree = _Tree(reader or Reader())
    sides = [[block for profile in side for block in profile.blocks] for side in (subject, peers)]
    own, others = ([tree.add(block, is_subject=side is sides[0]) for block in side] for side in sides)
    working = ([tree.add(block, is_subject=side is sides[0], is_all=False) for block in side] for side in sides)
    calls = tree.calls(own, others)
    counters = tuple(_counters(subject, peers))
    causes = [figure for figure in counters if figure.is_significant and figure.name not in _SHOWN_ONLY]
    return ProfileComparison(
        names[0], names[1], sum(profile.samples for profile in subject), sum(profile.samples for profile in peers),
        tuple(calls), counters, _mean_wait(sides[0], tree.reader), _mean_wait(sides[1], tree.reader),
        _named(tree.calls(*working)), causes[0] if causes else None,
    )  # fmt: skip


def _mean_wait(blocks: Sequence[Mapping[str, int]], reader: Reader) -> float:
    return mean(_wait_share(block, reader) for block in blocks) if blocks else 0.0


def _p_above(upper: Sequence[float], lower: Sequence[float]) -> float | None:
    """p if all of the one side is above all of the other; None if not, or if too few blocks prove it."""
    if not upper or not lower or min(upper) <= max(lower):
        return None
    p = 1.0 / math.comb(len(upper) + len(lower), len(upper))
    return p if p <= MOST_P else None


class _Tree:
    """All calls of both sides, as paths of places; a block is the share of every path in it."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self._lines: dict[tuple[Place, ...], dict[int, int]] = {}
        self._waits: set[str] = set()  # stacks
        self._paths: dict[str, list[tuple[tuple[Place, ...], int]]] = {}

    def add(self, block: Mapping[str, int], *, is_subject: bool, is_all: bool = True) -> dict[tuple[Place, ...], float]:
        """The share of the time of every path in a block; unless `is_all` without waiting for other ranks."""
        counts: dict[tuple[Place, ...], int] = {}
        for stack, count in block.items():
            paths = self._paths_of(stack)
            if not is_all and stack in self._waits:
                continue
            for path, line in paths:
                counts[path] = counts.get(path, 0) + count
                if is_subject and is_all:
                    lines = self._lines.setdefault(path, {})
                    lines[line] = lines.get(line, 0) + count
        total = sum(block.values())
        return {path: count / total for path, count in counts.items()} if total else {}

    def calls(
        self, own: Sequence[Mapping[tuple[Place, ...], float]], others: Sequence[Mapping[tuple[Place, ...], float]]
    ) -> list[CallShare]:
        """All paths, callers first."""
        calls = []
        for path in sorted({path for block in (*own, *others) for path in block}):
            upper, lower = ([block.get(path, 0.0) for block in side] for side in (own, others))
            share, peers = (mean(values) if values else 0.0 for values in (upper, lower))
            p = _p_above(upper, lower) if share > peers else _p_above(lower, upper)
            lines = self._lines.get(path, {})
            line = max(lines, key=lambda number: lines[number], default=None)
            significant = p if abs(share - peers) >= LEAST_SHARE else None
            calls.append(CallShare(path, line or None, share, peers, significant))
        return calls

    def _paths_of(self, stack: str) -> list[tuple[tuple[Place, ...], int]]:
        if stack not in self._paths:
            frames = parse_frames(stack)
            places = tuple((frame.function, frame.file) for frame in frames)
            if self.reader.trace(frames).cls in WAITS:
                self._waits.add(stack)
            self._paths[stack] = [(places[: depth + 1], frame.line) for depth, frame in enumerate(frames)]
        return self._paths[stack]


def _named(calls: Sequence[CallShare]) -> CallShare | None:
    """The call with the largest significant difference, as precisely as its calls allow."""
    candidates = [call for call in calls if call.p is not None and call.difference > 0]
    if not candidates:
        return None
    named = max(candidates, key=lambda call: (call.difference, -len(call.path)))
    while True:
        inner = [
            call for call in candidates
            if len(call.path) == len(named.path) + 1 and call.path[: len(named.path)] == named.path
            and call.difference >= _PRECISE * named.difference
        ]  # fmt: skip
        if not inner:
            return named
        named = max(inner, key=lambda call: call.difference)


def _counters(subject: Sequence[RankProfile], peers: Sequence[RankProfile]) -> Iterable[CounterShare]:
    """The figures that both sides have, the most different significant ones first."""
    rows = []
    for name, (_, _, least) in COUNTERS.items():
        own = [value for profile in subject if (value := profile.counters.get(name)) is not None]
        others = sorted(value for profile in peers if (value := profile.counters.get(name)) is not None)
        if not own or not others:
            continue
        value, worse = mean(own), -1 if name in _LESS_IS_WORSE else 1
        nearest = min(others) if worse < 0 else max(others)
        beyond = (value - nearest) * worse
        is_factor = value >= _FACTOR * nearest if worse > 0 else value <= nearest * 0.9
        significant = len(others) >= 2 and beyond >= least and is_factor
        rows.append((CounterShare(name, value, others[len(others) // 2], nearest, significant), beyond / least))
    rows.sort(key=lambda row: (not row[0].is_significant, -row[1] if row[0].is_significant else 0.0))
    return [row for row, _ in rows]


def profiles_of(reply: Any, node: str) -> list[RankProfile]:
    """The profiles in a node's reply. Raises msgspec.ValidationError."""
    made = msgspec.convert(reply, _Reply)
    wall_s = max(made.wall_s, 1e-3)
    profiles = []
    for rank in made.ranks:
        if rank.rank is None:
            continue
        per_s = {name: None if value is None else value / wall_s for name, value in rank.counters.items()}
        blocks = tuple(dict(block) for block in rank.blocks)
        profiles.append(RankProfile(rank.job, rank.attempt, rank.rank, node, blocks, per_s, rank.problem))
    return profiles


class _Rank(msgspec.Struct):
    job: str
    attempt: int
    rank: int | None
    blocks: list[list[tuple[str, int]]]
    counters: dict[str, float | None]
    problem: str = ""


class _Reply(msgspec.Struct):
    ranks: list[_Rank]
    wall_s: float
