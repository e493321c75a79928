"""The instant from which the runtime of a job counts."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import pytest

from gconsole.config import Config
from gconsole.core.bus import Hub
from gconsole.core.job_protocol import NodeOrder
from gconsole.fleet import job_requests
from gconsole.fleet.fleet import Fleet
from gconsole.records import Failure


async def test_runtime_does_not_include_the_time_for_which_a_plan_was_read(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[NodeOrder] = []

    async def start(links: Any, orders: Mapping[str, NodeOrder]) -> Mapping[str, Failure]:
        sent.extend(orders.values())
        return {}

    monkeypatch.setattr(job_requests, "start", start)
    planned = NodeOrder(
        job="job", index=0, nodes=("n1",), command=("true",), launcher="env", procs_per_node=1, gpus_per_node=0,
        world_size=1, master_addr="n1", master_port=29500, workdir=None, created=1, env={}, commands=(),
    )  # fmt: skip
    before = time.time_ns()
    await Fleet(Config(cluster="lab", nodes=()), Hub(), allow_run=True).start_job({"n1": planned})
    assert before <= sent[0].created <= time.time_ns()
