"""A node's clock that was set, seen by the two stamps that every tick has: no probe is needed for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..facts import Facts
from ..found import Found

if TYPE_CHECKING:
    from ...config.sections import HealthConfig


def clock_step(facts: Facts, limits: HealthConfig) -> Iterator[Found]:
    """Nodes whose CLOCK_REALTIME was set within the last `window_s`; probes find smaller steps under the same name."""
    for name, node in facts.nodes.items():
        clock = node.clock
        if clock is not None and clock.set_at is not None and facts.newest - clock.set_at <= limits.window_s * 1e9:
            by = f"{clock.set_by_ns / 1e9:+,.3f} s"
            yield Found(
                "clock_step", "warning", "certain", (name,),
                f"{name}: its CLOCK_REALTIME was set by {by} while it was watched: stamps of logs and jobs jump there",
                (f"agent_cost.t {name} {by} against agent_cost.mono",),
            )  # fmt: skip
