"""Evaluates one window of one edge against the truth, and against the usual estimator: the minimum-RTT exchange."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from statistics import median

import numpy as np

from gconsole.analysis.clock.pair_bounds import EdgeWindow, edge_window

from .synthetic import FAR, NEAR, Clock, Path, Stamps, bins, measure


@dataclass(frozen=True)
class WindowErrors:
    """Errors in ns: at the middle of the window, and the maximum within it; of the product and the usual estimator."""

    centre: float
    edge: float
    peer_centre: float
    peer_edge: float
    bound: float | None
    half_rtt: float  # of the fastest exchange
    is_covered: bool | None  # whether the truth is within the bound at both ends and in the middle; None: no bound
    status: str


def evaluate_window(stamps: Stamps) -> WindowErrors:
    """Evaluate one window."""
    window = edge_window(bins(stamps))
    instants = np.array([stamps.t1[0], window.x0, stamps.t1[-1]], dtype=np.int64)
    truth = stamps.ahead(instants)
    base = stamps.far.reads - stamps.near.reads
    error = np.abs(_line(window, instants) - base - truth)
    peer = np.abs(stamps.least_rtt_line() - truth)
    bound = window.bound_ns
    return WindowErrors(
        float(error[1]), float(error.max()), float(peer[1]), float(peer.max()), bound,
        (window.min_rtt_ns or 0) / 2,
        None if bound is None else _is_covered(window, instants, truth + base, float(error[1])), window.status,
    )  # fmt: skip


def _line(window: EdgeWindow, instants: np.ndarray) -> np.ndarray:
    assert window.line is not None
    slope, offset = window.line
    return window.y0 + offset + slope * (instants - window.x0)


def _is_covered(window: EdgeWindow, instants: np.ndarray, truth: np.ndarray, error: float) -> bool:
    inside = all(
        low <= true - window.y0 <= high
        for instant, true in zip(instants.tolist(), truth.tolist(), strict=True)
        for low, _, high in [window.at(instant)]
    )
    assert window.bound_ns is not None
    return inside and error <= window.bound_ns


@cache
def evaluate_windows(path: Path, count: int = 12, ppm: float = FAR.ppm, **how: int) -> tuple[WindowErrors, ...]:
    """Windows of one path, each with its own seed; cached, because several tests read the same ones."""
    far = Clock(FAR.reads, ppm)
    return tuple(evaluate_window(measure(path, seed, near=NEAR, far=far, **how)) for seed in range(count))


def median_of(results: Sequence[WindowErrors], name: str) -> float:
    """The median of one field over windows."""
    return float(median(getattr(result, name) for result in results))
