"""Hostile input from a node: well-formed records of every kind with malicious texts and numbers."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import inspect as types

from gconsole.records import KINDS, ConsoleRecord, Finding, Mark, NodeState, encode

#: A shell, spreadsheet, browser, SQL or path injection that succeeds creates this file.
TOUCHED = "/tmp/gcy-evil"
TEXTS = (
    "\x1b]0;owned\x07\x1b[2J\x1b[31mEVIL",
    "\x9b31mEVIL\x9d0;owned\x9c",
    "<script>alert('EVIL')</script>",
    '"><img src=x onerror="alert(\'EVIL\')">',
    "[bold red]EVIL[/] [@click=app.quit]y[/]",
    "=cmd|'/C calc'!EVIL",
    "'; DROP TABLE gpu; -- EVIL",
    f"$(touch {TOUCHED})`touch {TOUCHED}`; touch {TOUCHED}",
    f"../../../../../../../..{TOUCHED}",
    "node1",
    "EVIL\nnode1  ok\r\nnode2  ok",
    "\u202eEVIL\u2066\u0301\u0336",
    "x" * 4000,
    "",
    "\x00EVIL\x7f\x08\x08",
)
INTS = (0, 1, 7, 2**31, 2**63 - 1, -(2**63), -1)
FLOATS = (0.0, -1.0, 1e308, -1e308, 1e-320, 99.9)


class HostileValues:
    """Generates values that match their types and are otherwise arbitrary."""

    def __init__(self) -> None:
        self._texts, self._ints, self._floats = itertools.cycle(TEXTS), itertools.cycle(INTS), itertools.cycle(FLOATS)
        self._picks = itertools.count()

    def record(self, kind: str, **fields: Any) -> Any:
        type_ = types.type_info(KINDS[kind])
        return KINDS[kind](**{**{field.name: self._value(field.type) for field in type_.fields}, **fields})

    def _value(self, type_: types.Type) -> Any:
        match type_:
            case types.UnionType():
                return self._value(type_.types[next(self._picks) % len(type_.types)])
            case types.NoneType():
                return None
            case types.IntType():
                value = next(self._ints)
                return value if type_.ge is None or value >= type_.ge else type_.ge
            case types.FloatType():
                return next(self._floats)
            case types.BoolType():
                return next(self._picks) % 2 == 0
            case types.StrType():
                return next(self._texts)
            case types.LiteralType():
                return type_.values[next(self._picks) % len(type_.values)]
            case types.VarTupleType():
                return tuple(self._value(type_.item_type) for _ in range(2))
            case types.TupleType():
                return tuple(map(self._value, type_.item_types))
            case types.DictType():
                return {next(self._texts): self._value(type_.value_type) for _ in range(2)}
            case types.StructType():
                return type_.cls(**{field.name: self._value(field.type) for field in type_.fields})
        raise TypeError(type_)


#: Kinds that only the console sends are rejected before they are evaluated.
OURS = (ConsoleRecord, NodeState, Mark, Finding)


def hostile_records_of_all_kinds(rounds: int = 2 * len(TEXTS)) -> Iterator[Any]:
    """Records of every kind with varying values, in another node's name; the console overwrites the node."""
    hostile = HostileValues()
    for _ in range(rounds):
        for kind in KINDS:
            yield hostile.record(kind, node="node1", agent="somebody else's")
    yield from _of_a_job(hostile)


def _of_a_job(hostile: HostileValues) -> Iterator[Any]:
    """Ranks of one job with consistent fields, so that every table has a row with each text."""
    for rank, text in enumerate(TEXTS):
        rank_fields = {"job": TEXTS[2], "attempt": 0, "rank": rank, "pid": 100 + rank, "start_ticks": 1}
        yield hostile.record("rank", status="present", **rank_fields)
        yield hostile.record("rank_stat", **rank_fields)
        yield hostile.record("process", pid=100 + rank, start_ticks=1, comm=text, cmdline=text, gone=False)
        yield hostile.record("gpu_info", uuid=text)
        yield hostile.record("log", source="agent", text=text)
        yield hostile.record("job", job=f"job-{rank}{text}", nodes=("node1", text), world_size=2)
        yield hostile.record("job_node", job=f"job-{rank}{text}", index=0, state="running")
    yield hostile.record("node")
    yield hostile.record("host")
    yield hostile.record("agent_cost")


def as_bytes(first_seq: int = 1) -> bytes:
    """The records in wire format, and malformed frames: unknown kinds, packed garbage, gaps, deep nesting."""
    lines = []
    for seq, record in enumerate(hostile_records_of_all_kinds(), first_seq):
        record.seq = seq
        lines.append(encode(record))
    seq = first_seq + len(lines)
    for number, text in enumerate(TEXTS):
        fields = {"kind": f"quark{number}{text}"[:64], "seq": seq + number, text: [text, {text: text}]}
        lines.append(msgspec.json.encode(fields))
    lines += [
        b'{"kind":"gpu","uuid":"u","seq":1e400}',
        b'{"kind":"gpu","uuid":"u","seq":' + b"9" * 400 + b"}",
        b'{"kind":"log","source":"agent","text":"\\ud800","seq":%d}' % (seq + 100),
        b'{"kind":"../../x","seq":%d,"a":"\xff\xfe"}' % (seq + 101),
        b'{"a":' + b"[" * 900 + b"]" * 900 + b"}",
        b'{"a":' + b'{"a":' * 50_000,
        b'{"z":"AAAA"}',
        b'{"gap":[1,99999999999]}',
        b'{"re":1,"ok":{}}',
        b"\xff\xfe\x00\x1b[31m not JSON at all",
    ]
    return b"\n".join(lines) + b"\n"
