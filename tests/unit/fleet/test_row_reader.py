"""Records that come as rows are those of the objects that they stand for, and pass the same checks."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from session_builders import any_record

from gconsole.config.model import NodeConfig
from gconsole.core.bus import Hub, Published
from gconsole.fleet import agent_connection, quotas
from gconsole.fleet.agent_connection import AgentConnection
from gconsole.fleet.record_receiver import RecordReceiver
from gconsole.fleet.rpc import Rpc
from gconsole.records import KINDS, Gap, RawRecord, encode
from gconsole.records.kinds import SPECS
from gconsole.records.rows import LISTED, RESERVED, Layout, column_order
from gconsole_remote.agent.outbox import Outbox
from gconsole_remote.agent.rows import ColumnOrder

ROOMY = 1 << 24
GPU = {"layout": 0, "kind": "gpu", "names": ["index", "uuid", "util_pct"]}


class Channel:
    """What the console writes to the node."""

    def __init__(self) -> None:
        self.frames: list[Any] = []

    def write(self, data: bytes) -> None:
        self.frames += map(json.loads, data.splitlines())

    def pause(self) -> None:
        pass

    def resume(self) -> None:
        pass

    def close(self) -> None:
        pass


class Node:
    """A connection of one node, whose bytes are given to `send`."""

    def __init__(self) -> None:
        hub = Hub()
        self.published: list[Published] = []
        self.warnings: list[str] = []
        self.sizes: list[int] = []
        self.channel = Channel()
        hub.subscribe(self._keep)
        self.receiver = RecordReceiver("node1", hub, self.warnings.append)
        refusal = self.receiver.quota.refusal

        def noted(record: Any, size: int) -> str | None:
            self.sizes.append(size)
            return refusal(record, size)

        self.receiver.quota.refusal = noted  # type: ignore[method-assign]
        node = NodeConfig(name="node1")
        self.connection = AgentConnection(
            node, hub, self.receiver, Rpc(print), lambda hello: None, self.warnings.append
        )
        self.connection.channel = self.channel  # type: ignore[assignment]
        self.send({"gconsole": {"protocol": [1, 1], "agent": "a", "arch": "x86_64"}})

    def _keep(self, records: Sequence[Published]) -> None:
        self.published += records

    def send(self, *frames: Any) -> None:
        self.connection.on_bytes(b"".join(msgspec.json.encode(frame) + b"\n" for frame in frames))

    def send_lines(self, data: bytes) -> None:
        self.connection.on_bytes(data)

    @property
    def records(self) -> list[Published]:
        return [record for record in self.published if not isinstance(record, Gap)]

    @property
    def gaps(self) -> list[tuple[str, str, int | None]]:
        return [(gap.source, gap.reason, gap.count) for gap in self.published if isinstance(gap, Gap)]


@pytest.fixture(autouse=True)
async def _no_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gconsole.fleet.record_receiver.SLICE_S", 60.0)
    monkeypatch.setattr(agent_connection.quotas, "fair_share", lambda: quotas.TokenBucket(1e9, 1e9))


def sent_by_agent(facts: list[tuple[str, dict[str, Any]]], order: dict[str, list[str]] | None) -> bytes:
    """What an agent sends of records of three instants."""
    outbox = Outbox(ROOMY, keep=False)
    turn = outbox.rewind(0, ColumnOrder(order) if order else None)
    for _ in range(3):
        outbox.post(facts)
    return outbox.next_bytes(turn, 0.0, 0.0) or b""


def without_stamps(record: Published) -> bytes:
    if isinstance(record, RawRecord):
        return record.raw
    return encode(msgspec.structs.replace(record, t=0, mono=0, rx=0))


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_rows_are_the_records_and_sizes_of_the_objects_that_they_stand_for(kind: str) -> None:
    order = [name for name in KINDS[kind].__struct_encode_fields__ if name not in RESERVED]
    required = {field.encode_name for field in msgspec.structs.fields(KINDS[kind]) if field.required}

    @settings(max_examples=examples(30), deadline=None)
    @given(record=any_record(kind), left_out=st.sets(st.sampled_from(order)), shuffled=st.permutations(order))
    def check(record: Any, left_out: set[str], shuffled: list[str]) -> None:
        values = json.loads(encode(record))
        fields = {name: values[name] for name in shuffled if name in required or name not in left_out}
        readable, rows = Node(), Node()
        readable.send_lines(sent_by_agent([(kind, fields)], None))
        data = sent_by_agent([(kind, fields)], {kind: order})
        assert len(fields) < 2 or len(data) > 4096 or b"\n[0," in data
        rows.send_lines(data)

        assert list(map(without_stamps, rows.records)) == list(map(without_stamps, readable.records))
        assert [type(one) for one in rows.records] == [type(one) for one in readable.records]
        assert rows.warnings == readable.warnings
        assert rows.gaps == readable.gaps
        is_listed = any(fields.get(name) for name in LISTED)  # names in it do not count
        if "t" in fields and "mono" in fields and not is_listed:  # else the digits of the stamps may differ
            assert rows.sizes == readable.sizes

    check()


NAME = st.text(min_size=1, max_size=12)
FIGURE = st.floats(-1e18, 1e18) | st.integers(-(10**18), 10**18)


@settings(max_examples=examples(60), deadline=None)
@given(st.dictionaries(NAME, st.tuples(FIGURE, FIGURE, FIGURE), max_size=6), st.sampled_from(["gpu", "host", "nic"]))
def test_digest_whose_mean_and_highest_values_are_lists_is_that_with_their_names(
    figures: dict[str, tuple[float, float, float]], kind: str
) -> None:
    own = {"gpu": {"index": 0, "uuid": "u"}, "host": {"cpu_pct": 1}, "nic": {"device": "d", "port": 1}}
    fields: dict[str, Any] = {"period_s": 5.0, "samples": 5, "first_mono": 3, **own[kind]}
    for number, name in enumerate(("low", "mean", "high")):
        fields[name] = {key: values[number] for key, values in figures.items()}
    readable, rows = Node(), Node()
    readable.send_lines(sent_by_agent([(kind, fields)], None))
    data = sent_by_agent([(kind, fields)], column_order())
    rows.send_lines(data)

    assert list(map(without_stamps, rows.records)) == list(map(without_stamps, readable.records))
    assert (rows.warnings, rows.gaps) == (readable.warnings, readable.gaps) == ([], [])
    row = next(json.loads(line) for line in data.splitlines() if line.startswith(b"["))[5][-1]
    assert [type(value) for value in row if isinstance(value, (dict, list))] == [dict, list, list]


@pytest.mark.parametrize(
    ("row", "field"),
    [("[{},[1],[],1]", "mean"), ('[{"a":1},[1],[],1]', "high"), ('[{"a":1,"a":2},[1,2],[1,2],1]', "mean"),
     ('[{"a":1},["x"],[1],1]', "mean"), ('[{"a":1},[1e19],[1],1]', "mean"), ("[[],[],[],1]", "low"),
     ('[{"a":1},[1],[1],"x"]', "cpu_pct")],
)  # fmt: skip
def test_digest_with_other_values_than_names_is_rejected_with_its_field(row: str, field: str) -> None:
    node = Node()
    node.send({"layout": 0, "kind": "host", "names": ["low", "mean", "high", "cpu_pct"]})
    node.send_lines(f'[0,1,2,5,6,[{row},[{{"a":1}},[2],[3],4]]]\n'.encode())

    assert [(record.low, record.mean, record.high) for record in node.records] == [({"a": 1}, {"a": 2}, {"a": 3})]
    assert len(node.warnings) == 1 and f"$.{field}" in node.warnings[0]


def test_digest_of_a_layout_with_an_unknown_name_becomes_an_object_with_names() -> None:
    node = Node()
    node.send({"layout": 0, "kind": "host", "names": ["future", "low", "mean", "high", "cpu_pct"]})
    node.send_lines(b'[0,1,1,5,6,[[7,{"a":1},[2],[3],4]]]\n')

    assert [(record.low, record.mean, record.high) for record in node.records] == [({"a": 1}, {"a": 2}, {"a": 3})]


def test_mean_values_of_other_names_than_the_lowest_ones_keep_their_names() -> None:
    fields = {"period_s": 5.0, "low": {"a": 1}, "mean": {"b": 2}, "high": {"a": 1, "b": 3}, "cpu_pct": 2.5}
    node = Node()
    node.send_lines(sent_by_agent([("host", fields)], column_order()))

    assert [(record.low, record.mean, record.high) for record in node.records] == [
        ({"a": 1}, {"b": 2}, fields["high"])
    ] * 3


def test_a_gateway_that_takes_no_rows_keeps_digests_with_names() -> None:
    outbox = Outbox(ROOMY, keep=True)
    fields = {"period_s": 5.0, "low": {"cpu_pct": 1}, "mean": {"cpu_pct": 2}, "high": {"cpu_pct": 3}, "cpu_pct": 2.5}
    outbox.rewind(0, ColumnOrder(column_order()))
    for _ in range(3):
        outbox.post([("host", fields)])
    node = Node()
    node.send_lines(outbox.next_bytes(outbox.rewind(0), 0.0, 0.0) or b"")

    assert [record.high for record in node.records] == [{"cpu_pct": 3}] * 3
    assert node.warnings == []


@pytest.mark.parametrize("kind", sorted(column_order()))
def test_kinds_that_come_as_rows_are_decoded_without_a_detour(kind: str) -> None:
    names = tuple(column_order()[kind])

    assert Layout(kind, names).decodes_directly
    assert SPECS[KINDS[kind]].category in ("figure", "series")


@pytest.mark.parametrize("value", ["1e400", "-1", '"x"', "[1]", "9223372036854775808", "{}"])
def test_invalid_value_is_reported_with_its_field_and_costs_only_its_own_row(value: str) -> None:
    readable, rows = Node(), Node()
    lines = '{"kind":"gpu","seq":1,"t":5,"mono":6,"index":0,"uuid":"u","util_pct":1}\n'
    lines += f'{{"kind":"gpu","seq":2,"t":5,"mono":6,"index":{value},"uuid":"u","util_pct":2}}\n'
    lines += '{"kind":"gpu","seq":3,"t":5,"mono":6,"index":0,"uuid":"u","util_pct":3}\n'
    readable.send_lines(lines.encode())
    rows.send(GPU)
    rows.send_lines(b'[0,1,3,5,6,[[0,"u",1],[%s,"u",2],[0,"u",3]]]\n' % value.encode())

    assert [record.util_pct for record in rows.records] == [1, 3]
    assert rows.warnings == readable.warnings != []
    assert rows.gaps == readable.gaps == [("limit", "rejected: invalid record", 1)]


@pytest.mark.parametrize(
    "row", ['[0,"u"]', '[0,"u",1,2]', '[0,"u",1,"node2"]', '[0,"u",1,null]', "{}", "7", "null", '["']
)
def test_row_with_other_than_a_value_for_each_name_is_rejected(row: str) -> None:
    node = Node()
    node.send(GPU)
    node.send_lines(f'[0,1,2,5,6,[{row},[0,"u",1]]]\n'.encode())
    node.send_lines(b'[0,3,1,5,6,[[0,"u",2]]]\n')

    assert [record.util_pct for record in node.records] in ([1, 2], [2])  # the whole line is lost if it is not JSON
    assert node.records[-1].node == "node1"
    assert len(node.warnings) == 1
    assert sum(count or 0 for _, _, count in node.gaps) + len(node.records) == 3


def test_rows_of_an_undeclared_layout_are_counted_as_lost_and_objects_are_requested() -> None:
    node = Node()
    node.send([3, 1, 2, 5, 6, [[0, "u", 1], [1, "v", 2]]])
    node.send({"kind": "gpu", "seq": 3, "index": 0, "uuid": "u"})

    assert node.gaps == [("limit", "rejected: rows of a layout that was not declared", 2)]
    assert node.warnings == ["protocol error: rows of a layout that was not declared, 3"]
    assert node.channel.frames == [{"rows": False}]
    assert [record.seq for record in node.records] == [3]


def test_rows_that_came_before_a_cut_are_skipped_and_missing_ones_counted() -> None:
    node = Node()
    node.send(GPU, [0, 1, 2, 5, 6, [[0, "u", 1], [1, "v", 2]]])
    node.send(GPU, [0, 1, 3, 5, 6, [[0, "u", 1], [1, "v", 2], [0, "u", 3]]])
    node.send([0, 6, 1, 5, 6, [[0, "u", 4]]])

    assert [record.seq for record in node.records] == [1, 2, 3, 6]
    assert node.gaps == [("link", "records did not arrive", 2)]


@pytest.mark.parametrize(
    "frame",
    [
        {"layout": 0, "kind": "gpu", "names": []},
        {"layout": 128, "kind": "gpu", "names": ["index", "uuid"]},
        {"layout": -1, "kind": "gpu", "names": ["index", "uuid"]},
        {"layout": 0, "kind": "gpu", "names": ["index", "index"]},
        {"layout": 0, "kind": "gpu", "names": ["index", "node"]},
        {"layout": 0, "kind": "gpu", "names": ["index", "seq"]},
        {"layout": 0, "kind": "gpu", "names": ['index":1,"a', "uuid"]},
        {"layout": 0, "kind": 'gpu","node":"x', "names": ["index"]},
        {"layout": 0, "kind": "gpu", "names": [f"n{number}" for number in range(129)]},
        {"layout": 0, "kind": "gpu", "names": ["%s", "uuid"]},
    ],
)
def test_layout_that_cannot_be_is_a_protocol_error(frame: dict[str, Any]) -> None:
    node = Node()
    node.send(frame, [0, 1, 1, 5, 6, [[0, "u"]]])

    assert [text[:17] for text in node.warnings] == ["malformed layout:", "protocol error: r"]
    assert node.records == []


def test_number_of_a_layout_cannot_be_reused_for_other_names() -> None:
    node = Node()
    node.send(GPU, GPU, {**GPU, "names": ["index", "uuid", "temp_c"]}, [0, 1, 1, 5, 6, [[0, "u", 7]]])

    assert [(record.util_pct, record.temp_c) for record in node.records] == [(7, None)]
    assert node.warnings == ["malformed layout: number 0 is that of another one"]


@pytest.mark.parametrize(
    "rows",
    [
        [0, 1, 1, 5, 6],
        [0, 1, 2, 5, 6, [[0, "u", 1]]],
        [0, 0, 1, 5, 6, [[0, "u", 1]]],
        [0, 1, 1, -5, 6, [[0, "u", 1]]],
        [0, 2**62, 1, 5, 6, [[0, "u", 1]]],
        [0, 1, 0, 5, 6, []],
        [0, 1, 65, 5, 6, [[0, "u", 1]] * 65],
        [0, 1, 1, 5, 6, [[0, "u", 1]], 7],
        ["0", 1, 1, 5, 6, [[0, "u", 1]]],
        [],
        [0, 1, 1, 5, 6, [[0, "u" * quotas.MAX_LARGE_RECORD, 1]]],
    ],
)
def test_malformed_rows_are_a_protocol_error(rows: Any) -> None:
    node = Node()
    node.send(GPU, rows)

    assert [text[:15] for text in node.warnings] == ["malformed rows:"]
    assert node.records == []


def test_one_large_row_is_rejected_as_the_object_that_it_stands_for() -> None:
    node = Node()
    node.send(GPU, [0, 1, 2, 5, 6, [[0, "u" * quotas.MAX_RECORD, 1], [0, "u", 2]]])

    assert [record.util_pct for record in node.records] == [2]
    assert node.gaps == [("limit", "rejected: a record of more than 16.0 KiB (gpu)", 1)]


def test_rows_of_kinds_of_the_console_are_refused() -> None:
    node = Node()
    node.send({"layout": 0, "kind": "mark", "names": ["text"]}, [0, 1, 1, 5, 6, [["x"]]])

    assert (node.records, node.warnings) == ([], ["record kind reserved for the console: Mark"])


def test_rows_of_an_unknown_kind_are_kept_as_the_objects_that_they_stand_for() -> None:
    node = Node()
    node.send({"layout": 0, "kind": "fpga", "names": ["a", "b"]}, [0, 1, 1, 5, 6, [[1.50, {"x": [None]}]]])

    (record,) = node.records
    assert isinstance(record, RawRecord)
    assert record.raw == b'{"kind":"fpga","seq":1,"t":5,"mono":6,"a":1.5,"b":{"x":[null]}}'
