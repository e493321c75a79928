"""Actions on the selected node, or on all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..models.node_summary import NodeSummary
from ..snapshot import Frame
from ..views.base import View
from .nodes import Care


class NodeActions:
    """A part of the app: what its keys and its palette do to nodes."""

    care: Care
    frame: Frame

    if TYPE_CHECKING:  # the app has it, and comes after this among its bases

        @property
        def view(self) -> View:
            """The view on the screen."""

    def troubled_nodes(self) -> list[NodeSummary]:
        """Nodes that are not here, as last seen."""
        return [node for node in self.frame.fleet.nodes if node.status in ("failed", "stale")]

    async def action_reconnect(self) -> None:
        """Connect to the selected node again."""
        node = self.view.selected_node
        if node is not None:
            await self.care.reconnect([node])

    async def action_reconnect_failed(self) -> None:
        """Connect again to every node that is not here."""
        await self.care.reconnect([node.name for node in self.troubled_nodes()])

    def action_add_nodes(self) -> None:
        """Ask for a node set."""
        self.care.add()

    def action_remove(self) -> None:
        """Let go of the selected node, after a question."""
        if self.view.selected_node is not None:
            self.care.remove(self.view.selected_node)

    def action_examine(self) -> None:
        """Let the doctor look at the selected node."""
        if self.view.selected_node is not None:
            self.care.examine([self.view.selected_node])

    def action_examine_all(self) -> None:
        """Let the doctor look at every node."""
        self.care.examine([node.name for node in self.frame.fleet.nodes])
