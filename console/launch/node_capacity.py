"""The capacity of each node for a job, from the store."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from typing import Protocol

import msgspec

from ..core.store import GpuNow, NodeNow, Store
from ..records import Finding
from ..text.format import millis, size
from .state import ACTIVE

#: Bytes. A GPU with more memory in use but no visible process is occupied, for example by another container.
TAKEN_BYTES = 1 << 30
#: ns. A larger clock offset is a warning: logs and timestamps of several nodes no longer match.
CLOCK_OFF_NS = 50_000_000
#: Culprits of findings about GPUs are named node:gpuN, of a port node:DEVICE.
_PART = re.compile(r"(?P<node>.+):(?:gpu(?P<gpu>\d+)|[^:]+)")


class ProcessFilter(Protocol):
    """A configured node, as far as its processes are concerned."""

    @property
    def name(self) -> str:
        """Name of the node."""

    @property
    def process_filter(self) -> tuple[str, str] | None:
        """(variable, value) in the environment of its processes; None: all of the machine's are."""


class GpuCapacity(msgspec.Struct, frozen=True):
    """One GPU; `why_not` is None if a job can use it."""

    index: int
    uuid: str
    mem_bytes: int | None
    why_not: str | None = None


class NodeCapacity(msgspec.Struct, frozen=True):
    """One node; `why_not` is None if it is connected."""

    name: str
    why_not: str | None = None
    gpus: tuple[GpuCapacity, ...] = ()
    mem_available_bytes: int | None = None
    cpu_pct: float | None = None
    errors: tuple[str, ...] = ()  # findings about the node itself
    warnings: tuple[str, ...] = ()  # findings about the node, its GPUs and its clock
    versions: tuple[str | None, ...] = ()  # driver, CUDA, architecture: what should be equal in a job
    environment: tuple[tuple[str, str], ...] = ()  # variable that identifies its processes, `process_filter`
    jobs: int = 0  # active jobs that gconsole started


def node_facts(store: Store, configured: Iterable[ProcessFilter] = ()) -> tuple[NodeCapacity, ...]:
    """The capacity of every node of a store; `configured` have the process filters."""
    environments = {node.name: node.process_filter for node in configured if node.process_filter}
    gpus: dict[str, list[GpuNow]] = defaultdict(list)
    for key in store.gpus:
        gpus[key[0]].append(store.gpus[key])
    taken = _taken(store)
    about_nodes, about_gpus = _findings(store)
    running: dict[str, int] = defaultdict(int)
    for record in store.jobs.nodes.values():
        running[record.node] += record.state in ACTIVE

    def given(node: str) -> tuple[GpuCapacity, ...]:
        real = [gpu for gpu in gpus[node] if gpu.info and not gpu.info.simulated]
        return tuple(sorted((_gpu(node, gpu, taken, about_gpus) for gpu in real), key=lambda gpu: gpu.index))

    return tuple(
        NodeCapacity(
            name=now.name, why_not=_absence(now), gpus=given(now.name),
            mem_available_bytes=now.host.mem_available_bytes if now.host else None,
            cpu_pct=now.host.cpu_pct if now.host else None,
            errors=tuple(f.text for f in about_nodes[now.name] if f.severity == "error"),
            warnings=(
                *(f.text for f in about_nodes[now.name] if f.severity == "warning"),
                *(f"gpu{gpu.index}: {f.text}" for gpu in given(now.name)
                  for f in about_gpus[f"{now.name}:gpu{gpu.index}"] if f.severity == "warning"),
                *_clock(store, now.name),
            ),
            versions=_versions(now, gpus[now.name]),
            environment=(variable,) if (variable := environments.get(now.name)) else (),
            jobs=running[now.name],
        )
        for now in store.nodes.values()
    )  # fmt: skip


def _absence(now: NodeNow) -> str | None:
    state = now.state
    if state is None or state.state != "ok":
        word = state.state if state else "expected"
        return f"{word}: {state.error.text}" if state and state.error else word
    return None if now.cost else "no sample received yet"


def _clock(store: Store, node: str) -> tuple[str, ...]:
    """Warnings of the node's time service about its clock."""
    source = store.clocks.sources.get(node)
    if source is None:
        return ()
    if source.synced is False:
        return (f"clock not synchronised ({source.daemon or 'no time service'})",)
    if source.offset_ns is not None and abs(source.offset_ns) > CLOCK_OFF_NS:
        return (f"clock {millis(source.offset_ns, signed=True)} ms off, according to {source.daemon}",)
    return ()


def _gpu(node: str, now: GpuNow, taken: dict[tuple[str, str], str], findings: dict[str, list[Finding]]) -> GpuCapacity:
    info = now.info
    assert info is not None
    why_not = taken.get((node, info.uuid))
    errors = [finding for finding in findings[f"{node}:gpu{info.index}"] if finding.severity == "error"]
    if info.lost:
        why_not = f"lost: {info.lost}"
    elif errors:
        why_not = f"{errors[0].id}: {errors[0].text}"
    elif info.mig_devices:
        why_not = "partitioned by MIG"
    elif why_not is None and now.gpu is not None and (now.gpu.mem_used_bytes or 0) > TAKEN_BYTES:
        why_not = f"{size(now.gpu.mem_used_bytes or 0)} of memory in use"
    return GpuCapacity(info.index, info.uuid, info.mem_total_bytes, why_not)


def _taken(store: Store) -> dict[tuple[str, str], str]:
    """The reason of each occupied GPU: a process, or an active job that gconsole started."""
    occupants: dict[tuple[str, str], str] = {}
    for process in store.gpu_processes.values():
        if process.type != "graphics":  # a display uses little memory
            command = f" ({process.comm})" if process.comm else ""
            occupants.setdefault((process.node, process.uuid), f"pid {process.pid}{command} is running on it")
    for record in store.jobs.nodes.values():
        if record.state in ACTIVE:
            for uuid in record.gpus:
                occupants[record.node, uuid] = f"assigned to job {record.job}"
    return occupants


def _findings(store: Store) -> tuple[dict[str, list[Finding]], dict[str, list[Finding]]]:
    """Open findings about whole nodes (and their ports), and about GPUs, by name."""
    nodes: dict[str, list[Finding]] = defaultdict(list)
    gpus: dict[str, list[Finding]] = defaultdict(list)
    for finding in store.findings.values():
        if finding.cleared_at is not None:
            continue
        for culprit in finding.culprits:
            part = _PART.fullmatch(culprit)
            if culprit in store.nodes:
                nodes[culprit].append(finding)
            elif part and part["gpu"] is not None:
                gpus[culprit].append(finding)
            elif part and part["node"] in store.nodes:
                nodes[part["node"]].append(finding)
    return nodes, gpus


def _versions(now: NodeNow, gpus: list[GpuNow]) -> tuple[str | None, ...]:
    info = next((gpu.info for gpu in gpus if gpu.info and not gpu.info.simulated), None)
    return (info.driver if info else None, info.cuda_driver if info else None, now.node.arch if now.node else None)
