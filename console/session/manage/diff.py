"""Comparison of two sessions: nodes, versions, links, findings and metrics; equal facts are omitted."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from ...core.bus import Published
from ...records import Finding, GpuInfo, Link, Node, Rank
from ...records.kinds import key_of, kind_of
from ...records.metrics import fields_for
from ..format import reader
from ..format.layout import Session
from ..format.reader import RecordFilter

#: Kinds that are compared; others are not decompressed.
_KINDS: Final = frozenset({"gpu", "host", "nic", "rank_stat", "node", "gpu_info", "rank", "link", "finding"})
#: Compared fields of a node and of its GPUs.
_OF_NODE: Final = ("kernel", "arch", "os", "python", "cpus", "mem_total_bytes")
_OF_GPU: Final = (
    "name", "driver", "cuda_driver", "vbios", "power_limit_w", "pcie_gen_max", "pcie_width_max", "nvlinks",
)  # fmt: skip
#: Suffix of the facts that count the links of a type.
LINKS: Final = " links"
#: Size of the reservoir of samples per metric.
KEPT: Final = 100_000


class Spread(msgspec.Struct, frozen=True):
    """Distribution of one metric; of more than `KEPT` samples, of a uniform random choice."""

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


class Sampled(msgspec.Struct):
    """Reservoir of a metric's samples (Vitter's algorithm R), with a fixed seed."""

    seen: int = 0
    kept: list[float] = msgspec.field(default_factory=list)
    chance: random.Random = msgspec.field(default_factory=lambda: random.Random(1))

    def add(self, value: float) -> None:
        """Add a sample."""
        self.seen += 1
        if len(self.kept) < KEPT:
            self.kept.append(value)
        elif (slot := self.chance.randrange(self.seen)) < KEPT:
            self.kept[slot] = value

    def spread(self) -> Spread | None:
        """Return the distribution; None without samples."""
        if not self.kept:
            return None
        ordered = sorted(self.kept)
        last = len(ordered) - 1
        median, p95, p99 = (ordered[round(share * last)] for share in (0.5, 0.95, 0.99))
        return Spread(self.seen, median, p95, p99, ordered[last])


class ComparedSession(msgspec.Struct):
    """Facts, metrics and findings of one session."""

    facts: dict[str, dict[str, str]] = msgspec.field(default_factory=dict)  # node → what → value
    figures: dict[str, Sampled] = msgspec.field(default_factory=dict)
    findings: set[str] = msgspec.field(default_factory=set)
    _links: dict[str, dict[tuple[object, ...], str]] = msgspec.field(default_factory=dict)

    def add(self, record: Published) -> None:
        """Add a record."""
        for name in fields_for(type(record), "diff"):
            value = getattr(record, name)
            if value is not None:
                self.figures.setdefault(f"{kind_of(record)}.{name}", Sampled()).add(float(value))
        match record:
            case Node():
                self._fact(record.node, {name: getattr(record, name) for name in _OF_NODE})
            case GpuInfo():
                place = f"gpu{record.index}" if record.mig_index is None else f"gpu{record.index}.{record.mig_index}"
                self._fact(record.node, {f"{place} {name}": getattr(record, name) for name in _OF_GPU})
            case Rank(nccl=str(version)):
                self._fact(record.node, {"NCCL": version})
            case Link():
                ends = key_of(record)
                links = self._links.setdefault(record.node, {})
                if record.gone:
                    links.pop(ends, None)
                else:
                    links[ends] = f"{record.type}{LINKS}"
            case Finding():
                blamed = f": {', '.join(record.culprits)}" if record.culprits else ""
                self.findings.add(f"{record.id}{blamed}")

    def all_facts(self) -> dict[str, dict[str, str]]:
        """Return the facts of each node, its final number of links per type included."""
        facts_of = {node: dict(facts) for node, facts in self.facts.items()}
        for node, links in self._links.items():
            for what, number in Counter(links.values()).items():
                facts_of.setdefault(node, {})[what] = str(number)
        return facts_of

    def _fact(self, node: str, facts: Mapping[str, Any]) -> None:
        node_facts = self.facts.setdefault(node, {})
        node_facts |= {what: str(value) for what, value in facts.items() if value is not None}


def compare(name_a: str, a: Iterable[Published], name_b: str, b: Iterable[Published]) -> Comparison:
    """Return the differences between two sessions from their records; each is read once."""
    seen_a, seen_b = _seen(a), _seen(b)
    facts_a, facts_b = seen_a.all_facts(), seen_b.all_facts()
    names = sorted(seen_a.figures.keys() | seen_b.figures.keys())
    return Comparison(
        schema="gconsole.diff/1", a=name_a, b=name_b,
        nodes_only_a=tuple(sorted(facts_a.keys() - facts_b.keys())),
        nodes_only_b=tuple(sorted(facts_b.keys() - facts_a.keys())),
        changed=tuple(_changed(facts_a, facts_b)),
        findings_only_a=tuple(sorted(seen_a.findings - seen_b.findings)),
        findings_only_b=tuple(sorted(seen_b.findings - seen_a.findings)),
        findings_both=tuple(sorted(seen_a.findings & seen_b.findings)),
        figures=tuple(Figure(name, _spread(seen_a, name), _spread(seen_b, name)) for name in names),
    )  # fmt: skip


def compare_sessions(a: Session, b: Session, on_record: Callable[[], None] = lambda: None) -> Comparison:
    """Compare two recorded sessions; `on_record` is called for each record, and may raise to cancel.

    Raises SessionError if one is damaged, OSError.
    """
    return compare(a.name, _read(a, on_record), b.name, _read(b, on_record))


def _read(session: Session, on_record: Callable[[], None]) -> Iterator[Published]:
    for record in reader.records(session.path, RecordFilter(kinds=_KINDS)):
        on_record()
        yield record


def _seen(records: Iterable[Published]) -> ComparedSession:
    seen = ComparedSession()
    for record in records:
        seen.add(record)
    return seen


def _spread(seen: ComparedSession, name: str) -> Spread | None:
    return seen.figures[name].spread() if name in seen.figures else None


def _changed(a: Mapping[str, Mapping[str, str]], b: Mapping[str, Mapping[str, str]]) -> Iterator[ChangedFact]:
    for node in sorted(a.keys() & b.keys()):
        for what in sorted(a[node].keys() | b[node].keys()):
            before, after = a[node].get(what), b[node].get(what)
            if before != after:
                yield ChangedFact(node, what, before, after)
