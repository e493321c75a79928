"""Builders of collective records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from gconsole.analysis.collectives.communication import Communication, communication
from gconsole.monitor.imports.collectives import import_files
from gconsole.records import Collective, PgStatus, Rank

RECORDED = Path(__file__).parents[2] / "comms" / "recorded"
S = 1_000_000_000
READ_AT = 1_000 * S


def an_op(rank: int, seq: int, name: str = "nccl:all_reduce", *, waits: bool = False, **more: Any) -> Collective:
    """An operation of a rank; a waiting one was entered 60 s before it was read."""
    numel = more.pop("numel", 64)
    group = more.pop("group", ("0", "default_pg"))
    known = Collective(
        capture="c",
        source="worker_server",
        job="j",
        rank=rank,
        pid=100 + rank,
        read_at=READ_AT,
        record_id=seq - 1,
        process_group=group,
        collective_seq_id=seq,
        profiling_name=name,
        input_numel=numel,
        output_numel=numel,
        input_sizes=((numel or 0,),),
        input_dtypes=("Float",),
        output_dtypes=("Float",),
        retired=not waits,
        time_created_ns=READ_AT - 60 * S,
    )
    return msgspec.structs.replace(known, **more)


def a_status(rank: int | None, last: int | None = None, ranks: tuple[int, ...] | None = None, **more: Any) -> PgStatus:
    """A process group on a rank whose buffer has never wrapped."""
    known = PgStatus(
        capture="c",
        source="worker_server",
        job="j",
        rank=rank,
        read_at=READ_AT,
        process_group=("0", "default_pg"),
        ranks=ranks,
        last_enqueued_collective=last,
        oldest_record_id=0,
    )
    return msgspec.structs.replace(known, **more)


def a_rank(rank: int, world_size: int = 4, **more: Any) -> Rank:
    known = Rank(job="j", rank=rank, world_size=world_size, pid=100 + rank, start_ticks=1, source="environ", node="n")
    return msgspec.structs.replace(known, **more)


def said(*records: Collective | PgStatus, world_size: int = 4, ranks: list[Rank] | None = None) -> Communication:
    """Analyse these records of a job; by default all of its ranks are present."""
    known = [a_rank(rank, world_size) for rank in range(world_size)] if ranks is None else ranks
    return communication(
        [record for record in records if isinstance(record, Collective)],
        [record for record in records if isinstance(record, PgStatus)],
        ("j", 0),
        known,
    )


def recorded(kind: str, form: str = "json") -> Communication:
    """Analyse the recorded dumps of one kind."""
    got = import_files(sorted(RECORDED.glob(f"{kind}.*.{form}")), "j")
    assert got.problems == []
    return said(*got.records, world_size=3)
