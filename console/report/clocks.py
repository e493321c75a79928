"""Clocks in the report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import msgspec

from ..core.store import Store
from ..monitor.clock_jsonl import ClockNodeLine, ClockWindowLine, node_line, window_line
from ..records import Record
from ..text.format import byte_rate
from ..text.nodeset_fold import natural
from ..text.sanitize import printable
from ..text.table import table

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


def clocks_text(store: Store) -> str:
    """The tables of nodes and edges; "" where nothing was measured."""
    line = clocks_line(store)
    if not line.nodes and not line.edges:
        return ""
    services = {service.node: service for service in line.services}
    parts = [f"clocks: reference {line.reference or 'none'}; offsets of CLOCK_REALTIME in µs, ± is the error bound"]
    parts += table(
        [_node_cells(node, services.get(node.node)) for node in line.nodes],
        header=("node", "offset", "±", "drift ppm", "±", "repeatability", "method", "time sync", ""),
        align="<>>>>>",
        indent="  ",
    )
    if line.edges:
        parts += ["", "edges: offset of MONOTONIC_RAW, far minus near"]
        parts += table(
            [_edge_cells(edge) for edge in line.edges],
            header=("edge", "offset", "±", "min rtt", "kept", "lost", "method", "stamps", ""),
            align="<>>>>>",
            indent="  ",
        )
    for edge in line.edges:
        if edge.udp_blocked:
            parts.append(f"UDP blocked {edge.src} → {edge.dst}")
    if line.gpus:
        sim = " (SIM)" if any(gpu.simulated for gpu in line.gpus) else ""
        parts += ["", f"GPU timers{sim}: timer minus CLOCK_REALTIME of its node"]
        rows = [
            (
                f"{gpu.node} gpu{gpu.index}",
                _us(gpu.ahead_ns, True),
                _us(gpu.bound_ns),
                _us(gpu.step_ns),
                _ppm(gpu.drift_ppm),
                gpu.error or "",
            )
            for gpu in line.gpus
        ]
        parts += table(rows, header=("gpu", "ahead", "±", "step", "drift ppm"), align="<>>>>", indent="  ")
    if line.cost:
        worst = max(line.cost, key=lambda edge: edge.cpu_pct)
        parts.append(
            f"max probing cost {worst.cpu_pct:.1f} % of a core ({worst.node}), "
            f"{byte_rate(max(edge.records_bytes_s for edge in line.cost))} of records per node"
        )
    return "\n".join(map(printable, parts))


def _node_cells(node: ClockNodeLine, service: ServiceLine | None) -> tuple[str, ...]:
    method = node.method if node.stamps is None else f"{node.method} {node.stamps}"
    words = ("" if node.status == "ok" else f"{node.status} ") + " ".join(node.warnings)
    return (
        node.node + (" *" if node.node == node.reference else ""),
        _us(node.offset_ns, True),
        _us(node.bound_ns),
        _ppm(node.drift_ppm),
        _ppm(node.drift_bound_ppm),
        _us(node.repeat_ns),
        method,
        _service(service),
        words.strip(),
    )


def _edge_cells(edge: ClockWindowLine) -> tuple[str, ...]:
    words = ("" if edge.status == "ok" else edge.status) + (" flagged" if edge.flagged else "")
    return (
        f"{edge.src} → {edge.dst}",
        _us(edge.beta_ns, True),
        _us(edge.bound_ns),
        _us(edge.min_rtt_ns),
        str(edge.kept),
        str(edge.lost),
        edge.method,
        edge.stamps,
        words.strip(),
    )


def _service(service: ServiceLine | None) -> str:
    if service is None or service.daemon is None:
        return "–"
    if service.synced is None:
        return f"{service.daemon}: not reported"
    if not service.synced:
        return f"{service.daemon}: no source"
    bound = "" if service.bound_ns is None else f" ± {_us(service.bound_ns)}"
    return f"{service.daemon}: {_us(service.offset_ns, True)}{bound}"


def _us(ns: int | None, signed: bool = False) -> str:
    """Nanoseconds as µs, with one decimal below 1000 µs; – for unknown."""
    if ns is None:
        return "–"
    us = ns / 1000
    digits = 1 if abs(us) < 1000 else 0
    return f"{us:{'+' if signed else ''},.{digits}f}"


def _ppm(figure: float | None) -> str:
    return "–" if figure is None else f"{figure:.2f}"
