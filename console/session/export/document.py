"""`json`: a whole session as one documented file, streamed out and in; what comes back is what left.

    {"schema": "gconsole.session/1",
     "session": {"name": …, "cluster": …, …},
     "records": [
    {"kind": "gpu", "node": "node018", "agent": …, "seq": 7, "t": …, …},
    …
    ]}

A record is exactly its line in the segments. Reading does not depend on how the file is broken into lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final, Literal

import msgspec

from ...core.bus import Published
from ...core.control import Selection
from ...records import UNREADABLE, AnyRecord, BadRecord, decode, encode
from ..format.layout import SCHEMA, Meta, RecorderRun, SessionError, check_schema
from .slice import SessionSlice

#: A record is not longer: a stack of the deepest recursion that is read has some hundred kilobytes.
MOST_RECORD_BYTES: Final = 64 << 20
_CHUNK: Final = 1 << 20
_HEAD_BYTES: Final = 1 << 20
_RECORDS: Final = re.compile(rb'"records"\s*:\s*\[')
#: What tells where a record ends: whole strings, a quote that begins one that is not all there yet, brackets.
_TOKENS: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|["{}\]]', re.DOTALL)


class SessionFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a session beside its records."""

    name: str = ""
    id: str = ""
    cluster: str = ""
    created: int = 0  # console CLOCK_REALTIME, ns
    closed: int | None = None
    selection: Selection = msgspec.field(default_factory=Selection)
    parts: tuple[RecorderRun, ...] = ()
    merged: tuple[str, ...] = ()


class SessionDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A whole session in one file; records of kinds that a version does not know may be among the others."""

    schema: Literal["gconsole.session/1"] = "gconsole.session/1"
    session: SessionFacts
    records: tuple[AnyRecord, ...]


def facts_of(meta: Meta) -> SessionFacts:
    """The part of what is known that does not depend on where and how a session is kept."""
    return SessionFacts(
        name=meta.name, id=meta.id, cluster=meta.cluster, created=meta.created, closed=meta.closed,
        selection=meta.selection, parts=meta.parts, merged=meta.merged,
    )  # fmt: skip


def meta_of(facts: SessionFacts) -> Meta:
    """What a session that is made of such a file begins with."""
    return Meta(
        name=facts.name, id=facts.id, cluster=facts.cluster, created=facts.created, closed=facts.closed,
        selection=facts.selection, parts=facts.parts, merged=facts.merged,
    )  # fmt: skip


def write(what: SessionSlice, out: BinaryIO) -> None:
    """Write the file. Raises OSError, and what reading the session raises."""
    facts = msgspec.json.encode(facts_of(what.meta))
    out.write(b'{"schema": "%s",\n "session": %s,\n "records": [' % (SCHEMA.encode(), facts))
    before = b"\n"
    for record in what.records():
        out.write(before + encode(record))
        before = b",\n"
    out.write(b"\n]}\n")


def is_document(path: Path) -> bool:
    """Whether a file begins as such a document, and not with records a line each."""
    with path.open("rb") as file:
        return re.match(rb'\s*\{\s*"(schema|session|records)"\s*:', file.read(4096)) is not None


def read(path: Path) -> tuple[SessionFacts, Iterator[Published]]:
    """What the file says of the session, and its records. Raises SessionError, also while the records are read."""
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
    found = _RECORDS.search(head)
    if found is None or not head.lstrip().startswith(b"{"):
        raise SessionError(f"{path}: no session in one file: there is no list of records in it")
    before = head[: found.start()] + b'"records": null}'
    check_schema(path, before)
    try:
        facts = msgspec.json.decode(before, type=_Head).session
    except UNREADABLE as error:
        raise SessionError(f"{path}: no session in one file: {error}") from error
    return facts, _records(path, found.end())


class _Head(msgspec.Struct):
    session: SessionFacts


def _records(path: Path, start: int) -> Iterator[Published]:
    for number, text in enumerate(_objects(path, start), 1):
        try:
            yield decode(text)
        except BadRecord as error:
            raise SessionError(f"{path}: record {number}: {error}") from error


def _objects(path: Path, start: int) -> Iterator[bytes]:
    """The text of each object in the list that begins there. Raises SessionError where the list does not end."""
    with path.open("rb") as file:
        file.seek(start)
        rest = b""
        while True:
            chunk = file.read(_CHUNK)
            rest += chunk
            begin, at, depth = -1, 0, 0
            for token in _TOKENS.finditer(rest):
                what = token[0]
                if what == b"{":
                    begin = begin if depth else token.start()
                    depth += 1
                elif what == b"}":
                    depth -= 1
                    if depth <= 0:
                        yield rest[begin : token.end()]
                        at = token.end()
                elif what == b"]" and not depth:
                    return
                elif what == b'"':
                    break  # the rest of that string is still to come
            rest = rest[at:]
            if not chunk or len(rest) > MOST_RECORD_BYTES:
                raise SessionError(f"{path}: it ends in the middle of the records: the file is cut off")
