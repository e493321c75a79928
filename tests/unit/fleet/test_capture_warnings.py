"""Captures repeat while a job stands still: a node without a connection is in their result, not in Events each time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from gconsole.config import load
from gconsole.core.bus import Hub
from gconsole.core.control import CaptureRequest, new_capture
from gconsole.fleet.fleet import Fleet
from gconsole.records import Log, NodeState, Record


async def test_capture_of_a_node_that_is_not_connected_is_a_failure_without_an_event(tmp_path: Path):
    hosts = tmp_path / "hosts.toml"
    hosts.write_text('[[nodes]]\nhosts = "away"\naddress = "127.0.0.1"\nport = 9\n')
    hub, published, has_failed = Hub(), list[Record](), asyncio.Event()

    def collect(records: Sequence[Record]) -> None:
        published.extend(records)
        if any(isinstance(record, NodeState) and record.state == "failed" for record in records):
            has_failed.set()

    hub.subscribe(collect)
    fleet = Fleet(load(str(hosts), environ={}), hub)
    await fleet.start()
    try:
        await asyncio.wait_for(has_failed.wait(), 60.0)
        result = await fleet.capture(CaptureRequest(new_capture()))
    finally:
        await fleet.stop()
    assert result.failures["away"].text == "away is not connected: failed"
    assert not [record for record in published if isinstance(record, Log) and "capture" in record.text]
