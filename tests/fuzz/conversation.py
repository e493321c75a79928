"""A protocol conversation with receiver, hub and store, without a network: takes bytes and checks the results."""

from __future__ import annotations

import math
from collections.abc import Sequence
from unittest import mock

import msgspec

from gconsole.config.model import NodeConfig
from gconsole.core.bus import Hub, Published
from gconsole.core.store import Store
from gconsole.fleet import record_receiver
from gconsole.fleet.agent_connection import AgentConnection
from gconsole.fleet.quotas import TokenBucket
from gconsole.fleet.record_receiver import RecordReceiver
from gconsole.fleet.rpc import Rpc
from gconsole.records import decode, encode
from gconsole.session.format import zstd_frames
from gconsole.session.format.writer import count_records
from gconsole.text.sanitize import printable_lines
from gconsole.transport.errors import Internal

NODE, CAPTURE = "node1", "c1"
HELLO = {"gconsole": {"protocol": [1, 1], "agent": "a" * 16, "arch": "x86_64", "wanted": []}}


class FuzzedConversation:
    """One node's side of a conversation. `check` raises if something happened that a node must not be able to cause."""

    def __init__(self) -> None:
        self.hub, self.store = Hub(), Store()
        self.records: list[Published] = []
        self.hub.subscribe(self.store.apply)
        self.hub.subscribe(self._keep)
        self.staged: list[str] = []
        node = NodeConfig(name=NODE)
        self.warnings: list[str] = []
        self.receiver = RecordReceiver(NODE, self.hub, self.warnings.append)
        self.receiver.quota.expect(CAPTURE)
        self.rpc = Rpc(lambda frame: None)
        self.connection = AgentConnection(
            node,
            self.hub,
            self.receiver,
            self.rpc,
            lambda hello: self.staged.extend(hello.wanted),
            self.warnings.append,
        )
        self.connection._fair_reader._share = TokenBucket(math.inf, math.inf)

    def receive(self, data: bytes) -> None:
        """Receive bytes from the node."""
        with mock.patch.object(record_receiver, "SLICE_S", math.inf):  # no slices: there is no event loop here
            self.connection.on_bytes(data)

    def send_hello(self) -> None:
        self.receive(msgspec.json.encode(HELLO) + b"\n")

    def _keep(self, records: Sequence[Published]) -> None:
        self.records += records

    def check(self) -> None:
        """All records belong to this node or the console, survive a round trip, and no other node exists."""
        for record in self.records:
            assert record.node in (NODE, ""), f"it spoke as {record.node!r}"
            again = decode(encode(record))
            assert encode(again) == encode(record)
        assert set(self.store.nodes) <= {NODE}, "it created a node"
        if self.records:
            counts = count_records(self.records)
            packed = zstd_frames.pack(
                [encode(record) for record in self.records], counts.kinds, counts.first_rx, counts.last_rx
            )
            assert zstd_frames.MAGIC in packed[:4]
        assert not isinstance(self.connection.failure, Internal), self.connection.failure
        for text in self.warnings:
            assert printable_lines(text) == text, f"a warning with control characters: {text!r}"
        assert len(self.staged) <= 8, "it made the console send more than expected"
