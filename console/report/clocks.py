"""Clocks in the report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import msgspec

from ..core.store import Store
from ..monitor.clock_jsonl import ClockNodeLine, ClockWindowLine, node_line, window_line
from ..records import Record
from ..text.nodeset_fold import natural

L = TypeVar("L", bound=msgspec.Struct)


class ServiceLine(msgspec.Struct):
    """The time service of a node (chrony, ntpd, ptp4l); see `clock_source`."""

    node: str
    daemon: str | None
    synced: bool | None
    offset_ns: int | None
    bound_ns: int | None
    source: str | None
    stratum: int | None
    text: str


class ProbeCostLine(msgspec.Struct):
    """The latest probing cost of a node, in addition to its agent; see `clock_cost`."""

    node: str
    cpu_pct: float
    tx_packets_s: float
    tx_bytes_s: float
    records_bytes_s: float


class GpuTimerLine(msgspec.Struct):
    """The latest reading of a GPU timer, with `[clock] gpu_clock`; see `gpu_clock`."""

    node: str
    index: int
    uuid: str | None
    ahead_ns: int | None
    bound_ns: int | None
    step_ns: int | None
    drift_ppm: float | None
    error: str | None
    simulated: bool


class ClocksLine(msgspec.Struct):
    """The latest window: all nodes on the time line of `reference`. Without a window everything is empty."""

    reference: str | None
    nodes: list[ClockNodeLine]
    edges: list[ClockWindowLine]
    services: list[ServiceLine]
    cost: list[ProbeCostLine]
    gpus: list[GpuTimerLine]


def clocks_line(store: Store) -> ClocksLine:
    """The clocks of the store, as of now."""
    book = store.clocks
    nodes = [node_line(kept[-1]) for kept in book.nodes.values()]
    edges = [window_line(kept[-1]) for kept in book.windows.values()]
    gpus = sorted(book.gpus.values(), key=lambda gpu: (natural(gpu.node), gpu.index))
    newest = max((line.window_id for line in nodes), default=0)
    return ClocksLine(
        reference=next((line.reference for line in nodes if line.window_id == newest), None),
        nodes=sorted(nodes, key=lambda line: natural(line.node)),
        edges=sorted(edges, key=lambda line: (natural(line.src), natural(line.dst))),
        services=_lines(ServiceLine, [book.sources[node] for node in sorted(book.sources, key=natural)]),
        cost=_lines(ProbeCostLine, [book.costs[node] for node in sorted(book.costs, key=natural)]),
        gpus=_lines(GpuTimerLine, gpus),
    )


def _lines(line: type[L], records: Sequence[Record]) -> list[L]:
    """One line per record, with the fields that both have."""
    return [line(**{name: getattr(record, name) for name in line.__struct_fields__}) for record in records]
