"""A channel to a node of which nothing is known but what it sends."""

from __future__ import annotations

from gconsole.config.model import NodeConfig


class QuietChannel:
    """What all stand-in channels have in common."""

    def unacked(self, silent_s: float) -> None:
        return None

    async def answers(self, node: NodeConfig | None = None) -> bool | None:
        return None

    def is_relay_late(self) -> bool:
        return False

    def close(self) -> None: ...
