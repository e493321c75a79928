"""An untrusted session: one Parquet file is fuzzed, its compaction metadata has its digest."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path

from msgspec.structs import replace

from gconsole.records import Gpu, decode, encode
from gconsole.session.format import reader, writer
from gconsole.session.format.layout import Session, SessionError, write_checked
from gconsole.session.format.manifest import MANIFEST, CompactedRange, pieces, read_manifest
from gconsole.session.manage.compact import compact

from .places import scratch

RECORDS = 40


def read_parquet(data: bytes) -> None:
    """Read arrival times and records: everything returned is a valid record."""
    with scratch() as folder:
        for name, content in _sound().items():
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data if name.endswith(".parquet") else content)
        session = Session(Path(folder, "night"))
        _update_digest(session, data)
        try:
            [step] = (piece for piece in pieces(session) if isinstance(piece, CompactedRange))
            list(reader.compacted_span(session, step))
            for record in reader.records(session.path):
                decode(encode(record))
        except (SessionError, OSError):
            return


def _update_digest(session: Session, data: bytes) -> None:
    """A sender can compute checksums: what is fuzzed is the reader behind them."""
    manifest = read_manifest(session)
    [part] = manifest.parts
    part = replace(part, digest=hashlib.sha256(data).hexdigest())
    write_checked(session.parquet_folder / MANIFEST, replace(manifest, parts=(part,)))


def parquet_seeds() -> list[bytes]:
    return [content for name, content in _sound().items() if name.endswith(".parquet")]


@functools.cache
def _sound() -> dict[str, bytes]:
    """The files of a session without segments, one of which is Parquet."""
    with scratch() as folder:
        session = Session(Path(folder, "night"))
        writer.write_session(session, [
            Gpu(node="n1", agent="a", seq=seq, t=seq, mono=seq, rx=seq, uuid="GPU-0", index=0, util_pct=seq,
                clocks_event_reasons=("idle",) * (seq % 3)) for seq in range(1, RECORDS)
        ])  # fmt: skip
        compact(session)
        for path in session.segments():
            path.unlink()
        files = (path for path in Path(folder).rglob("*") if path.is_file())
        return {str(path.relative_to(folder)): path.read_bytes() for path in files}
