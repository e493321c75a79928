"""The nodes that a job gets, and why the others do not take part."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from ..core.job_protocol import Readiness
from ..text.format import size
from ..text.nodeset_fold import natural
from .node_capacity import GpuCapacity, NodeCapacity
from .request import JobRequest

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
    """Select nodes. `ready` has the preflight answers so far, or why a node did not respond."""
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
