"""The report of a headless run: what a pipeline reads. A pure fold of the store, so live and replay say the same."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec

from .analysis.found import IDS
from .analysis.hang import Verdict
from .analysis.jobs import Job, JobTable, RankRow, job_table
from .captured import CaptureLine, capture_lines, is_partial
from .clocktable import ClocksLine, clocks_line
from .communication import CollectivesLine, collectives_line
from .nodesets import natural
from .records import Failure, Finding, Gpu, GpuInfo, Severity
from .skewtable import SkewLine, skew_line
from .store import GpuKey, GpuNow, NodeNow, Store
from .topology.lines import ClassLine
from .verdicts import verdicts

SCHEMA = "gconsole.report/1"
_RANKING: dict[Severity, int] = {"info": 0, "warning": 1, "error": 2}


class NodeLine(msgspec.Struct):
    """One node: reached or not, and why not."""

    node: str
    state: str  # ok, failed, lost
    error: Failure | None
    hostname: str | None
    python: str | None
    kernel: str | None
    agent: str | None
    simulated: bool | None  # None where the node never said
    unreadable: int | None  # Python processes of other users that the agent may not read: ranks may be among them


class MissingRank(msgspec.Struct):
    rank: int | None
    reason: str


class JobLine(msgspec.Struct):
    job: str
    attempt: int
    world_size: int | None
    ranks_found: list[int]
    ranks_missing: list[MissingRank]
    conflicts: list[str]


class RankLine(msgspec.Struct):
    job: str
    attempt: int
    rank: int | None
    local_rank: int | None
    node: str
    pid: int
    gpu: str | None
    state: str
    step: int | None
    source: str


class GpuLine(msgspec.Struct):
    """One GPU, or one MIG device, and what its driver said last. None is unknown; `GpuInfo` says why."""

    node: str
    index: int
    uuid: str
    name: str | None
    parent: str | None  # of a MIG device: the uuid of its GPU
    pci_bus_id: str | None
    mem_total_bytes: int | None
    mem_used_bytes: int | None
    util_pct: float | None
    power_w: float | None
    power_limit_w: float | None
    temp_c: float | None
    driver: str | None
    lost: str | None  # why the driver cannot reach it; None while it answers
    clocks_event_reasons: tuple[str, ...]
    ecc_uncorrected_volatile: int | None
    recovery_action: str | None
    ranks: list[int]  # that use it, as far as its processes tell
    simulated: bool


class NicLine(msgspec.Struct):
    """One RDMA port or physical Ethernet interface, at its last word. None is unknown."""

    node: str
    device: str
    port: int
    rdma: bool
    state: str | None
    rate_bytes_s: float | None
    link_layer: str | None
    netdev: str | None
    pci_bus_id: str | None
    rx_bytes_s: float | None
    tx_bytes_s: float | None


class CostLine(msgspec.Struct):
    """What the agent cost its node, at its last word."""

    node: str
    cpu_pct: float | None
    rss_bytes: int | None
    tx_bytes_s: float | None


class FindingLine(msgspec.Struct):
    id: str
    severity: Severity
    confidence: str
    culprits: tuple[str, ...]
    victims: tuple[str, ...]
    text: str
    evidence: tuple[str, ...]
    first_seen: str
    cleared_at: str | None


class TopologyLines(msgspec.Struct):
    """The classes of nodes that are connected alike; `gconsole topo --format json` has every link, too."""

    classes: list[ClassLine]


class Report(msgspec.Struct):
    """`gconsole.report/1`. Instants are ISO-8601 UTC, with the nanoseconds of the console's clock beside them."""

    schema: str
    cluster: str
    simulated: bool  # true where any node's data is
    started_at: str | None
    started_at_ns: int
    ended_at: str | None
    ended_at_ns: int
    nodes: list[NodeLine]
    jobs: list[JobLine]
    ranks: list[RankLine]
    gpus: list[GpuLine]
    nics: list[NicLine]
    topology: TopologyLines
    captures: list[CaptureLine]
    collectives: CollectivesLine
    skew: SkewLine
    verdicts: list[Verdict]  # of every job, where there is a capture
    findings: list[FindingLine]
    agent_cost: list[CostLine]
    clocks: ClocksLine


def make_report(store: Store) -> Report:
    """Everything the store knows that a pipeline may ask."""
    table = jobs_of(store)
    nodes = sorted(store.nodes.values(), key=lambda now: natural(now.name))
    return Report(
        schema=SCHEMA,
        cluster=store.console.cluster if store.console else "",
        simulated=any(now.node.simulated for now in nodes if now.node),
        started_at=iso(store.started_rx),
        started_at_ns=store.started_rx,
        ended_at=iso(store.newest_rx),
        ended_at_ns=store.newest_rx,
        nodes=[_node_line(now) for now in nodes],
        jobs=[_job_line(job) for job in table.jobs],
        ranks=[_rank_line(row) for job in table.jobs for row in job.rows],
        gpus=_gpu_lines(store),
        nics=_nic_lines(store),
        topology=_topology_lines(store),
        captures=capture_lines(store),
        collectives=collectives_line(store),
        skew=skew_line(store),
        verdicts=verdicts(store),
        findings=[_finding_line(finding) for finding in _worst_first(store.findings.values())],
        agent_cost=[
            CostLine(now.name, now.cost.cpu_pct, now.cost.rss_bytes, now.cost.tx_bytes_s) for now in nodes if now.cost
        ],
        clocks=clocks_line(store),
    )


def exit_code(report: Report, fail_on: Sequence[str] = ("error",)) -> int:
    """The exit code of a headless command: 4 nothing reachable, 1 a finding that counts, 3 partial, 0 fine.

    `fail_on` is a severity (that or a worse one counts), ids of findings, or both.
    """
    if any(_counts(line, fail_on) for line in report.findings) and any(line.state == "ok" for line in report.nodes):
        return 1
    unseen = any(job.ranks_missing for job in report.jobs) or any(is_partial(line) for line in report.captures)
    return _coverage([line.state for line in report.nodes], unseen)


def coverage_code(store: Store) -> int:
    """The exit code of a command that makes no findings: 4 nothing reachable, 3 some nodes unseen, 0 all seen."""
    return _coverage([now.state.state if now.state else "failed" for now in store.nodes.values()], False)


def _coverage(states: Sequence[str], unseen: bool) -> int:
    if "ok" not in states:
        return 4
    return 3 if unseen or any(state != "ok" for state in states) else 0


def _counts(line: FindingLine, fail_on: Sequence[str]) -> bool:
    if line.cleared_at is not None:
        return False
    thresholds = [_RANKING[word] for word in fail_on if word in _RANKING]
    return line.id in fail_on or any(_RANKING[line.severity] >= threshold for threshold in thresholds)


def unknown_words(fail_on: Sequence[str]) -> list[str]:
    """What of `--fail-on` is neither a severity nor the id of a finding."""
    return [word for word in fail_on if word not in _RANKING and word not in IDS]


def iso(ns: int) -> str | None:
    """An instant as ISO-8601 UTC with microseconds; None for 0, which is no instant."""
    if ns == 0:
        return None
    return datetime.fromtimestamp(ns // 1000 / 1e6, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def jobs_of(store: Store) -> JobTable:
    """The jobs of everything the store knows now."""
    ranks = store.ranks.values()
    return job_table(
        (now.rank for now in ranks),
        (now.stat for now in ranks if now.stat),
        (now.state for now in store.nodes.values() if now.state),
    )


def _job_line(job: Job) -> JobLine:
    return JobLine(
        job=job.job,
        attempt=job.attempt,
        world_size=job.world_size,
        ranks_found=list(job.ranks_found),
        ranks_missing=[MissingRank(missing.rank, missing.reason) for missing in job.ranks_missing],
        conflicts=[conflict.text for conflict in job.conflicts],
    )


def _rank_line(row: RankRow) -> RankLine:
    return RankLine(
        job=row.job, attempt=row.attempt, rank=row.rank, local_rank=row.local_rank, node=row.node, pid=row.pid,
        gpu=row.gpu, state=row.state, step=row.step, source=row.source,
    )


def _gpu_lines(store: Store) -> list[GpuLine]:
    """Every GPU in the order of nodes and indices, MIG devices behind their GPU."""
    ranks: dict[GpuKey, set[int]] = {}
    for process in store.gpu_processes.values():
        if process.rank is not None:
            ranks.setdefault((process.node, process.uuid), set()).add(process.rank)
    lines = [_gpu_line(key, store.gpus[key], sorted(ranks.get(key, ()))) for key in store.gpus]
    return sorted(lines, key=lambda line: (natural(line.node), line.index, line.parent is not None, line.uuid))


def _nic_lines(store: Store) -> list[NicLine]:
    nics = sorted(store.nics.values(), key=lambda nic: (natural(nic.node), not nic.rdma, natural(nic.device), nic.port))
    return [
        NicLine(
            node=nic.node, device=nic.device, port=nic.port, rdma=nic.rdma, state=nic.state,
            rate_bytes_s=nic.rate_bytes_s, link_layer=nic.link_layer, netdev=nic.netdev, pci_bus_id=nic.pci_bus_id,
            rx_bytes_s=nic.rx_bytes_s, tx_bytes_s=nic.tx_bytes_s,
        )
        for nic in nics
    ]


def _topology_lines(store: Store) -> TopologyLines:
    if not store.gpus and not store.nics:
        return TopologyLines([])
    from .topology.document import class_lines  # networkx takes 75 ms to import; a fleet of CPUs needs none
    from .topology.gather import gather

    return TopologyLines(class_lines(gather(store).classes))


def _gpu_line(key: GpuKey, now: GpuNow, ranks: list[int]) -> GpuLine:
    node, uuid = key
    info = now.info or GpuInfo(index=now.gpu.index if now.gpu else 0, uuid=uuid)
    gpu = now.gpu if now.gpu and not info.lost else Gpu(index=info.index, uuid=uuid)  # its last figures are old
    return GpuLine(
        node=node, index=info.index, uuid=uuid, name=info.name, parent=info.parent, pci_bus_id=info.pci_bus_id,
        mem_total_bytes=info.mem_total_bytes, mem_used_bytes=gpu.mem_used_bytes, util_pct=gpu.util_pct,
        power_w=gpu.power_w, power_limit_w=info.power_limit_w, temp_c=gpu.temp_c, driver=info.driver, lost=info.lost,
        clocks_event_reasons=gpu.clocks_event_reasons, ecc_uncorrected_volatile=gpu.ecc_uncorrected_volatile,
        recovery_action=gpu.recovery_action, ranks=ranks, simulated=info.simulated,
    )


def _node_line(now: NodeNow) -> NodeLine:
    state = now.state.state if now.state else "failed"
    node = now.node
    return NodeLine(
        node=now.name,
        state=state if state in ("ok", "lost") else "failed",
        error=now.state.error if now.state else None,
        hostname=node.hostname if node else None,
        python=node.python if node else None,
        kernel=node.kernel if node else None,
        agent=node.agent if node else None,
        simulated=node.simulated if node else None,
        unreadable=now.host.unreadable if now.host else None,
    )


def _worst_first(findings: Sequence[Finding]) -> list[Finding]:
    """Open ones before those that were cleared, errors first, then as they were seen."""
    return sorted(findings, key=lambda one: (
        one.cleared_at is not None, -_RANKING[one.severity], one.first_seen, one.id, one.culprits))  # fmt: skip


def _finding_line(finding: Finding) -> FindingLine:
    return FindingLine(
        id=finding.id, severity=finding.severity, confidence=finding.confidence, culprits=finding.culprits,
        victims=finding.victims, text=finding.text, evidence=finding.evidence, first_seen=iso(finding.first_seen) or "",
        cleared_at=iso(finding.cleared_at) if finding.cleared_at else None,
    )


def to_json(report: Report) -> bytes:
    """The report as indented JSON with a newline at its end."""
    return msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n"
