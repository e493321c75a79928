"""Node checks: clock steps (from the two timestamps of every tick, without probes) and version skew."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import Final

from ...config.sections import HealthConfig
from ...text.format import some
from ..finding import FindingDraft
from .state import HealthState, NodeHealth

#: Compared versions: {name: record and field}.
COMPARED: Final = {
    "driver": "gpu_info.driver", "CUDA": "gpu_info.cuda_driver", "NCCL": "rank.nccl", "kernel": "node.kernel",
}  # fmt: skip
#: Nodes that a text lists by name.
_NAMED: Final = 4


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

    Unknown versions are not compared. A node whose ranks load several NCCL versions counts as different.
    """
    reported = {name: _versions(node) for name, node in facts.nodes.items() if node.node is not None}
    differs: dict[str, list[str]] = defaultdict(list)  # node: what is different, in words
    for what in COMPARED:
        present = {name: versions[what] for name, versions in reported.items() if what in versions}
        counts = Counter(present.values())
        if len(counts) < 2:
            continue
        (usual, often), *_ = counts.most_common()
        has_majority = 2 * often > len(present)
        for name, version in present.items():
            if not has_majority:
                differs[name].append(f"{what} {version}")
            elif version != usual:
                differs[name].append(f"{what} {version}, {_plural(often)} {usual}")
    groups: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for name, words in differs.items():
        groups[tuple(words)].append(name)
    for words_alike, names in groups.items():
        yield _skew(words_alike, sorted(names), reported)


def _skew(words: tuple[str, ...], names: list[str], reported: Mapping[str, Mapping[str, str]]) -> FindingDraft:
    text = f"{some(names, _NAMED)}: {'; '.join(words)}"
    different = [what for what in COMPARED if any(word.startswith(f"{what} ") for word in words)]
    evidence = tuple(f"{COMPARED[what]} {name} {reported[name][what]}" for name in names[:_NAMED] for what in different)
    return FindingDraft("version_skew", "warning", "certain", tuple(names), text, evidence, parts=tuple(different))


def _versions(node: NodeHealth) -> dict[str, str]:
    """The versions of one node, by the names of COMPARED."""
    assert node.node is not None
    versions = {"kernel": node.node.kernel}
    infos = [gpu.info for gpu in node.gpus.values() if gpu.info is not None]
    for name, values in (
        ("driver", {info.driver for info in infos if info.driver}),
        ("CUDA", {info.cuda_driver for info in infos if info.cuda_driver}),
        ("NCCL", set(node.nccl.values())),
    ):
        if values:
            versions[name] = " and ".join(sorted(values))
    return versions


def _plural(count: int) -> str:
    return f"{count} nodes have" if count > 1 else "another node has"
