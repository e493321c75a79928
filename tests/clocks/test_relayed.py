"""Real sockets, real threads, and a delaying relay: the truth is within the bound on all kinds of paths."""

from __future__ import annotations

from pathlib import Path

import pytest
from skewed_clocks import ClockError

from .relay import jitter, lossy, queue
from .relay_edge import measure_window

US = 1e-6
DRIFTING = ClockError(5_000_000, 20_000)  # 5 ms ahead, and 20 ppm fast
DELAYS = {
    "jitter": (jitter(100 * US, 50 * US), jitter(100 * US, 50 * US)),
    "queue": (queue(50 * US, 100 * US, 0.6), queue(50 * US, 100 * US, 0.6)),
    "asymmetric by 50 us": (jitter(150 * US, 10 * US), jitter(100 * US, 10 * US)),
    "50 % loss in one direction": (lossy(0.5, jitter(100 * US, 50 * US)), jitter(100 * US, 50 * US)),
}


@pytest.mark.parametrize("name", DELAYS)
def test_true_offset_is_within_the_bound_on_every_kind_of_path(tmp_path: Path, name: str) -> None:
    forward, backward = DELAYS[name]
    measured = measure_window(tmp_path, DRIFTING, forward, backward, seed=7)

    window = measured.window
    assert (window.status, window.stamps) == ("ok", "kernel_rx")
    for instant in (*measured.ends, window.x0):
        assert measured.is_covered(instant)
    assert window.bound_ns is not None and measured.error_ns(window.x0) <= window.bound_ns
    assert window.region is not None and window.line is not None
    slopes = window.region.slopes
    assert abs(window.line[0] - 20e-6) <= max(slopes[-1] - window.line[0], window.line[0] - slopes[0])
    if "lost" in name:
        assert 0.3 < window.lost / window.sent < 0.7
