"""Which nodes get a job: those that can, the best first; of each other one, why not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..core.job_protocol import Readiness
from ..text.format import size
from ..text.nodeset_fold import natural
from .capacity import GpuFacts, NodeFacts
from .request import JobRequest

#: Above this share of all its CPUs a node works for somebody else; it is chosen after those that rest.
BUSY_PCT = 50.0


@dataclass(frozen=True, slots=True)
class Choice:
    """The nodes in the order of their rank, with the GPUs each gives; and those left out, with why."""

    chosen: tuple[NodeFacts, ...]
    gpus_per_node: int
    wanted: int  # nodes
    left_out: tuple[tuple[str, str], ...]
    usable: int  # nodes that could do it
    change: tuple[str, ...] = ()  # where too few can: what to ask for instead

    @property
    def is_met(self) -> bool:
        return len(self.chosen) == self.wanted


def choose(request: JobRequest, nodes: Sequence[NodeFacts], ready: Mapping[str, Readiness | str]) -> Choice:
    """Choose. `ready` holds what nodes answered that have been asked already, or why one did not answer."""
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
    return Choice(chosen, per_node, wanted, tuple(left_out), len(usable), change)


def gpus_per_node(request: JobRequest, nodes: Sequence[NodeFacts]) -> int:
    """As asked for; else all of the node that has most, which is 0 where no node has any."""
    if request.gpus_per_node is not None:
        return request.gpus_per_node
    return max((len(node.gpus) for node in nodes), default=0)


def free_gpus(request: JobRequest, node: NodeFacts) -> list[GpuFacts]:
    """Those the job could have, in the driver's order."""
    return [gpu for gpu in node.gpus if _unfit(request, gpu) is None]


def why_not(request: JobRequest, node: NodeFacts, per_node: int, ready: Readiness | str | None) -> str | None:
    """Why a node cannot take its part; None where it can."""
    if node.why_not:
        return node.why_not
    if node.errors:
        return node.errors[0]
    free = len(free_gpus(request, node)) if per_node else 0
    if free < per_node:
        return _too_few(request, node, free, per_node)
    available = node.mem_available_bytes
    if request.min_mem_bytes and (available is None or available < request.min_mem_bytes):
        return f"{_gib(available)} of memory available, {_gib(request.min_mem_bytes)} wanted"
    if isinstance(ready, str):
        return ready
    if ready is not None and ready.problems:
        return "; ".join(ready.problems)
    disk = ready.disk_free_bytes if ready else None
    if ready and request.min_disk_bytes and (disk is None or disk < request.min_disk_bytes):
        return f"{_gib(disk)} free in {ready.workdir}, {_gib(request.min_disk_bytes)} wanted"
    return None


def _unfit(request: JobRequest, gpu: GpuFacts) -> str | None:
    if gpu.why_not:
        return gpu.why_not
    if request.min_gpu_mem_bytes and (gpu.mem_bytes is None or gpu.mem_bytes < request.min_gpu_mem_bytes):
        return f"{_gib(gpu.mem_bytes)} of memory, {_gib(request.min_gpu_mem_bytes)} wanted"
    return None


def _too_few(request: JobRequest, node: NodeFacts, free: int, per_node: int) -> str:
    if not node.gpus:
        return f"no GPU, {per_node} wanted"
    first = next((f"gpu{gpu.index}: {why}" for gpu in node.gpus if (why := _unfit(request, gpu))), "")
    return f"{free} of {len(node.gpus)} GPUs free, {per_node} wanted" + (f" ({first})" if first else "")


def _order(node: NodeFacts, usual: tuple[str | None, ...] | None) -> tuple[object, ...]:
    is_busy = (node.cpu_pct or 0.0) > BUSY_PCT
    return (usual is not None and node.versions != usual, node.jobs, len(node.warnings), is_busy, natural(node.name))


def _not_needed(node: NodeFacts, usual: tuple[str | None, ...] | None, is_met: bool) -> str:
    if not is_met:
        return "it could, but too few others can"
    if usual is not None and node.versions != usual:
        return "not needed; its versions differ from the others'"
    if node.jobs:
        return "not needed; a job of gconsole runs there"
    return f"not needed; {node.warnings[0]}" if node.warnings else "not needed"


def _change(
    request: JobRequest, nodes: Sequence[NodeFacts], ready: Mapping[str, Readiness | str], wanted: int, per_node: int,
    usable: int,
) -> tuple[str, ...]:  # fmt: skip
    """What to ask for instead, each checked: it would be met now."""

    def could(other: JobRequest, count: int) -> int:
        return sum(why_not(other, node, count, ready.get(node.name)) is None for node in nodes)

    found = []
    if usable:
        found.append(f"--nodes {usable}: so many can")
    fewer = next((count for count in range(per_node - 1, 0, -1) if could(request, count) >= wanted), None)
    if fewer:
        found.append(f"--gpus-per-node {fewer}: then {could(request, fewer)} nodes can")
    for name in ("min_gpu_mem_bytes", "min_mem_bytes", "min_disk_bytes"):
        if getattr(request, name) and (count := could(_without(request, name), per_node)) >= wanted:
            found.append(f"without --{name.removesuffix('_bytes').replace('_', '-')}: then {count} nodes can")
    return tuple(found)


def _without(request: JobRequest, name: str) -> JobRequest:
    from dataclasses import replace

    return replace(request, **{name: 0})  # type: ignore[arg-type]  # one of three whole numbers


def _gib(value: int | None) -> str:
    return "an unknown amount" if value is None else size(value)
