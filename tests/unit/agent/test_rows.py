"""Rows of the outbox: every record as in its object, on each connection with the layouts that it needs."""

from __future__ import annotations

import json
import random
from types import SimpleNamespace
from typing import Any

import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from gconsole.config.model import NodeConfig
from gconsole.config.sections import AgentConfig
from gconsole.fleet.deploy import agent_payload
from gconsole.records.rows import column_order
from gconsole_remote.agent import requests, wire
from gconsole_remote.agent.outbox import Outbox
from gconsole_remote.agent.rows import LONGEST_ROW, MOST_LAYOUTS, MOST_ROWS, ColumnOrder

ROOMY, TIGHT = 1 << 20, 4000
ORDER = {"gpu": ["t", "mono", "index", "util_pct", "temp_c", "text"], "host": ["load", "cpu_pct"]}


class Reader:
    """One connection of a console: which record came with which number, and what was reported as lost."""

    def __init__(self, outbox: Outbox, after: int = 0, order: dict[str, list[str]] | None = ORDER) -> None:
        self.outbox = outbox
        self.turn = outbox.rewind(after, ColumnOrder(order) if order else None)
        self.layouts: dict[int, dict[str, Any]] = {}
        self.records: dict[int, dict[str, Any]] = {}
        self.lost: list[int] = []
        self.lines: list[bytes] = []

    def take(self, most_lines: int = 10_000) -> None:
        data = self.outbox.next_bytes(self.turn, 0.0, 0.0) or b""
        for line in data.splitlines(True)[:most_lines]:
            self.lines.append(line)
            self._read(json.loads(line))

    def _read(self, frame: Any) -> None:
        if isinstance(frame, list):
            number, first, count, t, mono, rows = frame
            layout = self.layouts[number]  # declared on this connection
            assert len(rows) == count
            for seq, row in enumerate(rows, first):
                fields = dict(zip(layout["names"], row, strict=True))
                self.records[seq] = {"kind": layout["kind"], "seq": seq, "t": t, "mono": mono, **fields}
        elif "layout" in frame:
            self.layouts[frame["layout"]] = frame
        elif "gap" in frame:
            self.lost += range(frame["gap"][0], frame["gap"][1] + 1)
        else:
            self.records[frame["seq"]] = frame


def a_gpu(value: float, **more: Any) -> tuple[str, dict[str, Any]]:
    return "gpu", {"util_pct": value, "index": 0, **more}


def values_of(reader: Reader) -> list[Any]:
    return [reader.records[seq]["util_pct"] for seq in sorted(reader.records)]


def test_fields_that_are_met_again_come_as_rows_of_one_line_in_the_order_of_the_console() -> None:
    outbox = Outbox(ROOMY, keep=False)
    reader = Reader(outbox)
    outbox.post([a_gpu(1), a_gpu(2), a_gpu(3)])
    reader.take()
    outbox.post([a_gpu(4), a_gpu(5)])
    reader.take()

    assert [line[:9] for line in reader.lines] == [b'{"kind":"', b'{"layout"', b"[0,2,2,17"[:9], b"[0,4,2,17"[:9]]
    assert reader.layouts[0]["names"] == ["index", "util_pct"]
    assert values_of(reader) == [1, 2, 3, 4, 5]


def test_records_that_cannot_be_rows_are_objects() -> None:
    outbox = Outbox(ROOMY, keep=False)
    reader = Reader(outbox)
    facts = [
        ("log", {"source": "agent", "text": "x"}), a_gpu(1, new_field=2), a_gpu(1, text="x" * LONGEST_ROW),
        ("host", {"cpu_pct": 1.0}), a_gpu(float("nan")),
    ]  # fmt: skip
    outbox.post(facts * 3)
    reader.take()

    assert all(line.startswith(b'{"kind":') for line in reader.lines if not line.startswith(b'{"layout":'))
    assert len(reader.records) == 15
    assert [reader.records[seq]["kind"] for seq in (1, 2, 3, 4, 5)] == ["log", "gpu", "gpu", "host", "log"]


def test_lines_and_layouts_are_limited() -> None:
    outbox = Outbox(ROOMY, keep=False)
    names = [f"f{number}" for number in range(MOST_LAYOUTS + 10)]
    reader = Reader(outbox, order={"gpu": ["util_pct", *names]})
    for _ in range(3):
        outbox.post([("gpu", {"util_pct": 1, name: 2}) for name in names])
    outbox.post([("gpu", {"util_pct": 1, "f0": 2})] * (2 * MOST_ROWS + 1))
    while len(reader.records) < outbox.last_seq:
        reader.take()

    assert len(reader.layouts) == MOST_LAYOUTS
    assert max(json.loads(line)[2] for line in reader.lines if line.startswith(b"[")) == MOST_ROWS


def test_text_of_another_process_is_a_row_or_becomes_an_object() -> None:
    columns = ColumnOrder(ORDER).columns(*a_gpu(7, temp_c=None))
    assert columns is not None
    row = columns.row({"temp_c": None, "util_pct": 7, "index": 3})
    assert (columns.text, row) == ("gpu index util_pct temp_c", "[3,7,null]")
    for order in (ORDER, None):
        outbox = Outbox(ROOMY, keep=False)
        reader = Reader(outbox, order=order)
        outbox.post([(columns.text, row)] * 3)
        reader.take()
        expected = {"kind": "gpu", "index": 3, "util_pct": 7, "temp_c": None}
        stamps = ("seq", "t", "mono")
        for record in reader.records.values():
            assert {name: value for name, value in record.items() if name not in stamps} == expected
        assert len(reader.records) == 3
        assert any(line.startswith(b"[") for line in reader.lines) == (order is not None)


def test_digest_that_ended_before_its_instant_keeps_its_own_stamps() -> None:
    outbox = Outbox(ROOMY, keep=False)
    reader = Reader(outbox)
    outbox.post([a_gpu(1, t=11, mono=12)] * 2)
    reader.take()

    assert [(record["t"], record["mono"]) for record in reader.records.values()] == [(11, 12)] * 2


@pytest.mark.parametrize("text", ["\udcff", "a\ud800b", "ü€\U0001f600", 'q"\\\n\x00'])
def test_text_in_rows_is_that_of_the_objects(text: str) -> None:
    rows, readable = Outbox(ROOMY, keep=False), Outbox(ROOMY, keep=False)
    readers = Reader(rows), Reader(readable, order=None)
    for reader in readers:
        reader.outbox.post([a_gpu(1, text=text)] * 2)
        reader.take()

    assert readers[0].records[2]["text"] == readers[1].records[2]["text"]
    assert readers[0].lines[-1].startswith(b"[")


def test_connection_that_takes_no_rows_gets_the_objects_of_rows_that_are_held() -> None:
    outbox = Outbox(ROOMY, keep=True)
    for value in range(5):
        Reader(outbox).outbox.post([a_gpu(value, text="ü"), a_gpu(value + 0.5)])
    with_rows, plain = Reader(outbox), Reader(outbox, order=None)
    with_rows.turn = outbox.rewind(0, ColumnOrder(ORDER))
    with_rows.take()
    plain.turn = outbox.rewind(0)
    plain.take()

    assert any(line.startswith(b"[") for line in with_rows.lines)
    assert all(line.startswith(b'{"kind":"gpu","seq":') for line in plain.lines)
    assert plain.records == with_rows.records
    assert plain.lines == [wire.encode(plain.records[seq]) for seq in range(1, 11)]


def test_rows_end_when_the_console_wants_objects() -> None:
    outbox = Outbox(ROOMY, keep=False)
    reader = Reader(outbox)
    outbox.post([a_gpu(1)] * 2)
    requests.act(SimpleNamespace(outbox=outbox), {"rows": False})  # type: ignore[arg-type]
    reader.take()
    outbox.post([a_gpu(2)] * 2)
    reader.take()

    assert all(line.startswith(b'{"kind":') for line in reader.lines)
    assert values_of(reader) == [1, 1, 2, 2]


def test_each_tick_declares_nothing_anew_while_records_are_acknowledged() -> None:
    outbox = Outbox(ROOMY, keep=True)
    reader = Reader(outbox)
    for value in range(20):
        outbox.post([a_gpu(value), a_gpu(value)])
        reader.take()
        outbox.acknowledge(outbox.last_seq)

    assert sum(line.startswith(b'{"layout":') for line in reader.lines) == 1
    again = Reader(outbox, after=outbox.last_seq)
    outbox.post([a_gpu(20)])
    again.take()
    assert list(again.records) == [outbox.last_seq]


def test_start_frame_orders_columns_unless_records_are_to_be_readable() -> None:
    forms = [NodeConfig(name="node1", agent=AgentConfig(wire=form)) for form in ("rows", "readable")]  # type: ignore[arg-type]
    orders = [agent_payload.start(node, "c", "", 0)["config"]["rows"] for node in forms]

    assert orders == [column_order(), None]
    assert orders[0]["gpu"][:4] == ["t", "mono", "period_s", "samples"]
    assert {"gpu", "rank_stat", "host", "agent_cost", "nic", "gpu_link"} <= set(orders[0])


@st.composite
def _steps(draw: st.DrawFn) -> list[tuple[str, int]]:
    actions = st.sampled_from(["post", "post", "post", "take", "take", "break", "ack", "reconnect", "restart", "plain"])
    return draw(st.lists(st.tuples(actions, st.integers(0, 9)), max_size=60))


@pytest.mark.parametrize("limit", [ROOMY, TIGHT])
def test_every_record_arrives_as_it_was_posted_or_is_reported_as_lost(limit: int) -> None:
    @settings(max_examples=examples(150), deadline=None)
    @given(_steps())
    def check(steps: list[tuple[str, int]]) -> None:
        outbox = Outbox(limit, keep=True)
        posted: list[float] = []
        reader, got, lost, acked = Reader(outbox), {}, set(), 0

        def note() -> None:
            for seq, record in reader.records.items():
                assert record["util_pct"] == posted[seq - 1]
            got.update(reader.records)
            lost.update(reader.lost)

        for action, number in [*steps, ("reconnect", 0), ("take", 0)]:
            last = max([acked, *got, *lost])
            if action == "post":
                more: list[dict[str, Any]] = [{"temp_c": 5}, {}, {"text": random.randbytes(99).hex()}]
                facts = [a_gpu(len(posted) + each, **more[each % 3]) for each in range(number)]
                outbox.post(facts)
                posted += [fields["util_pct"] for _, fields in facts]
            elif action == "take":
                for _ in range(20):
                    reader.take()
            elif action == "break":  # within what is written
                reader.take(most_lines=number)
                note()
                reader = Reader(outbox, after=max([acked, *got, *lost]))
            elif action == "ack":
                acked = last
                outbox.acknowledge(last)
            elif action in ("reconnect", "plain"):
                reader = Reader(outbox, after=last, order=ORDER if action == "reconnect" else None)
            else:  # a console that knows nothing
                reader = Reader(outbox)
            note()
        assert set(got) | lost == set(range(1, len(posted) + 1))
        if limit == ROOMY:
            assert not lost

    check()


def test_connection_without_lingering_needs_no_layout_of_dropped_records() -> None:
    outbox = Outbox(TIGHT, keep=False)
    reader = Reader(outbox)
    for value in range(400):
        outbox.post([a_gpu(value, text=random.randbytes(20).hex()) for _ in range(2)])
        if value % 100 == 99:
            reader.take()

    assert reader.lost
    assert set(reader.records) | set(reader.lost) == set(range(1, 801))
