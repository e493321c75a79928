"""Synthetic timestamps with known offsets: seeded clocks, paths and stamping, packed into bins as an agent does.

Independent of the product's estimators. Times are int64 ns; `true` time is an ideal reference clock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from gconsole.records import ClockBins, ClockSnapshot
from gconsole.records.clock import ClockBin, Exchange, Point

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

BIN_MS = 100
US = 1_000
MS = 1_000_000
SECOND = 1_000_000_000

#: Delays of n packets, ns.
Delay = Callable[[np.random.Generator, int], Floats]


@dataclass(frozen=True)
class Clock:
    """A clock model: it reads `reads` at true time 0 and runs `ppm` fast, plus a sinusoidal wander."""

    reads: int = 0
    ppm: float = 0.0
    wander_ns: float = 0.0
    period_s: float = 30.0

    def at(self, true: Ints) -> Ints:
        wave = self.wander_ns * np.sin(2 * np.pi * true / (self.period_s * 1e9))
        return self.reads + true + np.rint(true * (self.ppm * 1e-6) + wave).astype(np.int64)


def uniform(least_us: float, most_us: float) -> Delay:
    return lambda rng, n: rng.uniform(least_us, most_us, n) * US


def relayed(delay: Delay) -> Delay:
    """The same path behind a relay that wakes up for each packet: no sharp minimum delay."""
    return lambda rng, n: delay(rng, n) + (2.0 + rng.exponential(8.0, n)) * US


def queue(least_us: float, share: float, mean_us: float) -> Delay:
    """A queue: some packets get an additional exponential delay."""
    return lambda rng, n: (least_us + np.where(rng.random(n) < share, rng.exponential(mean_us, n), 0.0)) * US


def wire(least_us: float) -> Delay:
    """A path without queues, with an occasional interrupt."""
    return lambda rng, n: (least_us + rng.exponential(0.05, n)) * US


def no_delay(rng: np.random.Generator, n: int) -> Floats:
    return np.zeros(n)


def send_call(rng: np.random.Generator, n: int) -> Floats:
    """Delay from reading the clock in user space until the packet is sent."""
    return (2.2 + rng.exponential(2.0, n) + np.where(rng.random(n) < 0.01, rng.exponential(300.0, n), 0.0)) * US


def wake_up(rng: np.random.Generator, n: int) -> Floats:
    """Delay from the packet's arrival until user space reads the clock, without kernel stamps."""
    return (4.5 + rng.exponential(25.0, n) + np.where(rng.random(n) < 0.02, rng.exponential(1500.0, n), 0.0)) * US


def busy_wake_up(rng: np.random.Generator, n: int) -> Floats:
    return (4.5 + rng.exponential(60.0, n) + np.where(rng.random(n) < 0.25, rng.exponential(4000.0, n), 0.0)) * US


@dataclass(frozen=True)
class Path:
    """Both directions between two nodes. Stamping `mode`: m user space out, kernel in; k kernel; u user space."""

    forward: Delay
    backward: Delay
    mode: str = "m"
    is_fifo: bool = False
    is_busy: bool = False
    early: tuple[float, float, float] | None = None  # sigma us, share and us of early kernel stamps
    lost_forward: float = 0.0
    lost_backward: float = 0.0


@dataclass(frozen=True)
class Stamps:
    """The timestamps of both ends, in order of sending; `got` where the reply was received."""

    t1: Ints
    t2: Ints
    t3: Ints
    t4: Ints
    got: NDArray[np.bool_]
    near: Clock
    far: Clock

    @cached_property
    def rtt(self) -> Ints:
        return (self.t4 - self.t1) - (self.t3 - self.t2)

    @cached_property
    def forward(self) -> Ints:
        """What the far clock reads on arrival minus what the near one read at sending."""
        return self.t2 - self.t1

    @cached_property
    def backward(self) -> Ints:
        """What the far clock reads at sending back minus what the near one reads on arrival."""
        return self.t3 - self.t4

    def ahead(self, readings: Ints) -> Floats:
        """The true offset of the far clock at these `readings` of the near one, minus the two first readings."""
        true = readings - self.near.reads
        for _ in range(3):
            true = true - (self.near.at(true) - readings)
        return (self.far.at(true) - self.far.reads - (self.near.at(true) - self.near.reads)).astype(np.float64)

    def least_rtt_line(self) -> float:
        """The usual estimator: the offset of the minimum-RTT exchange, as a constant, minus the first readings."""
        kept = np.flatnonzero(self.got & (self.rtt >= 0))
        best = kept[np.argmin(self.rtt[kept])]
        base = self.far.reads - self.near.reads
        ahead, behind = int(self.t2[best] - self.t1[best]) - base, int(self.t3[best] - self.t4[best]) - base
        return (ahead + behind) / 2


NEAR = Clock(3 * 86_400 * SECOND)
FAR = Clock(9 * 86_400 * SECOND + 5 * MS, 20.0)


def measure(
    path: Path, seed: int, seconds: float = 4.0, cadence_us: int = 5_000, spacing_us: int = 100,
    near: Clock = NEAR, far: Clock = FAR, start_s: float = 1.0,
) -> Stamps:  # fmt: skip
    """Probe triples every `cadence_us` for some seconds."""
    rng = np.random.default_rng(seed)
    triples = int(seconds * 1e6 / cadence_us)
    first = int(start_s * SECOND) + np.arange(triples, dtype=np.int64) * cadence_us * US
    first = first + rng.integers(0, cadence_us * US // 4, triples)
    sent = (first[:, None] + np.arange(3) * spacing_us * US).ravel()
    n = len(sent)
    sending = no_delay if path.mode == "k" else send_call
    waking = (busy_wake_up if path.is_busy else wake_up) if path.mode == "u" else no_delay
    arrive = _arrivals(sent + sending(rng, n), path.forward(rng, n), path.is_fifo)
    seen = arrive + waking(rng, n)
    answers = arrive + (busy_wake_up if path.is_busy else wake_up)(rng, n) + 3 * US
    answers = np.maximum(answers, seen)
    back = _arrivals(answers + sending(rng, n), path.backward(rng, n), path.is_fifo)
    back_seen = back + waking(rng, n)
    t1, t2, t3, t4 = (np.rint(times).astype(np.int64) for times in (sent, seen, answers, back_seen))
    t1, t4 = near.at(t1), near.at(t4)
    t2, t3 = far.at(t2), far.at(t3)
    if path.early is not None:
        t2, t4 = _early(rng, t2, path.early), _early(rng, t4, path.early)
    got = (rng.random(n) >= path.lost_forward) & (rng.random(n) >= path.lost_backward)
    return Stamps(t1, t2, t3, t4, got, near, far)


def _arrivals(sent: Floats, delay: Floats, is_fifo: bool) -> Floats:
    arrive = sent + delay
    if not is_fifo:
        return arrive
    order = np.argsort(sent, kind="stable")
    arrive[order] = np.maximum.accumulate(arrive[order])
    return arrive


def _early(rng: np.random.Generator, stamps: Ints, early: tuple[float, float, float]) -> Ints:
    sigma, share, amount = early
    noise = rng.normal(0.0, sigma, len(stamps)) - np.where(rng.random(len(stamps)) < share, amount, 0.0)
    return stamps + np.rint(noise * US).astype(np.int64)


def bins(stamps: Stamps, src: str = "a", dst: str = "b", bin_ms: int = BIN_MS, kept: int = 4) -> list[ClockBins]:
    """The agent's records of these timestamps: one per second."""
    base = int(stamps.t1[0])
    ahead = int(np.median(stamps.forward)) // 1000 * 1000
    number = (stamps.t1 - base) // (bin_ms * MS)
    packed = [
        _bin(stamps, np.flatnonzero(number == index), base, ahead, kept) for index in range(int(number.max()) + 1)
    ]
    per_record = 1000 // bin_ms
    records = []
    for first in range(0, len(packed), per_record):
        part = packed[first : first + per_record]
        shift = first * bin_ms * MS
        records.append(
            ClockBins(
                node=src, dst=dst, stamps="user" if stamps.far is None else "kernel_rx", base=base + shift,
                base_real=1_700_000_000 * SECOND + base + shift, ahead=ahead, bin_ms=bin_ms,
                bins=tuple(_shifted(bin_, shift) for bin_ in part), cadence_us=5_000,
                ticks=sum(bin_.sent for bin_ in part) // 3,
            )
        )  # fmt: skip
    return records


def _bin(stamps: Stamps, index: NDArray[np.intp], base: int, ahead: int, kept: int) -> ClockBin:
    causal = index[stamps.got[index] & (stamps.rtt[index] >= 0)]
    forward = backward = None
    best: tuple[Exchange, ...] = ()
    mismatch = None
    if len(causal):
        up = causal[np.argmin(stamps.forward[causal])]
        down = causal[np.argmax(stamps.backward[causal])]
        forward = Point(int(stamps.t1[up]) - base, int(stamps.forward[up]) - ahead)
        backward = Point(int(stamps.t4[down]) - base, int(stamps.backward[down]) - ahead)
        fastest = np.sort(causal[np.argsort(stamps.rtt[causal], kind="stable")[:kept]])
        best = tuple(
            Exchange(
                int(stamps.t1[row]) - base, int(stamps.forward[row]) - ahead,
                int(stamps.t3[row] - stamps.t2[row]), int(stamps.rtt[row]),
            )
            for row in fastest
        )  # fmt: skip
        neighbours = causal[:-1][(np.diff(causal) == 1) & (causal[:-1] % 3 != 2)]
        if len(neighbours):
            before, after = (stamps.forward[neighbours + more] for more in (0, 1))
            fast = np.argsort(np.maximum(before, after), kind="stable")[: max(3, len(neighbours) // 16)]
            mismatch = int(np.sort(np.abs(after - before)[fast])[len(fast) // 2])
    got = int(stamps.got[index].sum())
    return ClockBin(forward, backward, best, len(index), got, got - len(causal), mismatch)


def _shifted(bin_: ClockBin, shift: int) -> ClockBin:
    """The same bin relative to a base that is `shift` ns later."""
    move = lambda point: None if point is None else Point(point.at - shift, point.ahead)  # noqa: E731
    return ClockBin(
        move(bin_.forward), move(bin_.backward),
        tuple(Exchange(best.t1 - shift, best.ahead, best.turn, best.rtt) for best in bin_.best),
        bin_.sent, bin_.got, bin_.noncausal, bin_.mismatch_ns,
    )  # fmt: skip


VETH = Path(wire(0.23), wire(0.23))
JITTER = Path(relayed(uniform(50, 150)), relayed(uniform(50, 150)))
QUEUE = Path(queue(50, 0.6, 100), queue(50, 0.6, 100), is_fifo=True)
ASYM_JITTER = Path(uniform(50, 150), queue(100, 0.9, 200))
ASYM_FIXED = Path(relayed(uniform(100, 200)), relayed(uniform(50, 150)))

#: Every path of the measured notes, in each stamping mode.
SCENARIOS: dict[str, Path] = {
    f"{name} {mode}": replace(path, mode=mode)
    for name, path in {
        "veth": VETH, "jitter": JITTER, "queue": QUEUE, "asymmetric jitter": ASYM_JITTER, "asymmetric": ASYM_FIXED,
        "burners": replace(VETH, is_busy=True), "jitter and burners": replace(JITTER, is_busy=True),
    }.items()
    for mode in "umk"
}  # fmt: skip


# -- a fleet -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Node:
    """One node of a synthetic fleet: its MONOTONIC_RAW, and the offset of its CLOCK_REALTIME from true time."""

    name: str
    clock: Clock
    real_off_ns: int = 0


EPOCH = 1_700_000_000 * SECOND


def make_nodes(count: int, seed: int, most_ppm: float = 30.0) -> list[Node]:
    """Nodes with different boot times and clock rates."""
    rng = np.random.default_rng(seed)
    nodes = []
    for number in range(count):
        days, ppm, off_ms = int(rng.integers(1, 200)), float(rng.uniform(-most_ppm, most_ppm)), int(rng.integers(-3, 3))
        nodes.append(Node(f"node{number:03}", Clock(days * 86_400 * SECOND, ppm), off_ms * MS))
    return nodes


def regular_edges(count: int, seed: int, cycles: int = 3) -> list[tuple[int, int]]:
    """Edges of a union of random rings; all pairs for few nodes."""
    if count <= 7:
        return [(a, b) for a in range(count) for b in range(a + 1, count)]
    rng = np.random.default_rng(seed)
    edges = set()
    for _ in range(cycles):
        ring = rng.permutation(count).tolist()
        edges |= {(min(a, b), max(a, b)) for a, b in zip(ring, ring[1:] + ring[:1], strict=True)}
    return sorted(edges)


def snapshot(node: Node, true: int, width_ns: int = 210) -> ClockSnapshot:
    raw = int(node.clock.at(np.array([true], dtype=np.int64))[0])
    real = EPOCH + true + node.real_off_ns
    return ClockSnapshot(
        node=node.name, agent=f"agent-{node.name}", real=real, monotonic=raw - 7 * SECOND, raw=raw,
        boot=raw + 3 * SECOND,        width_ns=width_ns, reads=10, rx=EPOCH + true + 2 * MS, slew_ppm=-node.clock.ppm,
    )  # fmt: skip


def probe_records(
    nodes: Sequence[Node], edges: Sequence[tuple[int, int]], seed: int, start_s: float = 1.0, seconds: float = 4.0,
    path: Callable[[int, int], Path] = lambda _a, _b: JITTER, cadence_us: int = 20_000,
) -> list[ClockBins | ClockSnapshot]:  # fmt: skip
    """All agents' records while every edge is probed, in order of arrival."""
    output: list[ClockBins | ClockSnapshot] = []
    for number, (a, b) in enumerate(edges):
        stamps = measure(
            path(a, b), seed * 10_007 + number, seconds, cadence_us, near=nodes[a].clock, far=nodes[b].clock,
            start_s=start_s,
        )  # fmt: skip
        for index, record in enumerate(bins(stamps, nodes[a].name, nodes[b].name)):
            record.agent = f"agent-{nodes[a].name}"
            record.rx = EPOCH + int((start_s + index + 1) * SECOND) + number * 1000
            output.append(record)
    for node in nodes:
        output += [snapshot(node, int((start_s + second) * SECOND)) for second in range(int(seconds) + 1)]
    return sorted(output, key=lambda record: record.rx)


def true_time_of(node: Node, mono: int) -> float:
    """The true time at which a node's MONOTONIC_RAW read `mono`."""
    clock = node.clock
    return (mono - clock.reads) / (1.0 + clock.ppm * 1e-6)
