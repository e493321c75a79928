"""Which of the records that pass the hub a session keeps."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from ...core.control import Published
from ...records import KINDS, AgentCost, Gpu, GpuDigest, GpuLink, GpuProcess, Host, Nic, RankStat, RawRecord
from ..format.layout import Selection, SessionError
from ..metrics_stream import FAMILIES

#: Without these nothing else makes sense: they are kept, whatever is selected.
ALWAYS: Final = frozenset({"console", "node", "node_state", "gap", "mark"})

#: Figures, and what they are figures of: what a rate thins out. Everything else is an event or a change.
_OF: Final[dict[type, Callable[[Any], object]]] = {
    Host: lambda record: record.node,
    AgentCost: lambda record: record.node,
    Gpu: lambda record: (record.node, record.uuid),
    GpuDigest: lambda record: (record.node, record.uuid),
    GpuLink: lambda record: (record.node, record.uuid, record.link),
    Nic: lambda record: (record.node, record.device, record.port),
    RankStat: lambda record: (record.node, record.pid, record.start_ticks),
}
#: A tick that comes so much early, as a share and in ns at most, is still the next one.
_EARLY: Final = 0.1
_EARLY_MOST_NS: Final = 250_000_000
#: What was kept last of a thing is remembered for twice so long, or twice the rate: processes come and go for ever.
_REMEMBERED_NS: Final = 60_000_000_000


class Selected:
    """Picks records by a selection; it remembers, for its rate, what it kept last.

    `name_of` gives what a node is called in the selection.
    """

    def __init__(self, selection: Selection, name_of: Callable[[str], str] = str) -> None:
        self._name_of = name_of
        self.takes_all = not (selection.nodes or selection.kinds or selection.every_s)
        self._nodes = frozenset(selection.nodes) if selection.nodes else None
        self._kinds = frozenset(selection.kinds) | ALWAYS if selection.kinds else None
        apart_ns = int(selection.every_s * 1e9)
        self._apart_ns = apart_ns - min(int(apart_ns * _EARLY), _EARLY_MOST_NS)
        self._kept: dict[tuple[type, object], int] = {}  # `mono` of the last figure that was kept, of each thing
        self._earlier = self._kept  # the same, of the time before this one
        self._turn_ns, self._turned = max(_REMEMBERED_NS, apart_ns), 0  # how long such a time is, and its beginning

    def __call__(self, records: Iterable[Published]) -> list[Published]:
        """Those that are kept."""
        return list(records) if self.takes_all else [record for record in records if self._takes(record)]

    def _takes(self, record: Published) -> bool:
        kind = record.kind if isinstance(record, RawRecord) else str(record.__struct_config__.tag)
        if self._kinds is not None and kind not in self._kinds:
            return False
        if self._nodes is not None and record.node and self._name_of(record.node) not in self._nodes:
            return False
        return not self._apart_ns or isinstance(record, RawRecord) or self._is_due(record)

    def _is_due(self, record: Any) -> bool:
        of = _OF.get(type(record))
        if of is None:
            return True
        if abs(record.rx - self._turned) > self._turn_ns:
            self._earlier, self._kept, self._turned = self._kept, {}, record.rx
        key = (type(record), of(record))
        last = self._kept.get(key, self._earlier.get(key))
        if last is not None and 0 <= record.mono - last < self._apart_ns:
            return False
        self._kept[key] = record.mono
        return True


def keeps(selection: Selection, kind: str) -> bool:
    """Whether records of that kind are among those that are kept."""
    return not selection.kinds or kind in selection.kinds or kind in ALWAYS


def select(
    nodes: tuple[str, ...] = (), metrics: tuple[str, ...] = (), kinds: tuple[str, ...] = (), every_s: float = 0.0,
    *, locals_too: bool = False, anonymous: bool = False,
) -> Selection:  # fmt: skip
    """A selection in the words of a command line. Raises SessionError for a word that is none.

    `metrics` are families of figures: other figures are left out, events and changes are kept. `kinds` are just these.
    """
    unknown = [word for word in metrics if word not in FAMILIES] + [word for word in kinds if word not in KINDS]
    if unknown:
        text = f"metrics are {', '.join(FAMILIES)}; kinds are those of: gconsole schema"
        raise SessionError(f"{', '.join(unknown)}: nothing of that name can be recorded; {text}")
    wanted = set(kinds)
    if metrics:
        figures = {*_OF, GpuProcess}
        chosen = {kind for family in metrics for kind in FAMILIES[family]}
        wanted |= {name for name, kind in KINDS.items() if kind not in figures or kind in chosen}
    return Selection(nodes=nodes, kinds=tuple(sorted(wanted)), every_s=every_s, locals=locals_too, anonymous=anonymous)
