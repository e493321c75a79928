"""The capacity of each node for a job, from the store, and the nodes that a job gets."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from ..config.model import NodeConfig
from ..core.job_protocol import Readiness
from ..core.store import GpuNow, NodeNow, Store
from ..records import Finding
from ..text.format import size
from ..text.nodeset_fold import natural
from .request import JobRequest
from .state import ACTIVE

#: Bytes. A GPU with more memory in use but no visible process is occupied, for example by another container.
TAKEN_BYTES = 1 << 30
#: ns. A larger clock offset is a warning: logs and timestamps of several nodes no longer match.
CLOCK_OFF_NS = 50_000_000
#: Culprits of findings about GPUs are named node:gpuN, of a port node:DEVICE.
_PART = re.compile(r"(?P<node>.+):(?:gpu(?P<gpu>\d+)|[^:]+)")


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


def node_facts(store: Store, configured: Iterable[NodeConfig] = ()) -> tuple[NodeCapacity, ...]:
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


#: Percent of all CPUs. A node above it is in use by others, and is selected after idle ones.
BUSY_PCT = 50.0


class NodeChoice(msgspec.Struct, frozen=True):
    """The selected nodes in rank order, and the others with the reason."""

    chosen: tuple[NodeCapacity, ...]
    gpus_per_node: int
    wanted: int  # nodes
    left_out: tuple[tuple[str, str], ...]
    usable: int  # nodes that could do it
    change: tuple[str, ...] = ()  # where too few can: what to ask for instead

    @property
    def is_met(self) -> bool:
        """Whether enough nodes were selected."""
        return len(self.chosen) == self.wanted


def select_nodes(
    request: JobRequest, nodes: Sequence[NodeCapacity], ready: Mapping[str, Readiness | str]
) -> NodeChoice:
    """Select nodes. `ready` has the preflight answers so far, or why a node did not answer."""
    candidates = [node for node in nodes if request.select is None or node.name in request.select]
    per_node = gpus_per_node(request, candidates)
    wanted = request.nodes or (len(request.select) if request.select else 1)
    reasons = {node.name: why_not(request, node, per_node, ready.get(node.name)) for node in candidates}
    usable = [node for node in candidates if reasons[node.name] is None]
    commonest = Counter(node.versions for node in usable).most_common(1)
    usual = commonest[0][0] if commonest and commonest[0][1] >= wanted else None
    usable.sort(key=lambda node: _order(node, usual))
    chosen = tuple(sorted(usable[:wanted], key=lambda node: natural(node.name))) if len(usable) >= wanted else ()
    names = {node.name for node in chosen}
    left_out = [
        (node.name, reasons[node.name] or _not_needed(node, usual, bool(chosen)))
        for node in candidates if node.name not in names
    ]  # fmt: skip
    change = () if chosen else _change(request, candidates, ready, wanted, per_node, len(usable))
    return NodeChoice(chosen, per_node, wanted, tuple(left_out), len(usable), change)


def gpus_per_node(request: JobRequest, nodes: Sequence[NodeCapacity]) -> int:
    """As requested; else the maximum over all nodes, 0 without GPUs."""
    if request.gpus_per_node is not None:
        return request.gpus_per_node
    return max((len(node.gpus) for node in nodes), default=0)


def free_gpus(request: JobRequest, node: NodeCapacity) -> list[GpuCapacity]:
    """GPUs that the job could use, in the driver's order."""
    return [gpu for gpu in node.gpus if _unfit(request, gpu) is None]


def why_not(request: JobRequest, node: NodeCapacity, per_node: int, ready: Readiness | str | None) -> str | None:
    """Why a node cannot run its part of the job; None if it can."""
    if node.why_not:
        return node.why_not
    if node.errors:
        return node.errors[0]
    free = len(free_gpus(request, node)) if per_node else 0
    if free < per_node:
        return _too_few(request, node, free, per_node)
    available = node.mem_available_bytes
    if request.min_mem_bytes and (available is None or available < request.min_mem_bytes):
        return f"{_amount(available)} of memory available, {_amount(request.min_mem_bytes)} needed"
    if isinstance(ready, str):
        return ready
    if ready is not None and ready.problems:
        return "; ".join(ready.problems)
    disk = ready.disk_free_bytes if ready else None
    if ready and request.min_disk_bytes and (disk is None or disk < request.min_disk_bytes):
        return f"{_amount(disk)} free in {ready.workdir}, {_amount(request.min_disk_bytes)} needed"
    return None


def _unfit(request: JobRequest, gpu: GpuCapacity) -> str | None:
    if gpu.why_not:
        return gpu.why_not
    if request.min_gpu_mem_bytes and (gpu.mem_bytes is None or gpu.mem_bytes < request.min_gpu_mem_bytes):
        return f"{_amount(gpu.mem_bytes)} of memory, {_amount(request.min_gpu_mem_bytes)} needed"
    return None


def _too_few(request: JobRequest, node: NodeCapacity, free: int, per_node: int) -> str:
    if not node.gpus:
        return f"no GPU, {per_node} needed"
    first = next((f"gpu{gpu.index}: {why}" for gpu in node.gpus if (why := _unfit(request, gpu))), "")
    return f"{free} of {len(node.gpus)} GPUs free, {per_node} needed" + (f" ({first})" if first else "")


def _order(node: NodeCapacity, usual: tuple[str | None, ...] | None) -> tuple[object, ...]:
    is_busy = (node.cpu_pct or 0.0) > BUSY_PCT
    return (usual is not None and node.versions != usual, node.jobs, len(node.warnings), is_busy, natural(node.name))


def _not_needed(node: NodeCapacity, usual: tuple[str | None, ...] | None, is_met: bool) -> str:
    if not is_met:
        return "suitable, but too few nodes are"
    if usual is not None and node.versions != usual:
        return "not needed; its versions differ from those of the others"
    if node.jobs:
        return "not needed; runs another gconsole job"
    return f"not needed; {node.warnings[0]}" if node.warnings else "not needed"


def _change(
    request: JobRequest, nodes: Sequence[NodeCapacity], ready: Mapping[str, Readiness | str],
    wanted: int, per_node: int, usable: int,
) -> tuple[str, ...]:  # fmt: skip
    """Requests that could be met now."""

    def could(other: JobRequest, count: int) -> int:
        return sum(why_not(other, node, count, ready.get(node.name)) is None for node in nodes)

    changes = []
    if usable:
        changes.append(f"--nodes {usable}")
    fewer = next((count for count in range(per_node - 1, 0, -1) if could(request, count) >= wanted), None)
    if fewer:
        changes.append(f"--gpus-per-node {fewer}: {could(request, fewer)} nodes available")
    for name in ("min_gpu_mem_bytes", "min_mem_bytes", "min_disk_bytes"):
        without: dict[str, Any] = {name: 0}
        if getattr(request, name) and (count := could(replace(request, **without), per_node)) >= wanted:
            changes.append(f"without --{name.removesuffix('_bytes').replace('_', '-')}: {count} nodes available")
    return tuple(changes)


def _amount(value: int | None) -> str:
    return "an unknown amount" if value is None else size(value)
