"""Small sessions for tests."""

from collections.abc import Iterable
from pathlib import Path

from gconsole.core.bus import Published
from gconsole.records import Gpu, encode
from gconsole.session.format import writer as create
from gconsole.session.format import zstd_frames
from gconsole.session.format.layout import Meta, Session, named
from gconsole.session.format.writer import SegmentWriter, count_records

SECOND = 1_000_000_000


def gpus(number: int, agent: str = "agent1", node: str = "node1", first: int = 1) -> list[Gpu]:
    """Numbered records of one agent, one per second."""
    return [
        Gpu(node=node, agent=agent, seq=seq, t=seq * SECOND, mono=seq * SECOND, rx=seq * SECOND, index=0, uuid="GPU-1",
            power_w=300.0 + seq)
        for seq in range(first, first + number)
    ]  # fmt: skip


def crashed_session(folder: Path, name: str, batches: Iterable[list[Published]], meta: Meta | None = None) -> Session:
    """A session as a crashed console leaves it, with one frame per batch."""
    session = named(name, folder)
    create.create_session(session, meta or Meta())
    writer = SegmentWriter(session)
    for batch in batches:
        counts = count_records(batch)
        writer.append(
            zstd_frames.pack([encode(record) for record in batch], counts.kinds, counts.first_rx, counts.last_rx)
        )
    writer.close()
    return session
