"""Binaries on their way to nodes: a console that ends before they have started leaves nothing behind."""

from __future__ import annotations

import asyncio
import gc
import warnings
from types import SimpleNamespace
from typing import cast

from gconsole.fleet.assets import Assets
from gconsole.fleet.link import Link
from gconsole.fleet.staging import Staging
from gconsole.hub import Hub


def test_a_binary_that_was_wanted_in_the_last_moment_leaves_no_warning() -> None:
    link = cast(Link, SimpleNamespace(node=SimpleNamespace(name="node1"), agent_id="a"))  # is never asked anything

    async def ends_at_once() -> None:
        staging = Staging(Hub(), Assets())
        staging.stage_py_spy(link)
        await staging.close()

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        asyncio.run(ends_at_once())
        gc.collect()
    assert [str(one.message) for one in told if "never awaited" in str(one.message)] == []
