"""Changing the fleet while it runs: add, remove, reconnect and examine nodes; follow hosts.toml."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from ...config.diff import Changes, HostsFile
from ...config.model import ConfigError
from ...core.control import Control
from ...monitor import doctor
from ...text.nodeset_fold import fold
from ..dialogs.dialog import LinesDialog
from ..dialogs.prompts import Confirm, Prompt
from ..models.node_summary import NodeSummary
from . import Controller

if TYPE_CHECKING:
    from ..app import ConsoleApp

_ON_SELECTED_NODE = ("reconnect", "remove", "examine")


class NodeController(Controller):
    """Acts on the fleet and reports the result. `hosts` is the hosts.toml to follow, if any."""

    def __init__(self, app: ConsoleApp, control: Control, hosts: HostsFile | None) -> None:
        self._app, self._control, self._hosts = app, control, hosts

    @property
    def failed(self) -> list[NodeSummary]:
        """Nodes that are not connected, in their last state."""
        nodes = self._app.frame.fleet.nodes
        return [node for node in nodes if node.status in ("failed", "stale") and not node.fresh]

    @property
    def _selected(self) -> str | None:
        """The node under the cursor of the view on the screen."""
        return self._app.view.selected_node if self._app.views.opened else None

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Dim actions on the selected node while none is selected."""
        return True if action not in _ON_SELECTED_NODE or self._selected else None

    async def action_reconnect(self) -> None:
        """Reconnect the selected node now."""
        if self._selected is not None:
            await self.reconnect([self._selected])

    async def action_reconnect_failed(self) -> None:
        """Reconnect all disconnected nodes."""
        await self.reconnect([node.name for node in self.failed])

    def action_add(self) -> None:
        """Prompt for a node set, and connect to its nodes."""
        text = (
            "Node names; [ssh] and [agent] of hosts.toml apply to them. They are added to this session only, "
            "not to hosts.toml."
        )
        hint = "node[05-08],ops@gpu-a:2222,@rack3"
        self._app.push_screen(Prompt("Add nodes", text, enter="connect", hint=hint), self._add)

    def action_remove(self) -> None:
        """Remove the selected node, after a confirmation."""
        if self._selected is not None:
            self.remove(self._selected)

    def action_examine(self) -> None:
        """Run the health check on the selected node."""
        if self._selected is not None:
            self._examine_in_dialog([self._selected])

    def action_examine_all(self) -> None:
        """Run the health check on every node."""
        self._examine_in_dialog([node.name for node in self._app.frame.fleet.nodes])

    async def reconnect(self, nodes: Sequence[str]) -> None:
        """Reconnect these nodes now."""
        connecting = []
        for node in nodes:
            try:
                await self._control.reconnect(node)
                connecting.append(node)
            except KeyError:
                self._warn(f"{node} was removed from the fleet; add it to connect again")
        if connecting:
            self._notify(f"reconnecting {fold(connecting)}")

    def remove(self, node: str) -> None:
        """Remove a node, after a confirmation."""

        async def confirmed(yes: bool | None) -> None:
            if yes:
                await self._remove(node)

        text = f"Disconnects {node} and stops its agent. Its data is kept. To undo, add the node by name."
        self._app.push_screen(Confirm(f"Remove {node}?", text, "remove"), confirmed)

    async def _remove(self, node: str) -> None:
        try:
            await self._control.remove_node(node)
        except KeyError:
            self._warn(f"{node} was already removed")
            return
        self._notify(f"{node} removed; its data is kept")

    async def _add(self, names: str | None) -> None:
        if names is None or not names.strip():
            return
        try:
            added = await self._control.add_nodes(names.strip())
        except ConfigError as error:
            self._warn(str(error))
            return
        self._notify(f"connecting to {fold(added)}" if added else "all of these nodes are already in the fleet")

    def _examine_in_dialog(self, nodes: Sequence[str]) -> None:
        dialog = LinesDialog("Health check", [f"checking {fold(nodes)} …" if nodes else "no nodes to check"])
        self._app.push_screen(dialog)
        if nodes:
            self._app.run_worker(self._examine(nodes, dialog), name="health check")

    async def _examine(self, nodes: Sequence[str], dialog: LinesDialog) -> None:
        try:
            exams = doctor.examine(await self._control.examine(nodes))
        except msgspec.ValidationError as error:
            dialog.show_lines([f"invalid response: {error}"])
            return
        dialog.show_lines(doctor.to_text(exams).splitlines())

    async def follow_hosts_file(self) -> None:
        """Apply hosts.toml after it was saved; an invalid file is reported and changes nothing."""
        if self._hosts is None or not self._hosts.is_saved():
            return
        try:
            config = await asyncio.to_thread(self._hosts.read)
        except ConfigError as error:
            self._app.notify(f"{error}; fleet unchanged", severity="error", timeout=10, markup=False)
            return
        changes = await self._control.apply(config)
        if changes:
            self._notify(_summary(changes), timeout_s=6)

    def _notify(self, text: str, timeout_s: float = 3) -> None:
        self._app.notify(text, timeout=timeout_s, markup=False)

    def _warn(self, text: str) -> None:
        self._app.notify(text, severity="warning", markup=False)


def _summary(changes: Changes) -> str:
    """What a newer hosts.toml changed, in one sentence."""
    parts = [
        f"{fold(names)} {word}"
        for word, names in (
            ("added", [node.name for node in changes.added]), ("removed", list(changes.removed)),
            ("reconnected", [node.name for node in changes.changed]),
        )
        if names
    ]  # fmt: skip
    parts += [f"{key} applied" for key in changes.followed]
    parts += [f"{key} takes effect after a restart" for key in changes.next_start]
    return f"hosts.toml: {', '.join(parts)}"
