"""Staging of binaries on nodes: a console that exits before it starts leaves no tasks behind."""

from __future__ import annotations

import asyncio
import gc
import warnings
from types import SimpleNamespace
from typing import cast

import pytest

from gconsole.core.bus import Hub
from gconsole.fleet.deploy.binaries import Binaries
from gconsole.fleet.deploy.send_binaries import Staging
from gconsole.fleet.node_link import NodeLink


def test_staging_closed_immediately_leaves_no_unawaited_coroutine_warning() -> None:
    link = cast(NodeLink, SimpleNamespace(node=SimpleNamespace(name="node1"), agent_id="a"))  # receives no request

    async def ends_at_once() -> None:
        staging = Staging(Hub(), Binaries())
        staging.stage_py_spy(link)
        await staging.close()

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        asyncio.run(ends_at_once())
        gc.collect()
    assert [str(one.message) for one in caught if "never awaited" in str(one.message)] == []


class _Node:
    """A fake node on which py-spy is already present."""

    def __init__(self) -> None:
        self.node, self.agent_id = SimpleNamespace(name="node1"), ""

    async def request(self, verb: str, args: object, deadline_s: float) -> list[str]:
        return []


@pytest.mark.slow
def test_replaced_agents_leave_no_tasks_behind_in_staging() -> None:
    node = _Node()

    async def held_after(agents: int) -> int:
        staging = Staging(Hub(), Binaries())
        for number in range(agents):
            node.agent_id = f"agent{number}"
            staging.stage_py_spy(cast(NodeLink, node))
            await staging.settle(cast(NodeLink, node), timeout_s=30.0)
        gc.collect()
        held = sum(isinstance(get_object, asyncio.Task) for get_object in gc.get_objects())
        assert staging.staged == agents
        await staging.close()
        return held

    assert asyncio.run(held_after(50)) == asyncio.run(held_after(2))
