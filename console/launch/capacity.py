"""The capacity of each node for a job, from the store."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass

from ..core.store import GpuNow, NodeNow, Store
from ..records import Finding, GpuProcess, NodeState
from ..text.format import size

#: Bytes. A GPU with more memory in use but no visible process is occupied, for example by another container.
TAKEN_BYTES = 1 << 30
#: ns. A larger clock offset is a warning: logs and timestamps of several nodes no longer match.
CLOCK_OFF_NS = 50_000_000
#: Culprits of findings about GPUs are named node:gpuN, of a port node:DEVICE.
_PART = re.compile(r"(?P<node>.+):(?:gpu(?P<gpu>\d+)|[^:]+)")


@dataclass(frozen=True, slots=True)
class GpuCapacity:
    """One GPU; `why_not` is None if a job can use it."""

    index: int
    uuid: str
    mem_bytes: int | None
    why_not: str | None = None


@dataclass(frozen=True, slots=True)
class NodeCapacity:
    """One node; `why_not` is None if it is connected."""

    name: str
    why_not: str | None = None
    gpus: tuple[GpuCapacity, ...] = ()
    mem_available_bytes: int | None = None
    cpu_pct: float | None = None
    errors: tuple[str, ...] = ()  # findings about the node itself
    warnings: tuple[str, ...] = ()  # findings about the node and its GPUs, and a clock that is not well
    versions: tuple[str | None, ...] = ()  # driver, CUDA, architecture: what should be equal in a job
    environment: tuple[tuple[str, str], ...] = ()  # what every process of this node must carry to be seen
    jobs: int = 0  # of gconsole's own that run there


def node_facts(store: Store, environments: dict[str, tuple[str, str]] | None = None) -> tuple[NodeCapacity, ...]:
    """Every node of a store; `environments` are the process filters of nodes that have one."""
    gpus: dict[str, list[GpuNow]] = defaultdict(list)
    for key in store.gpus:
        gpus[key[0]].append(store.gpus[key])
    taken = _taken(store)
    about_nodes, about_gpus = _findings(store)
    running: dict[str, int] = defaultdict(int)
    for record in store.jobs.nodes.values():
        running[record.node] += record.state in ("dispatching", "running", "stopping")

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
            environment=(variable,) if (variable := (environments or {}).get(now.name)) else (),
            jobs=running[now.name],
        )
        for now in store.nodes.values()
    )  # fmt: skip


def _absence(now: NodeNow) -> str | None:
    state: NodeState | None = now.state
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
        return (f"clock {source.offset_ns / 1e6:+.0f} ms off, according to {source.daemon}",)
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
    """GPUs with a process, or assigned to a gconsole job that is starting, and by what each is occupied."""
    occupants: dict[tuple[str, str], str] = {}
    for process in store.gpu_processes.values():
        if process.type != "graphics":  # a display takes little, and is on every workstation's card
            occupants.setdefault((process.node, process.uuid), _occupant(process))
    for record in store.jobs.nodes.values():
        if record.state in ("dispatching", "running", "stopping"):
            for uuid in record.gpus:
                occupants[record.node, uuid] = f"assigned to job {record.job}"
    return occupants


def _occupant(process: GpuProcess) -> str:
    return (
        f"pid {process.pid} ({process.comm}) is running on it"
        if process.comm
        else f"pid {process.pid} is running on it"
    )


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
