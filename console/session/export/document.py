"""`json`: a whole session as one documented file, streamed out and in without loss.

    {"schema": "gconsole.session/1",
     "session": {"name": …, "cluster": …, …},
     "records": [
    {"kind": "gpu", "node": "node018", "agent": …, "seq": 7, "t": …, …},
    …
    ]}

Each record is its line in the segments. Reading does not depend on line breaks.
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

#: Upper bound of a record; the deepest stack that is captured has some hundred kB.
MAX_RECORD_BYTES: Final = 64 << 20
_CHUNK: Final = 1 << 20
_HEAD_BYTES: Final = 1 << 20
_RECORDS: Final = re.compile(rb'"records"\s*:\s*\[')
#: Tokens that delimit records: complete strings, the quote of an incomplete one, brackets.
_TOKENS: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|["{}\]]', re.DOTALL)


class SessionFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Metadata of a session that does not depend on its storage."""

    name: str = ""
    id: str = ""
    cluster: str = ""
    created: int = 0  # console CLOCK_REALTIME, ns
    closed: int | None = None
    selection: Selection = msgspec.field(default_factory=Selection)
    parts: tuple[RecorderRun, ...] = ()
    merged: tuple[str, ...] = ()


class SessionDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Schema of the file; it may contain records of kinds unknown to this version."""

    schema: Literal["gconsole.session/1"] = "gconsole.session/1"
    session: SessionFacts
    records: tuple[AnyRecord, ...]


def facts_of(meta: Meta) -> SessionFacts:
    """Return the metadata that an export contains."""
    return SessionFacts(**{name: getattr(meta, name) for name in SessionFacts.__struct_fields__})


def meta_of(facts: SessionFacts) -> Meta:
    """Return the metadata with which an imported session begins."""
    return Meta(**msgspec.structs.asdict(facts))


def write(source: SessionSlice, out: BinaryIO) -> None:
    """Write the file. Raises OSError, and what reading the session raises."""
    facts = msgspec.json.encode(facts_of(source.meta))
    out.write(b'{"schema": "%s",\n "session": %s,\n "records": [' % (SCHEMA.encode(), facts))
    before = b"\n"
    for record in source.records():
        out.write(before + encode(record))
        before = b",\n"
    out.write(b"\n]}\n")


def is_document(path: Path) -> bool:
    """Whether a file is such a document, not NDJSON."""
    with path.open("rb") as file:
        return re.match(rb'\s*\{\s*"(schema|session|records)"\s*:', file.read(4096)) is not None


def read(path: Path) -> tuple[SessionFacts, Iterator[Published]]:
    """Return the metadata and the records of a file. Raises SessionError, also while the records are read."""
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
    records = _RECORDS.search(head)
    if records is None or not head.lstrip().startswith(b"{"):
        raise SessionError(f"{path}: not a session export: no list of records")
    before = head[: records.start()] + b'"records": null}'
    check_schema(path, before)
    try:
        facts = msgspec.json.decode(before, type=_DocumentHead).session
    except UNREADABLE as error:
        raise SessionError(f"{path}: not a session export: {error}") from error
    return facts, _records(path, records.end())


class _DocumentHead(msgspec.Struct):
    session: SessionFacts


def _records(path: Path, start: int) -> Iterator[Published]:
    for number, text in enumerate(_objects(path, start), 1):
        try:
            yield decode(text)
        except BadRecord as error:
            raise SessionError(f"{path}: record {number}: {error}") from error


def _objects(path: Path, start: int) -> Iterator[bytes]:
    """The text of each object of the list that begins there. Raises SessionError if the list does not end."""
    with path.open("rb") as file:
        file.seek(start)
        rest = b""
        while True:
            chunk = file.read(_CHUNK)
            rest += chunk
            begin, done, depth = -1, 0, 0
            for token in _TOKENS.finditer(rest):
                text = token[0]
                if text == b"{":
                    begin = begin if depth else token.start()
                    depth += 1
                elif text == b"}":
                    depth -= 1
                    if depth <= 0:
                        yield rest[begin : token.end()]
                        done = token.end()
                elif text == b"]" and not depth:
                    return
                elif text == b'"':
                    break  # the string continues in the next chunk
            rest = rest[done:]
            if not chunk or len(rest) > MAX_RECORD_BYTES:
                raise SessionError(f"{path}: the file is cut off within its records")
