"""What a person does to the fleet while it runs: nodes added, removed, reconnected, examined; hosts.toml followed."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
from textual.app import App

from ...config.diff import Changes
from ...config.model import ConfigError
from ...config.watch_file import HostsFile
from ...core.control import Control
from ...monitor import node_exam
from ...text.nodeset_fold import fold
from ..dialogs.prompts import Confirm, LinesDialog, Prompt


class Care:
    """Acts on the fleet and says what it did. `hosts` is the file to follow, where there is one."""

    def __init__(self, app: App[Any], control: Control, hosts: HostsFile | None) -> None:
        self._app, self._control, self._hosts = app, control, hosts

    async def reconnect(self, nodes: Sequence[str]) -> None:
        """Connect to these nodes again."""
        found = []
        for node in nodes:
            try:
                await self._control.reconnect(node)
                found.append(node)
            except KeyError:
                self._warn(f"{node} is not of this fleet any more")
        if found:
            self._say(f"connecting to {fold(found)} again")

    def remove(self, node: str) -> None:
        """Let go of a node, once the person has said so twice."""

        async def answered(yes: bool | None) -> None:
            if yes:
                await self._remove(node)

        words = f"{node} is let go of, and its agent ends. Its records stay. No key brings it back; add it by name."
        self._app.push_screen(Confirm(f"Remove {node}?", words, "removes it"), answered)

    async def _remove(self, node: str) -> None:
        try:
            await self._control.remove_node(node)
        except KeyError:
            self._warn(f"{node} is gone already")
            return
        self._say(f"{node} removed; its records stay")

    def add(self) -> None:
        """Ask for a node set, and connect to its nodes."""
        words = "Their names. [ssh] and [agent] hold for them. This session knows them; hosts.toml stays as it is."
        self._app.push_screen(
            Prompt("Add nodes", words, enter="connects", escape="leaves it", hint="node[05-08],ops@gpu-a:2222,@rack3"),
            self._add,
        )

    async def _add(self, names: str | None) -> None:
        if names is None or not names.strip():
            return
        try:
            added = await self._control.add_nodes(names.strip())
        except ConfigError as error:
            self._warn(str(error))
            return
        self._say(f"connecting to {fold(added)}" if added else "these nodes are all here already")

    def examine(self, nodes: Sequence[str]) -> None:
        """Let the doctor look at these nodes, and show what it found."""
        dialog = LinesDialog("Health check", [f"asking {fold(nodes)} …" if nodes else "there is no node to ask"])
        self._app.push_screen(dialog)
        if nodes:
            self._app.run_worker(self._examine(nodes, dialog), name="health check")

    async def _examine(self, nodes: Sequence[str], dialog: LinesDialog) -> None:
        try:
            exams = node_exam.examine(await self._control.examine(nodes))
        except msgspec.ValidationError as error:
            dialog.tell([f"an answer cannot be read: {error}"])
            return
        dialog.tell(node_exam.to_text(exams).splitlines())

    async def follow(self) -> None:
        """Read hosts.toml again where it has been saved. A file that cannot be read changes nothing but says why."""
        if self._hosts is None or not self._hosts.is_saved():
            return
        try:
            config = await asyncio.to_thread(self._hosts.read)
        except ConfigError as error:
            self._app.notify(f"{error}; the fleet stays as it was", severity="error", timeout=10, markup=False)
            return
        changes = await self._control.apply(config)
        if changes:
            self._say(_told(changes), timeout_s=6)

    def _say(self, text: str, timeout_s: float = 3) -> None:
        self._app.notify(text, timeout=timeout_s, markup=False)

    def _warn(self, text: str) -> None:
        self._app.notify(text, severity="warning", markup=False)


def _told(changes: Changes) -> str:
    """What a newer hosts.toml did, in one sentence."""
    parts = [
        f"{fold(names)} {word}"
        for word, names in (
            ("added", [node.name for node in changes.added]), ("removed", list(changes.removed)),
            ("connected anew", [node.name for node in changes.changed]),
        )
        if names
    ]  # fmt: skip
    parts += [f"{key} has an effect at the next start" for key in changes.next_start]
    return f"hosts.toml: {', '.join(parts)}"
