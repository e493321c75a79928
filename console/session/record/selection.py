"""Which of the records that pass the hub a session keeps."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable
from typing import Final

from ...config.nodeset import expand
from ...config.nodeset_parser import BadNodeSet
from ...core.bus import Published
from ...core.control import Selection
from ...records import KINDS, GpuProcess, RawRecord, Record
from ...records.kinds import SPECS, identity, kind_of, names_where
from ...text.timespec import TimeSpecError, duration_s
from ..format.layout import SessionError
from ..ndjson import METRIC_FAMILIES

#: Kinds that are recorded whatever is selected: nothing else makes sense without them.
ALWAYS: Final = names_where(lambda spec: spec.is_always_recorded)
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
        if self._kinds is not None and kind_of(record) not in self._kinds:
            return False
        if self._nodes is not None and record.node and self._name_of(record.node) not in self._nodes:
            return False
        return not self._apart_ns or isinstance(record, RawRecord) or self._is_due(record)

    def _is_due(self, record: Record) -> bool:
        if not SPECS[type(record)].is_figure:
            return True
        if abs(record.rx - self._turned) > self._turn_ns:
            self._earlier, self._kept, self._turned = self._kept, {}, record.rx
        key = (type(record), identity(record))
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
    unknown = [word for word in metrics if word not in METRIC_FAMILIES] + [word for word in kinds if word not in KINDS]
    if unknown:
        text = f"metrics are {', '.join(METRIC_FAMILIES)}; kinds are those of: gconsole schema"
        raise SessionError(f"{', '.join(unknown)}: nothing of that name can be recorded; {text}")
    wanted = set(kinds)
    if metrics:
        wanted |= {
            spec.name for spec in SPECS.values()
            if spec.metric_family in metrics or not (spec.is_figure or spec.struct is GpuProcess)
        }  # fmt: skip
    return Selection(nodes=nodes, kinds=tuple(sorted(wanted)), every_s=every_s, locals=locals_too, anonymous=anonymous)


_VALUED: Final = ("--nodes", "--metrics", "--kinds", "--every")
_FLAGS: Final = ("--locals", "--redact")


def parse_record_request(text: str) -> tuple[str, Selection | None]:
    """The name (empty where none was typed), and what is kept (None: everything). Raises SessionError for a mistake."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise SessionError(f"{text[:60]}: {error}") from error
    name, given = "", dict[str, str]()
    rest = iter(words)
    for word in rest:
        option, equals, value = word.partition("=")
        if option in _FLAGS and not equals:
            given[option] = "yes"
        elif option in _VALUED:
            given[option] = value if equals else next(rest, "")
            if not given[option]:
                raise SessionError(f"{option} wants a value; as in: gpus --metrics gpu --every 10s --nodes node[1-4]")
        elif word.startswith("-") or name:
            raise SessionError(f"{word}: not understood; a name, then any of {', '.join((*_VALUED, *_FLAGS))}")
        else:
            name = word
    return name, _selection(given) if given else None


def _selection(given: dict[str, str]) -> Selection:
    try:
        nodes = tuple(host.name for host in expand(given["--nodes"])) if "--nodes" in given else ()
    except BadNodeSet as error:
        raise SessionError(str(error)) from error
    metrics, kinds = (_words(given.get(option, "")) for option in ("--metrics", "--kinds"))
    try:
        every_s = duration_s(given.get("--every", "0s"), bare=True)
    except TimeSpecError as error:
        raise SessionError(f"--every: {error}") from error
    return select(nodes, metrics, kinds, every_s, locals_too="--locals" in given, anonymous="--redact" in given)


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())
