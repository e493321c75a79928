"""Comparison of two sessions: nodes, versions, links, findings and metrics; equal facts are omitted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

#: Suffix of the facts that count the links of a type.
LINKS: Final = " links"


class Spread(msgspec.Struct, frozen=True):
    """Distribution of one metric; of many samples, of a choice by their hash."""

    samples: int
    median: float
    p95: float
    p99: float
    max: float


class Figure(msgspec.Struct, frozen=True):
    """One metric in both sessions; None where it was not measured."""

    name: str  # gpu.power_w
    a: Spread | None
    b: Spread | None


class ChangedFact(msgspec.Struct, frozen=True):
    """One fact of one node that differs."""

    node: str
    what: str
    a: str | None
    b: str | None


class Comparison(msgspec.Struct, frozen=True):
    """The differences between two sessions."""

    schema: str
    a: str  # names of the sessions
    b: str
    nodes_only_a: tuple[str, ...]
    nodes_only_b: tuple[str, ...]
    changed: tuple[ChangedFact, ...]
    findings_only_a: tuple[str, ...]  # "id: culprits"
    findings_only_b: tuple[str, ...]
    findings_both: tuple[str, ...]
    figures: tuple[Figure, ...]  # all measured in either

    @property
    def is_different(self) -> bool:
        """Whether nodes, facts or findings differ; metrics always do."""
        return bool(
            self.nodes_only_a or self.nodes_only_b or self.changed or self.findings_only_a or self.findings_only_b
        )


class Alike(msgspec.Struct, frozen=True):
    """Nodes with the same change of one fact."""

    nodes: tuple[str, ...]
    what: str
    a: str | None
    b: str | None


def folded(changed: Iterable[ChangedFact]) -> list[Alike]:
    """Return the changes, grouped over nodes with the same change."""
    alike: dict[tuple[str, str | None, str | None], list[str]] = {}
    for change in changed:
        alike.setdefault((change.what, change.a, change.b), []).append(change.node)
    return [Alike(tuple(nodes), what, a, b) for (what, a, b), nodes in alike.items()]


class ComparedSession(msgspec.Struct):
    """Facts, metrics and findings of one session."""

    facts: dict[str, dict[str, str]] = msgspec.field(default_factory=dict)  # node → what → value
    figures: dict[str, Spread] = msgspec.field(default_factory=dict)
    findings: set[str] = msgspec.field(default_factory=set)


def compare(name_a: str, a: ComparedSession, name_b: str, b: ComparedSession) -> Comparison:
    """Return the differences between two sessions of these names."""
    return Comparison(
        schema="gconsole.diff/1", a=name_a, b=name_b,
        nodes_only_a=tuple(sorted(a.facts.keys() - b.facts.keys())),
        nodes_only_b=tuple(sorted(b.facts.keys() - a.facts.keys())),
        changed=tuple(_changed(a.facts, b.facts)),
        findings_only_a=tuple(sorted(a.findings - b.findings)),
        findings_only_b=tuple(sorted(b.findings - a.findings)),
        findings_both=tuple(sorted(a.findings & b.findings)),
        figures=tuple(Figure(name, a.figures.get(name), b.figures.get(name))
                      for name in sorted(a.figures.keys() | b.figures.keys())),
    )  # fmt: skip


def _changed(a: Mapping[str, Mapping[str, str]], b: Mapping[str, Mapping[str, str]]) -> Iterator[ChangedFact]:
    for node in sorted(a.keys() & b.keys()):
        for what in sorted(a[node].keys() | b[node].keys()):
            before, after = a[node].get(what), b[node].get(what)
            if before != after:
                yield ChangedFact(node, what, before, after)
