"""Clock steps of a node, from the two timestamps of every tick, without probes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..finding import FindingDraft
from .state import HealthState

if TYPE_CHECKING:
    from ...config.sections import HealthConfig


def clock_step(facts: HealthState, limits: HealthConfig) -> Iterator[FindingDraft]:
    """Nodes whose CLOCK_REALTIME was stepped by 100 ms or more within the last `window_s` seconds.

    Probes find smaller steps, under the same id.
    """
    for name, node in facts.nodes.items():
        clock = node.clock
        if clock is not None and clock.set_at is not None and facts.newest - clock.set_at <= limits.window_s * 1e9:
            by = f"{clock.set_by_ns / 1e9:+,.3f} s"
            yield FindingDraft(
                "clock_step", "warning", "certain", (name,),
                f"{name}: CLOCK_REALTIME was stepped by {by} (set, or machine suspended); timestamps of"
                " logs and jobs step, too",
                (f"agent_cost.t {name} {by} against agent_cost.mono",),
            )  # fmt: skip
