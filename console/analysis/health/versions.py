"""Versions that differ between the nodes of one cluster."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from ..finding import FindingDraft
from .state import HealthState, NodeHealth

if TYPE_CHECKING:
    from ...config.sections import HealthConfig

#: What is compared: (plain word, record and field).
COMPARED: Final = {
    "driver": "gpu_info.driver", "CUDA": "gpu_info.cuda_driver", "NCCL": "rank.nccl", "kernel": "node.kernel",
}  # fmt: skip
#: So many nodes stand in a text by name.
_NAMED: Final = 4


def version_skew(facts: HealthState, limits: HealthConfig) -> Iterator[FindingDraft]:
    """Nodes whose driver, CUDA, NCCL or kernel is not that of most nodes; without a majority, all are named.

    What a node does not tell is not compared. A node whose ranks load several NCCLs differs from itself.
    """
    told = {name: _versions(node) for name, node in facts.nodes.items() if node.node is not None}
    differs: dict[str, list[str]] = defaultdict(list)  # node: what is different, in words
    for what in COMPARED:
        known = {name: versions[what] for name, versions in told.items() if what in versions}
        counts = Counter(known.values())
        if len(counts) < 2:
            continue
        (usual, often), *_ = counts.most_common()
        has_majority = 2 * often > len(known)
        for name, version in known.items():
            if not has_majority:
                differs[name].append(f"{what} {version}")
            elif version != usual:
                differs[name].append(f"{what} {version}, {_plural(often)} {usual}")
    groups: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for name, words in differs.items():
        groups[tuple(words)].append(name)
    for told_words, names in groups.items():
        yield _skew(told_words, sorted(names), told)


def _skew(words: tuple[str, ...], names: list[str], told: Mapping[str, Mapping[str, str]]) -> FindingDraft:
    some = ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")
    text = f"{some}: {'; '.join(words)}"
    different = [what for what in COMPARED if any(word.startswith(f"{what} ") for word in words)]
    evidence = tuple(f"{COMPARED[what]} {name} {told[name][what]}" for name in names[:_NAMED] for what in different)
    return FindingDraft("version_skew", "warning", "certain", tuple(names), text, evidence, parts=tuple(different))


def _versions(node: NodeHealth) -> dict[str, str]:
    """What one node tells: {word of COMPARED: version}."""
    assert node.node is not None
    found = {"kernel": node.node.kernel}
    infos = [gpu.info for gpu in node.gpus.values() if gpu.info is not None]
    for word, versions in (
        ("driver", {info.driver for info in infos if info.driver}),
        ("CUDA", {info.cuda_driver for info in infos if info.cuda_driver}),
        ("NCCL", set(node.nccl.values())),
    ):
        if versions:
            found[word] = " and ".join(sorted(versions))
    return found


def _plural(count: int) -> str:
    return f"{count} nodes have" if count > 1 else "another node has"
