"""Two sessions side by side: nodes, versions, connections, figures and findings; what is the same is not told."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from ...core.bus import Published
from ...records import Finding, GpuInfo, Link, Node, Rank
from ...records.kinds import key_of, kind_of
from ...records.metrics import fields_for
from ..format import reader
from ..format.layout import Session
from ..format.reader import RecordFilter

#: Everything else in a session is passed over unread.
_KINDS: Final = frozenset({"gpu", "host", "nic", "rank_stat", "node", "gpu_info", "rank", "link", "finding"})
#: Of a node, and of its GPUs, what should be alike.
_OF_NODE: Final = ("kernel", "arch", "os", "python", "cpus", "mem_total_bytes")
_OF_GPU: Final = (
    "name", "driver", "cuda_driver", "vbios", "power_limit_w", "pcie_gen_max", "pcie_width_max", "nvlinks",
)  # fmt: skip
#: How a fact ends that says how many connections of a type there are.
LINKS: Final = " links"
#: So many samples of a figure are kept, by chance and each alike likely, however long the session.
KEPT: Final = 100_000


class Spread(msgspec.Struct, frozen=True):
    """How one figure was spread; of more than `KEPT` samples those that were kept tell."""

    samples: int
    median: float
    p95: float
    p99: float
    max: float


class Figure(msgspec.Struct, frozen=True):
    """One figure in both sessions; None where it was not measured."""

    name: str  # gpu.power_w
    a: Spread | None
    b: Spread | None


class Changed(msgspec.Struct, frozen=True):
    """One fact of one node that is not the same."""

    node: str
    what: str
    a: str | None
    b: str | None


class Comparison(msgspec.Struct, frozen=True):
    """What differs between two sessions."""

    schema: str
    a: str  # names of the sessions
    b: str
    nodes_only_a: tuple[str, ...]
    nodes_only_b: tuple[str, ...]
    changed: tuple[Changed, ...]
    findings_only_a: tuple[str, ...]  # "id: culprits"
    findings_only_b: tuple[str, ...]
    findings_both: tuple[str, ...]
    figures: tuple[Figure, ...]  # all that were measured in either

    @property
    def is_different(self) -> bool:
        """Whether nodes, their facts or findings differ; figures always do."""
        return bool(
            self.nodes_only_a or self.nodes_only_b or self.changed or self.findings_only_a or self.findings_only_b
        )


class Alike(msgspec.Struct, frozen=True):
    """Nodes of which one fact changed in the same way."""

    nodes: tuple[str, ...]
    what: str
    a: str | None
    b: str | None


def folded(changed: Iterable[Changed]) -> list[Alike]:
    """What changed, told once for all nodes on which it changed alike."""
    alike: dict[tuple[str, str | None, str | None], list[str]] = {}
    for one in changed:
        alike.setdefault((one.what, one.a, one.b), []).append(one.node)
    return [Alike(tuple(nodes), what, a, b) for (what, a, b), nodes in alike.items()]


@dataclass
class Sampled:
    """A figure's samples: all of them, or so many by chance (Vitter's algorithm R), with a seed that never changes."""

    seen: int = 0
    kept: list[float] = field(default_factory=list)
    chance: random.Random = field(default_factory=lambda: random.Random(1))

    def add(self, value: float) -> None:
        self.seen += 1
        if len(self.kept) < KEPT:
            self.kept.append(value)
        elif (at := self.chance.randrange(self.seen)) < KEPT:
            self.kept[at] = value

    def spread(self) -> Spread | None:
        if not self.kept:
            return None
        ordered = sorted(self.kept)
        last = len(ordered) - 1
        median, p95, p99 = (ordered[round(share * last)] for share in (0.5, 0.95, 0.99))
        return Spread(self.seen, median, p95, p99, ordered[last])


@dataclass
class Seen:
    """What is kept of a session to compare it."""

    facts: dict[str, dict[str, str]] = field(default_factory=dict)  # node → what → value
    figures: dict[str, Sampled] = field(default_factory=dict)
    findings: set[str] = field(default_factory=set)
    _links: dict[str, dict[tuple[object, ...], str]] = field(default_factory=dict)

    def take(self, record: Published) -> None:
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
        """With how many links of each type a node had in the end."""
        found = {node: dict(facts) for node, facts in self.facts.items()}
        for node, links in self._links.items():
            for what, number in Counter(links.values()).items():
                found.setdefault(node, {})[what] = str(number)
        return found

    def _fact(self, node: str, facts: Mapping[str, Any]) -> None:
        known = self.facts.setdefault(node, {})
        known |= {what: str(value) for what, value in facts.items() if value is not None}


def compare(name_a: str, a: Iterable[Published], name_b: str, b: Iterable[Published]) -> Comparison:
    """What differs between two sessions, from their records; each is read once."""
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
    """The same of two recorded sessions; `on_record` is called for each record that is read, and may raise.

    Raises SessionError where one is damaged, OSError.
    """
    return compare(a.name, _read(a, on_record), b.name, _read(b, on_record))


def _read(session: Session, on_record: Callable[[], None]) -> Iterator[Published]:
    for record in reader.records(session.path, RecordFilter(kinds=_KINDS)):
        on_record()
        yield record


def _seen(records: Iterable[Published]) -> Seen:
    seen = Seen()
    for record in records:
        seen.take(record)
    return seen


def _spread(seen: Seen, name: str) -> Spread | None:
    return seen.figures[name].spread() if name in seen.figures else None


def _changed(a: Mapping[str, Mapping[str, str]], b: Mapping[str, Mapping[str, str]]) -> Iterator[Changed]:
    for node in sorted(a.keys() & b.keys()):
        for what in sorted(a[node].keys() | b[node].keys()):
            before, after = a[node].get(what), b[node].get(what)
            if before != after:
                yield Changed(node, what, before, after)
