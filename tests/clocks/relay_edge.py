"""One edge over real sockets: a far end with known clock errors, and a delaying relay in between."""

from __future__ import annotations

import importlib
import os
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from skewed_clocks import ClockError, ClockErrors, copy_with_wrong_clock

from gconsole.analysis.clock.pair_bounds import EdgeWindow, edge_window
from gconsole.records import ClockBins

from .probe_agents import Agent, listen, peer, probe, wait_for
from .relay import Delay, Relay

NEAR, FAR = "near", "far"


@dataclass(frozen=True)
class MeasuredWindow:
    """A window as the product measured it, and the known clock errors."""

    window: EdgeWindow
    records: list[ClockBins]
    clock_errors: ClockErrors

    def error_ns(self, instant: int) -> float:
        """The error of the line at an instant of the near clock."""
        return abs(self.window.y0 + self.window.at(instant)[1] - self._true(instant))

    def is_covered(self, instant: int) -> bool:
        low, _, high = self.window.at(instant)
        return low <= self._true(instant) - self.window.y0 <= high

    def least_rtt_error_ns(self, instant: int) -> float:
        """The error of the usual estimate: the midpoint of the exchange with the minimum RTT, for the whole window."""
        best = min(
            (exchange.rtt, record.ahead + exchange.ahead - exchange.rtt / 2)
                   for record in self.records for row in record.bins for exchange in row.best
        )  # fmt: skip
        return abs(best[1] - self._true(instant))

    @property
    def ends(self) -> tuple[int, int]:
        half = self.window.width_ns // 2
        return self.window.x0 - half, self.window.x0 + half

    def _true(self, instant: int) -> float:
        return self.clock_errors.offset_between_ns(NEAR, FAR, instant)


@contextmanager
def far_agent(folder: Path, wrong: ClockError) -> Iterator[tuple[Agent, ClockErrors]]:
    """An agent whose package is a copy of the product's, with clock errors."""
    name = f"gconsole_far_{secrets.token_hex(4)}"
    copied = copy_with_wrong_clock(folder / name, {os.uname().nodename: wrong})
    sys.path.insert(0, str(folder))
    try:
        agent = Agent(importlib.import_module(f"{name}.clocks.commands").ProbeService)
        yield agent, ClockErrors(copied.epoch, {FAR: wrong})
        agent.probes.stop()
    finally:
        sys.path.remove(str(folder))
        for module in [module for module in sys.modules if module.partition(".")[0] == name]:
            del sys.modules[module]


def measure_window(
    folder: Path, wrong: ClockError, forward: Delay, backward: Delay, seed: int, **pace: int
) -> MeasuredWindow:
    """Probe for one window of about 4 s."""
    near, key = Agent(), secrets.token_hex(16)
    with far_agent(folder, wrong) as (far, clock_errors):
        ports = [listen(agent) for agent in (near, far)]
        relay = Relay(ports[0]["port"], ports[1]["port"], forward, backward, seed)
        relay.start()
        try:
            probe(far, [peer(relay.far_port, key, probes=False, name=NEAR)], **pace)
            probe(near, [peer(relay.near_port, key, probes=True, name=FAR)], **pace)
            wait_for(lambda: sum(len(fields["bins"]) for fields in near.posted("clock_bins")) >= 35)
        finally:
            near.probes.stop()
            relay.close()
    records = [decode(fields) for fields in near.posted("clock_bins")]
    return MeasuredWindow(edge_window(records), records, clock_errors)


def decode(fields: dict[str, Any]) -> ClockBins:
    return msgspec.convert({"kind": "clock_bins", "node": NEAR, **fields}, ClockBins)
