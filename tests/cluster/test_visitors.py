"""`gconsole serve`: several browsers over one console, with one SSH session per node."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from chromium import PROGRAM, chromium
from rig import Node, Rig
from serving import WebSocketClient, serving


def agents(node: Node) -> int:
    """Agents that run on a node: each console has one of its own there."""
    return sum("gconsole-agent" in line for line in node.ps().splitlines())


@pytest.mark.skipif(PROGRAM is None, reason="Chromium is not installed")
async def test_two_browsers_with_views_of_their_own_share_one_ssh_session_per_node(rig: Rig, tmp_path: Path) -> None:
    nodes = rig.nodes[:2]
    hosts = rig.write_hosts_toml(tmp_path / "hosts.toml", only=[node.name for node in nodes])
    before = [node.logins() for node in nodes]
    with serving(hosts.name, "--visitors", "2", cwd=tmp_path) as (_, address):
        async with chromium(tmp_path / "profile") as browser, browser(address) as first:
            await first.until(lambda: "2/2 nodes" in first.output, "the console was not drawn")
            async with browser(address) as second:
                await second.until(lambda: "2/2 nodes" in second.output, "the second screen was not drawn")
                await first.press("?", "Slash", "?")
                await first.until(lambda: "Everywhere" in first.output, "the key of the first did not arrive")
                assert "Everywhere" not in second.output
                await second.press("s", "KeyS", "s")
                await second.until(lambda: "read-only: visitors" in second.output, "nothing was refused")
                async with WebSocketClient(address) as third:
                    assert await third.redirect_target() == "busy"
            first.clear_output()  # the second has gone in the middle
            await first.press("q", "KeyQ", "q")  # closes the list of keys
            await first.until(lambda: "connected" in first.output, "the first was harmed")
        assert [node.logins() - count for node, count in zip(nodes, before, strict=True)] == [1, 1]
        assert [agents(node) for node in nodes] == [1, 1]
    async with asyncio.timeout(30):
        while any(agents(node) for node in nodes):  # noqa: ASYNC110 - another machine's process table has no event
            await asyncio.sleep(0.1)
