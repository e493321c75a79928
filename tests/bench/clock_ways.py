"""How well one edge is measured over real sockets and ways that delay, beside the exchange of least round trip."""

from __future__ import annotations

import os
import statistics
import tempfile
from pathlib import Path

from shifted import Wrong

from ..clocks.relay import Delay, jitter, queue
from ..clocks.relayed import Seen, seen
from .result import Outcome, Row, middle

WINDOWS = 10
DRIFTING = Wrong(5_000_000, 20_000)
_US = 1e-6
WAYS: dict[str, tuple[Delay, Delay]] = {
    "relay alone": (jitter(0.0, 0.0), jitter(0.0, 0.0)),
    "100 ± 50 µs both ways": (jitter(100 * _US, 50 * _US), jitter(100 * _US, 50 * _US)),
    "queue, 50 µs + 60 % Exp(100 µs)": (queue(50 * _US, 100 * _US, 0.6), queue(50 * _US, 100 * _US, 0.6)),
}


def measure(quick: bool) -> Outcome:
    count = 1 if quick else WINDOWS
    rows = []
    for name, way in WAYS.items():
        found = [_window(*way, seed) for seed in range(count)]
        ours, peer = ([max(error(at) for at in one.ends) / 1000 for one, error in pairs] for pairs in (
            [(one, one.error_ns) for one in found], [(one, one.least_rtt_error_ns) for one in found],
        ))  # fmt: skip
        bounds = [one.window.bound_ns / 1000 for one in found if one.window.bound_ns is not None]
        halves = [(one.window.min_rtt_ns or 0) / 2000 for one in found]
        missed = sum(not one.is_covered(at) for one in found for at in (*one.ends, one.window.x0))
        rows += [
            Row(f"error at the ends of a window, {name}", middle(ours, "µs", 1),
                peer=f"least RTT {middle(peer, 'µs', 1)}",
                ratio=statistics.median(ours) / statistics.median(peer)),
            Row(f"bound at its middle, {name}", middle(bounds, "µs", 1), "≤ 1.3 × half of the least RTT",
                statistics.median(bounds) <= 1.3 * statistics.median(halves), f"half RTT {middle(halves, 'µs', 1)}",
                statistics.median(bounds) / statistics.median(halves)),
            Row(f"instants outside of the bound, {name}", f"{missed} of {3 * len(found)}", "0", missed == 0),
        ]  # fmt: skip
    return Outcome(
        rows,
        [
            "two probing threads and a relay in one process on loopback, 5 ms, kernel stamps on arrival; the far clocks"
            " are 5 ms ahead and 20 ppm fast; the relay draws its delays from a seeded distribution, to which its own"
            " waking up adds, and that of threads that share an interpreter",
            f"windows of about 4 s, load average {os.getloadavg()[0]:.1f} on {len(os.sched_getaffinity(0))} cores",
        ],
    )


def _window(there: Delay, back: Delay, seed: int) -> Seen:
    with tempfile.TemporaryDirectory() as scratch:
        return seen(Path(scratch), DRIFTING, there, back, seed)
