"""Builders of records and sessions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
from hypothesis import strategies as st
from msgspec import inspect as types

from gconsole.records import KINDS, Collective, Gpu, GpuInfo, GpuProcess, Rank, RankStat, Stack, StackFrame, decode
from gconsole.session.format import writer
from gconsole.session.format.layout import Session

HOUR = 3_600_000_000_000
START = 1_790_000_000_000_000_000
INT64 = st.integers(-(2**63), 2**63 - 1)
#: Text without lone surrogates, which msgspec rejects.
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@cache
def any_record(kind: str) -> st.SearchStrategy[Any]:
    """Any record of a kind that may be sent by a node."""
    return _struct(KINDS[kind])


def _struct(struct: type[msgspec.Struct]) -> st.SearchStrategy[Any]:
    info = _type_info(struct)
    return st.builds(struct, **{field.name: _value(field.type) for field in info.fields})


def _value(info: types.Type) -> st.SearchStrategy[Any]:
    match info:
        case types.UnionType():
            return st.one_of(map(_value, info.types))
        case types.NoneType():
            return st.none()
        case types.IntType():
            return st.integers(-(2**63) if info.ge is None else info.ge, 2**63 - 1 if info.le is None else info.le)
        case types.FloatType():
            return st.floats(info.ge, info.le, allow_nan=False, allow_infinity=False)
        case types.BoolType():
            return st.booleans()
        case types.StrType():
            return TEXT
        case types.LiteralType():
            return st.sampled_from(info.values)
        case types.VarTupleType():
            return st.lists(_value(info.item_type), max_size=3).map(tuple)
        case types.TupleType():
            return st.tuples(*map(_value, info.item_types))
        case types.DictType():
            return st.dictionaries(TEXT, _value(info.value_type), max_size=3)
        case types.StructType():
            return _struct(info.cls)
    raise TypeError(info)


def records_in(table: str, columns: pa.Table) -> Iterator[Any]:
    """Records in these columns, decoded independently of the product apart from the record structs."""
    if table == "unknown":
        yield from (decode(line.encode()) for line in columns.column("raw").to_pylist())
        return
    info = _type_info(KINDS[table])
    for row in columns.to_pylist(maps_as_pydicts="strict"):
        yield msgspec.convert(_shaped(info, row), KINDS[table])


_type_info = cache(types.type_info)


def _shaped(info: types.Type, value: Any) -> Any:
    """The value in its JSON form, in which some structs are arrays."""
    match info:
        case types.UnionType() if value is not None:
            known = [each for each in info.types if not isinstance(each, types.NoneType)]
            return _shaped(known[0], value) if len(known) == 1 else msgspec.json.decode(value)
        case types.DictType() if value is not None:
            return {key: _shaped(info.value_type, each) for key, each in value.items()}
        case types.VarTupleType() if value is not None:
            return [_shaped(info.item_type, each) for each in value]
        case types.StructType():
            fields = {field.encode_name: _shaped(field.type, value[field.encode_name]) for field in info.fields}
            return list(fields.values()) if info.array_like else fields
    return value


def a_session(folder: Path, records: Sequence[Any], name: str = "night") -> Session:
    """A closed session with these records."""
    session = Session(folder / name)
    writer.write_session(session, records)
    return session


def gpu(seq: int, uuid: str = "GPU-a", node: str = "n1", *, at: int = 0, **figures: Any) -> Gpu:
    """Metrics of one GPU, `at` seconds after START."""
    t = START + at * 1_000_000_000
    head = {"node": node, "agent": f"agent-{node}", "seq": seq, "t": t, "mono": t - START, "rx": t + 1000}
    return Gpu(**head, index=0, uuid=uuid, **figures)


def a_job(ranks: int = 4, ticks: int = 3) -> list[Any]:
    """Two ranks per node, each with a GPU; the GPU of rank 1 is at 50 % utilization."""
    made: list[Any] = []

    def head(node: str, at: int) -> dict[str, Any]:
        t = START + at * 1_000_000_000
        return {"node": node, "agent": f"agent-{node}", "seq": len(made) + 1, "t": t, "mono": t - START, "rx": t + 1000}

    for rank in range(ranks):
        node, index = f"n{rank // 2}", rank % 2
        uuid = f"GPU-{rank}"
        made.append(GpuInfo(**head(node, 0), index=index, uuid=uuid))
        made.append(
            Rank(**head(node, 0), job="llama", rank=rank, local_rank=index, world_size=ranks, pid=100 + rank,
                 start_ticks=7, gpu=str(index), source="environ")
        )  # fmt: skip
        if rank != 3:  # the GPU of rank 3 is known only from its environment
            made.append(
                GpuProcess(**head(node, 0), index=index, uuid=uuid, pid=100 + rank, type="compute", job="llama",
                           attempt=0, rank=rank, rank_source="pid", mem_used_bytes=rank << 30)
            )  # fmt: skip
    for at in range(1, ticks + 1):
        for rank in range(ranks):
            node = f"n{rank // 2}"
            figures = {"util_pct": 50.0 if rank == 1 else 100.0, "mem_used_bytes": (rank + 1) << 30, "power_w": 600.0}
            made.append(Gpu(**head(node, at), index=rank % 2, uuid=f"GPU-{rank}", **figures))
            made.append(
                RankStat(**head(node, at), job="llama", rank=rank, pid=100 + rank, start_ticks=7, state="moving",
                         cpu_pct=99.0, step=at, watched={"loss": 4.5 - at, "phase": "train"})
            )  # fmt: skip
    return made


def a_hang():
    """One capture in which rank 1 reads a file and ranks 0 and 2 wait for it in all_reduce."""
    loading = (StackFrame("<module>", "train.py", 212), StackFrame("load_shard", "dataset.py", 88))
    reducing = (StackFrame("<module>", "train.py", 214), StackFrame("all_reduce", "/torch/distributed_c10d.py", 3252))
    common = {"capture": "c1", "sample": 0, "job": "llama", "start_ticks": 7, "status": "ok", "agent": "a"}
    common["node"] = "n0"
    return [
        Stack(**common, seq=1, rank=0, pid=100, thread_id=1, os_thread_id=100, path=0, frames=reducing),
        Stack(**common, seq=2, rank=2, pid=102, thread_id=1, os_thread_id=102, path=0),
        Stack(**common, seq=3, rank=1, pid=101, thread_id=1, os_thread_id=101, path=1, frames=loading),
        Stack(**common, seq=4, rank=1, pid=101, thread_id=2, os_thread_id=177, thread_name="pin", path=0),
        *(
            Collective(capture="c1", source="worker_server", job="llama", rank=rank, agent="a", node="n0", seq=5 + rank,
                       process_group=("0", "default_pg"), collective_seq_id=1423, profiling_name="nccl:all_reduce",
                       retired=False, read_at=50_000_000_000, time_created_ns=9_000_000_000, duration_ms=rank)
            for rank in (0, 2)
        ),
    ]  # fmt: skip
