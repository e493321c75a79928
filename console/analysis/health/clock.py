"""A node's clock that jumped, seen by the two stamps that every tick has: no probe is needed for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..finding import FindingDraft
from .state import HealthState

if TYPE_CHECKING:
    from ...config.sections import HealthConfig


def clock_step(facts: HealthState, limits: HealthConfig) -> Iterator[FindingDraft]:
    """Nodes whose CLOCK_REALTIME jumped within the last `window_s` seconds, by a tenth of a second or more.

    Probes find smaller steps under the same name.
    """
    for name, node in facts.nodes.items():
        clock = node.clock
        if clock is not None and clock.set_at is not None and facts.newest - clock.set_at <= limits.window_s * 1e9:
            by = f"{clock.set_by_ns / 1e9:+,.3f} s"
            yield FindingDraft(
                "clock_step", "warning", "certain", (name,),
                f"{name}: its CLOCK_REALTIME jumped by {by}, as when it is set or the machine was suspended: stamps of"
                " logs and jobs jump with it",
                (f"agent_cost.t {name} {by} against agent_cost.mono",),
            )  # fmt: skip
