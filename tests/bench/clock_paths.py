"""Clock bounds of real agents over paths with delay, compared with the minimum round trip of the same stamps."""

from __future__ import annotations

import asyncio
import os
import statistics
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from delayed_links import CheckedWindow, RelayArguments, checked_windows, delayed_both_ways
from live_fleet import started_fleet
from rig import Rig
from skewed_clocks import ClockError, wrong_clocks

from gconsole.analysis.clock.pair_bounds import slack_ns
from gconsole.records import ClockBins
from tests.bench.result import Outcome, Row, middle

WINDOWS, WINDOW_S = 10, 4
DRIFTING = {"node2": ClockError(5_000_000, 20_000)}
JITTER, QUEUE = ("uniform", 50, 150), ("queue", 50, 0.6, 100)
BOUND_GOAL = 1.3
_SLACK_US = slack_ns(WINDOW_S * 1_000_000_000) / 1000


@dataclass(frozen=True)
class PathCase:
    """One path: how arrivals are stamped, the interval of triples, and the required ratio."""

    name: str
    arguments: RelayArguments | None
    kernel_stamps: bool
    cadence_us: int
    spacing_us: int
    least: float | None


CASES = (
    PathCase("veth m, 0.8 ms", None, True, 800, 50, 100.0),
    PathCase("100 ± 50 µs m, 0.8 ms", JITTER, True, 800, 50, 20.0),
    PathCase("queue m, 0.8 ms", QUEUE, True, 800, 50, 25.0),
    PathCase("100 ± 50 µs u, 0.8 ms", JITTER, False, 800, 50, 5.0),
    PathCase("queue u, 0.8 ms", QUEUE, False, 800, 50, 5.0),
    PathCase("100 ± 50 µs m, 5 ms", JITTER, True, 5000, 100, None),
)


def measure(quick: bool) -> Outcome:
    cases, count = (CASES[1:2], 1) if quick else (CASES, WINDOWS)
    rows, loads = [], []
    with Rig(nodes=2, name="bench", mode="namespaces") as rig:
        for case in cases:
            rows += _rows(case, asyncio.run(_windows(rig, case, count)))
            loads.append(os.getloadavg()[0])
    return Outcome(
        rows,
        [
            "two agents in namespaces, between them a relay of the tests (delay_relay.c) that delays each packet by"
            " a seeded distribution: uniform 100 ± 50 µs, or a queue of 50 µs + 60 % Exp(100 µs), first in first out;"
            " both ways alike; the far clocks are 5 ms ahead and 20 ppm fast",
            "error is the largest within the window; peer: the offset of the exchange with the least round trip of the"
            " same stamps, as a constant; m: user space sends and the kernel receives; u: user space only (the test's"
            " agents ask for an option that no kernel has)",
            "the relay counts a delay from the instant at which the kernel took the packet; one that counted from its"
            " own waking up had ways 5 µs longer one way than back, and with that a ratio of 12 to 38",
            "ratio is ours to the peer's, of the medians; goals are those of the design's notes",
            f"windows of about {WINDOW_S} s, load average {min(loads):.1f} to {max(loads):.1f} on"
            f" {len(os.sched_getaffinity(0))} cores; agents run at nice 10",
        ],
    )


async def _windows(rig: Rig, case: PathCase, count: int) -> list[CheckedWindow]:
    with tempfile.TemporaryDirectory() as scratch, ExitStack() as stack:
        clock_errors = stack.enter_context(wrong_clocks(Path(scratch), DRIFTING, case.kernel_stamps))
        if case.arguments is not None:
            stack.enter_context(delayed_both_ways(*rig.nodes, case.arguments, case.arguments))
        hosts = rig.write_hosts_toml(Path(scratch, "hosts.toml"))
        flags = {"probe_cadence_us": case.cadence_us, "packet_spacing_us": case.spacing_us, "cpu_cap_pct": 60}
        async with started_fleet(hosts, **{f"clock_{name}": value for name, value in flags.items()}) as fleet:
            await fleet.sampled()
            fleet.fleet.request_clock_probes("bench", True)

            def found() -> list[ClockBins]:
                return [record for record in fleet.records if isinstance(record, ClockBins) and record.method == "udp"]

            await fleet.until(
                lambda: len(checked_windows(found(), clock_errors, WINDOW_S)) >= count, 60.0 + 3 * WINDOW_S * count
            )
            return checked_windows(found(), clock_errors, WINDOW_S)


def _rows(case: PathCase, checked: list[CheckedWindow]) -> list[Row]:
    sound = [window for window in checked if window.window.region is not None]
    ours, peer = [window.edge_error_ns / 1000 for window in sound], [window.peer_error_ns / 1000 for window in sound]
    bounds = [(window.window.bound_ns or 0.0) / 1000 for window in sound]
    halves = [(window.window.min_rtt_ns or 0) / 2000 for window in sound]
    ratio = statistics.median(peer) / statistics.median(ours)
    missed = sum(not window.is_covered for window in checked)
    late = statistics.median(window.window.missed_pct for window in checked)
    return [
        Row(f"error within a window, {case.name}", middle(ours, "µs"),
            "" if case.least is None else f"≤ 1/{case.least:.0f} of the peer's",
            None if case.least is None else ratio >= case.least,
            f"least RTT {middle(peer, 'µs', 1)}, {ratio:.0f} times as much", 1 / ratio),
        Row(f"bound at its middle, {case.name}", middle(bounds, "µs", 1),
            f"≤ 1.3 × half of the minimum RTT, and {_SLACK_US:.1f} µs for wander and reading clocks",
            statistics.median(bounds) - _SLACK_US <= BOUND_GOAL * statistics.median(halves),
            f"half RTT {middle(halves, 'µs', 1)}", statistics.median(bounds) / statistics.median(halves)),
        Row(f"windows with the truth outside the bound, {case.name}",
            f"{missed} of {len(checked)} ({len(checked) - len(sound)} without a bound;"
            f" {late:.0f} % of the ticks missed)",
            "0", missed == 0),
    ]  # fmt: skip
