"""A session out of a file: of one that was exported as JSON, or of records a line each."""

from __future__ import annotations

from pathlib import Path

from .. import ndjson
from ..export import document
from ..format.layout import Meta, Session, SessionError, named
from . import create


def import_file(file: Path, name: str | None, folder: Path) -> tuple[Session, Meta]:
    """Make the session; what is known of it. Raises SessionError, RecordFileError, OSError; then nothing is left."""
    if not document.is_document(file):
        session = named(name or file.name.partition(".")[0], folder)
        return session, create.make(session, ndjson.read(file))
    facts, records = document.read(file)
    wanted = name or facts.name
    if not wanted:
        raise SessionError(f"{file}: it says no name; give the session one: --name NAME")
    session = named(wanted, folder)
    meta = create.make(session, records, document.meta_of(facts))
    if facts.closed is not None:  # when it was closed first, not when this copy was made
        meta.closed = facts.closed
        session.write(meta)
    return session, meta
