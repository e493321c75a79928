"""Node checks: clock steps (from the two timestamps of every tick, without probes), version skew, faults of gconsole.

A fault of gconsole, an agent that cannot read or a console that is late, makes other statements incomplete.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import Final

from ...config.sections import HealthConfig
from ...text.format import some
from ..finding import FindingDraft
from .entities import NodeHealth
from .state import HealthState

#: Compared versions: {name: record and field}.
COMPARED: Final = {
    "driver": "gpu_info.driver", "CUDA": "gpu_info.cuda_driver", "NCCL": "rank.nccl", "kernel": "node.kernel",
}  # fmt: skip
#: Seconds after which nodes that have not reported are left out of comparisons.
SETTLE_S: Final = 45.0
#: Nodes that a text lists by name.
_NAMED: Final = 4


def agent_error(facts: HealthState, limits: HealthConfig) -> Iterator[FindingDraft]:
    """One finding per node whose current agent reported an internal error, with the newest one."""
    for node in facts.nodes.values():
        if not node.agent_errors:
            continue
        texts = [record.text.strip().splitlines() or ["no text"] for record in node.agent_errors.values()]
        newest = texts[-1]
        more = f" (and {len(texts) - 1} more)" if len(texts) > 1 else ""
        cause = f": {newest[-1].strip()}" if len(newest) > 1 else ""
        text = f"{node.name}: the agent failed to read part of the node{more}: {newest[0]}{cause}"
        evidence = tuple(f"log.text {node.name} {words[0]}" for words in texts[:4])
        yield FindingDraft("agent_error", "error", "certain", (node.name,), text, evidence)


def records_missing(facts: HealthState, limits: HealthConfig) -> Iterator[FindingDraft]:
    """Nodes of which records are missing within the last `window_s` seconds: figures have a hole there."""
    for name, node in facts.nodes.items():
        gaps = [gap for gap in node.gaps if facts.newest - gap.rx <= limits.window_s * 1e9]
        if gaps:
            counts = [gap.count for gap in gaps if gap.count is not None]
            missing = f"{sum(counts)} ticks or records are missing" if counts else "records are missing"
            text = f"{name}: {missing}: {some(list(dict.fromkeys(gap.reason for gap in gaps)), 2)}"
            yield FindingDraft("records_missing", "info", "certain", (name,), text, (f"gap.count {name}",))


def console_late(facts: HealthState, limits: HealthConfig) -> Iterator[FindingDraft]:
    """One finding while the console does not keep up with its nodes: about the console, so never more than an info."""
    if facts.console_late is not None:
        text = facts.console_late.text
        yield FindingDraft("console_late", "info", "certain", (), text, ("log.text",))


def gateway_lost(facts: HealthState, limits: HealthConfig) -> Iterator[FindingDraft]:
    """One finding per gateway that is lost; its nodes have a state of their own."""
    for name, record in facts.lost_gateways.items():
        yield FindingDraft("gateway_lost", "warning", "certain", (name,), record.text, (f"log.text {name}",))


def clock_step(facts: HealthState, limits: HealthConfig) -> Iterator[FindingDraft]:
    """Nodes whose CLOCK_REALTIME was stepped by 100 ms or more within the last `window_s` seconds.

    Probes find smaller steps, under the same id.
    """
    for name, node in facts.nodes.items():
        clock = node.clock
        if clock is not None and clock.set_at is not None and facts.newest - clock.set_at <= limits.window_s * 1e9:
            by = f"{clock.set_by_ns / 1e9:+,.3f} s"
            yield FindingDraft(
                "clock_step", "warning", "certain", (name,),
                f"{name}: CLOCK_REALTIME was stepped by {by} (set, or machine suspended); timestamps of"
                " logs and jobs step, too",
                (f"agent_cost.t {name} {by} against agent_cost.mono",),
            )  # fmt: skip


def version_skew(facts: HealthState, limits: HealthConfig) -> Iterator[FindingDraft]:
    """Nodes whose driver, CUDA, NCCL or kernel differs from the majority; without a majority all are named.

    Drivers and kernels are compared between nodes of one architecture with the same GPU models, NCCL between the
    nodes of one job. Unknown versions are not compared. A node whose ranks load several NCCL versions counts as
    different. Nothing is compared until every node has reported its GPUs or failed, for at most `SETTLE_S`.
    """
    if not has_settled(facts):
        return
    differs: dict[str, dict[str, str]] = defaultdict(dict)  # node: {what is different: in words}
    for what, versions in _compared(facts):
        counts = Counter(versions.values())
        if len(counts) < 2:
            continue
        (usual, often), *_ = counts.most_common()
        has_majority = 2 * often > len(versions)
        for name, version in versions.items():
            if not has_majority:
                differs[name][what] = f"{what} {version}"
            elif version != usual:
                differs[name][what] = f"{what} {version}, {_plural(often)} {usual}"
    groups: dict[tuple[tuple[str, str], ...], list[str]] = defaultdict(list)
    for name, words in differs.items():
        groups[tuple((what, words[what]) for what in COMPARED if what in words)].append(name)
    for words_alike, names in groups.items():
        yield _skew(dict(words_alike), sorted(names), facts)


def has_settled(facts: HealthState) -> bool:
    """Whether every node has reported its GPUs, or cannot; True after `SETTLE_S` in any case."""
    if facts.oldest is not None and facts.newest - facts.oldest > SETTLE_S * 1e9:
        return True
    return not any(map(_is_awaited, facts.nodes.values()))


def _is_awaited(node: NodeHealth) -> bool:
    if node.state is not None and node.state.state in ("failed", "lost"):
        return False
    gpus = node.inventory.get("gpu")
    return node.node is None or gpus is None or (gpus.count is not None and not node.has_all_gpus)


def _compared(facts: HealthState) -> Iterator[tuple[str, dict[str, str]]]:
    """(what, {node: version}) of each set of nodes that should be equal."""
    alike: dict[tuple[str, frozenset[str | None]], list[NodeHealth]] = defaultdict(list)
    jobs: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for node in facts.nodes.values():
        for job, version in node.nccl.values():
            jobs[job][node.name].add(version)
        if node.node is not None and node.has_all_gpus:
            models = frozenset(gpu.info.name for gpu in node.gpus.values() if gpu.info and gpu.info.parent is None)
            alike[node.node.arch, models].append(node)
    for nodes in alike.values():
        versions = {node.name: _versions(node) for node in nodes}
        for what in COMPARED:
            yield what, {name: of[what] for name, of in versions.items() if what in of}
    for loaded in jobs.values():
        yield "NCCL", {name: " and ".join(sorted(of)) for name, of in loaded.items()}


def _skew(words: Mapping[str, str], names: list[str], facts: HealthState) -> FindingDraft:
    text = f"{some(names, _NAMED)}: {'; '.join(words.values())}"
    evidence = tuple(
        f"{COMPARED[what]} {name} {_version(facts.nodes[name], what)}" for name in names[:_NAMED] for what in words
    )
    return FindingDraft("version_skew", "warning", "certain", tuple(names), text, evidence, parts=tuple(words))


def _version(node: NodeHealth, what: str) -> str:
    if what == "NCCL":
        return " and ".join(sorted({version for _, version in node.nccl.values()}))
    return _versions(node)[what]


def _versions(node: NodeHealth) -> dict[str, str]:
    """The versions of one node, by the names of COMPARED, without NCCL."""
    assert node.node is not None
    versions = {"kernel": node.node.kernel}
    infos = [gpu.info for gpu in node.gpus.values() if gpu.info is not None]
    for name, values in (
        ("driver", {info.driver for info in infos if info.driver}),
        ("CUDA", {info.cuda_driver for info in infos if info.cuda_driver}),
    ):
        if values:
            versions[name] = " and ".join(sorted(values))
    return versions


def _plural(count: int) -> str:
    return f"{count} nodes have" if count > 1 else "another node has"
