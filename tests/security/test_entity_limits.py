"""Bounded memory per node, whatever number of ranks, devices, jobs, groups and names it invents."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from functools import cache
from types import FunctionType, MethodType, ModuleType
from typing import Any

import msgspec
import pytest
from hostile_records import OURS
from msgspec import inspect as types

from gconsole.analysis.clock import windows as clockwindows
from gconsole.analysis.health import state, window
from gconsole.analysis.health.state import HealthState
from gconsole.core.bus import Hub
from gconsole.core.store import Store, captures, endings, entities, history_feed, outputs, steps, store
from gconsole.core.store import jobs as storejobs
from gconsole.fleet import quotas, record_receiver
from gconsole.fleet.record_receiver import RecordReceiver
from gconsole.records import KINDS, ClockNode, ClockWindow, Record, encode, kinds
from gconsole.session.format import writer
from gconsole.session.format.layout import Meta, RecorderRun
from gconsole.session.format.pseudonyms import Pseudonyms
from gconsole.session.format.redact import Redactor

CAPTURE = "asked"
#: Distinct values per field, kind and round; every limit is set below this.
VALUES, LIMIT = 30, 12
SMALL = {
    quotas: ("MAX_CAPTURE_RECORDS",), entities: ("ENDED_RANKS",),
    captures: ("STACKS", "FLIGHT", "CAPTURES"), history_feed: ("MOST_OF_NODE",),
    steps: ("MOST_RANKS", "KEPT", "KEPT_AT_LEAST"), store: ("EVENTS", "UNKNOWN_KINDS"),
    storejobs: ("OUTPUT",), clockwindows: ("_MOST_OF_EDGE",), outputs: ("OUTPUTS",),
    endings: ("MOST_FAULTS", "MOST_LOSSES", "MOST_PROCESSES"), state: ("MOST_FAULTS",),
    window: ("MOST_NAMES",),
}  # fmt: skip


@cache
def _fields(kind: type[Record]) -> tuple[types.Field, ...]:
    return types.type_info(kind).fields  # type: ignore[attr-defined]


def _value(spec: types.Type, number: int) -> Any:
    """A value of that type: different for each number, unless the type has only a few values."""
    match spec:
        case types.UnionType():
            some = [type_ for type_ in spec.types if not isinstance(type_, types.NoneType)]
            return _value(some[number % len(some)], number)
        case types.IntType():
            return 1_000 + number
        case types.FloatType():
            return float(number)
        case types.BoolType():
            return number % 2 == 1
        case types.StrType():
            return f"invented{number}"
        case types.LiteralType():
            return spec.values[number % len(spec.values)]
        case types.VarTupleType():
            return (_value(spec.item_type, number),)
        case types.TupleType():
            return tuple(_value(item_type_, number) for item_type_ in spec.item_types)
        case types.DictType():
            return {f"invented{number}": _value(spec.value_type, number)}
        case types.StructType():
            return spec.cls(**{field.name: _value(field.type, number) for field in spec.fields})
    raise TypeError(spec)


@cache
def _parts(kind: type[Record], is_full: bool) -> tuple[dict[str, Any], tuple[tuple[str, types.Type], ...]]:
    """Fields shared by all plain records of a kind, and the fields with a small set of values."""
    spec = {field.name: field.type for field in _fields(kind) if field.required or is_full}
    few = tuple(
        (name, field_type)
        for name, field_type in spec.items()
        if isinstance(field_type, types.LiteralType | types.BoolType)
    )
    return {name: _value(field_type, 0) for name, field_type in spec.items() if (name, field_type) not in few}, few


class RecordGenerator:
    """Records of every kind, in each of which one field has a new value."""

    def __init__(self) -> None:
        self._number = 0

    def records(self) -> Iterator[Record]:
        for tag, kind in KINDS.items():
            if kind in (*OURS, ClockWindow, ClockNode) or tag == "node":
                continue
            for field in _fields(kind):
                if field.name in ("node", "agent", "seq", "t", "mono", "rx"):
                    continue
                for _ in range(VALUES):
                    self._number += 1
                    record = self._plain(kind, is_full=self._number % 2 == 0)
                    setattr(record, field.name, _value(field.type, self._number))
                    if "capture" in record.__struct_fields__ and field.name != "capture":
                        record.capture = CAPTURE
                    yield record

    def node(self) -> Record:
        record = self._plain(KINDS["node"], is_full=False)
        self._number += 1
        record.hostname = record.boot_id = record.user = f"invented{self._number}"
        return record

    def _plain(self, kind: type[Record], *, is_full: bool) -> Any:
        """A record with the same values each time, except for enumerated fields."""
        same, few = _parts(kind, is_full)
        return kind(**same, **{name: _value(spec, self._number // 2) for name, spec in few})


class ReceivingConsole:
    """All components that receive records from nodes and keep state."""

    def __init__(self) -> None:
        self.hub = Hub()
        self.store, self.facts = Store(64 << 20), HealthState(60.0, 50.0)
        self.clocks = clockwindows.ClockFold(clockwindows.ClockLimits(window_ns=1_000_000_000))
        self.meta = Meta(parts=(RecorderRun(began=1, console=self.hub.console_id),))
        self.names = Pseudonyms(b"k" * 32, ["evil"])
        self.redact = Redactor(pseudonyms=self.names)
        self.receiver = RecordReceiver("evil", self.hub, lambda text: None)
        self.receiver.quota.expect(CAPTURE)
        self.hub.subscribe(self.store.apply)
        self._seq = 0

    def deliver(self, record: Record, agent: str) -> None:
        if agent != self.receiver.agent:
            self.receiver.on_hello(agent)
            self._seq = 0
        self._seq += 1
        now = 1_000_000_000_000 + self.store.version * 20_000_000
        record.seq, record.t, record.mono = self._seq, now, now
        received = self.receiver.receive(encode(record), now)
        if received is not None:
            self.hub.publish([received])
            self.facts.add([received])
            self.clocks.add([received])
            writer.add_counts(self.meta, writer.count_records([received]))
            self.redact(received)

    def size(self) -> int:
        """Number of entries in all their state."""
        return _entries([self.store, self.facts, self.clocks, self.meta, self.names, self.receiver])


_NO_PARTS = (type, FunctionType, MethodType, ModuleType, str, bytes, int, float, bool, type(None), Hub)


def _entries(roots: list[Any]) -> int:
    """Number of entries of all dictionaries, lists, sets and queues reachable from `roots`."""
    seen, todo, count = set[int](), list(roots), 0
    while todo:
        item = todo.pop()
        if isinstance(item, _NO_PARTS) or id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(item, dict):
            count += len(item)
            todo += [*item.keys(), *item.values()]
        elif isinstance(item, list | set | frozenset | deque | tuple):
            count += len(item)
            todo += item
        else:
            todo += [getattr(item, name) for kind in type(item).__mro__ for name in getattr(kind, "__slots__", ())
                     if hasattr(item, name)]  # fmt: skip
            todo += getattr(item, "__dict__", {}).values()
            if isinstance(item, msgspec.Struct):
                todo += [getattr(item, name) for name in item.__struct_fields__]
    return count


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, names in SMALL.items():
        for name in names:
            monkeypatch.setattr(module, name, LIMIT)
    for limit in kinds.PER_NODE:
        monkeypatch.setitem(kinds.PER_NODE, limit, LIMIT)
    monkeypatch.setattr("gconsole.session.format.pseudonyms.MAX_NAMES_PER_NODE", LIMIT)
    monkeypatch.setattr("gconsole.core.versioned_table.REMOVALS_KEPT", LIMIT)
    monkeypatch.setattr("gconsole.core.store.clocks.KEPT_SNAPSHOTS", LIMIT)
    monkeypatch.setattr(quotas, "EVENTS_BURST", 1e9)  # the rate limit is not under test
    monkeypatch.setattr(record_receiver, "WARNINGS_BURST", 1e9)


@pytest.mark.parametrize(
    "has_node_record",
    [pytest.param(True, id="with node record", marks=pytest.mark.full), pytest.param(False, id="without node record")],
)
def test_memory_for_a_node_is_bounded_whatever_values_it_sends(small: None, has_node_record: bool) -> None:
    console, generator, sizes = ReceivingConsole(), RecordGenerator(), []
    for agent in range(6):
        if has_node_record:
            console.deliver(generator.node(), f"agent{agent}")
        for record in generator.records():
            console.deliver(record, f"agent{agent}")
        sizes.append(console.size())
    assert sizes[-1] <= 1.05 * max(sizes[:3]), sizes
