"""Selection of the records that a session keeps, and the syntax in which users type it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from ...config.nodeset import expand
from ...config.nodeset_parser import BadNodeSet
from ...core.bus import Published
from ...core.control import Selection
from ...records import (
    KINDS,
    Gpu,
    GpuClock,
    GpuDigest,
    GpuEvent,
    GpuInfo,
    GpuLink,
    GpuProcess,
    RawRecord,
    Record,
)
from ...records.kinds import SPECS, identity, kind_of, names_where
from ...text.format import comma_words, file_stamp
from ...text.timespec import TimeSpecError, duration_s
from ..format.layout import SessionError
from ..ndjson import METRIC_FAMILIES

#: Kinds that are always recorded: the others cannot be interpreted without them.
ALWAYS: Final = names_where(lambda spec: spec.is_always_recorded)
#: A sample this much early counts as the next one: share of the interval, and upper bound in ns.
_EARLY: Final = 0.1
_MAX_EARLY_NS: Final = 250_000_000
#: ns. The last sample of an entity is remembered for up to twice this long (or the interval): processes come and go.
_REMEMBERED_NS: Final = 60_000_000_000
#: Records about one GPU.
_GPU_RECORDS: Final = (Gpu, GpuClock, GpuDigest, GpuEvent, GpuInfo, GpuLink, GpuProcess)
_WORD: Final = re.compile(r"(?:(?P<node>[^\s:]+):)?(?P<first>\d{1,4})(?:-(?P<last>\d{1,4}))?")


class GpuChoice:
    """The chosen GPUs; records that are not about one GPU always match."""

    def __init__(self, words: Iterable[str]) -> None:
        """Parse words such as `0-3` and `node2:7`. Raises SessionError."""
        self._numbers: set[tuple[str, int]] = set()  # node or "" for all nodes, number
        for word in words:
            match = _WORD.fullmatch(word)
            if match is None or int(match["last"] or match["first"]) < int(match["first"]):
                raise SessionError(f"--gpus: {word!r} is not a GPU or a range of GPUs; use 0-3 or node2:7")
            numbers = range(int(match["first"]), int(match["last"] or match["first"]) + 1)
            self._numbers.update((match["node"] or "", number) for number in numbers)

    def matches(self, record: Published, node: str) -> bool:
        """Whether a record of this node is about a chosen GPU, or about none."""
        if not self._numbers or not isinstance(record, _GPU_RECORDS):
            return True
        return record.index is None or not self._numbers.isdisjoint({("", record.index), (node, record.index)})


class RecordSelector:
    """Filters records by a selection; remembers the last sample of each entity to keep the interval.

    `name_of` gives the name of a node in the selection.
    """

    def __init__(self, selection: Selection, name_of: Callable[[str], str] = str) -> None:
        self._name_of = name_of
        self.selects_all = not (selection.nodes or selection.kinds or selection.gpus or selection.every_s)
        self._nodes = frozenset(selection.nodes) if selection.nodes else None
        self._kinds = frozenset(selection.kinds) | ALWAYS if selection.kinds else None
        self._gpus = GpuChoice(selection.gpus)
        apart_ns = int(selection.every_s * 1e9)
        self._apart_ns = apart_ns - min(int(apart_ns * _EARLY), _MAX_EARLY_NS)
        self._kept: dict[tuple[type, object], int] = {}  # `mono` of the last kept sample of each entity
        self._earlier = self._kept  # of the previous period
        self._turn_ns, self._turned = max(_REMEMBERED_NS, apart_ns), 0  # length and begin of the period

    def __call__(self, records: Iterable[Published]) -> list[Published]:
        """Return the selected ones."""
        return list(records) if self.selects_all else [record for record in records if self._matches(record)]

    def _matches(self, record: Published) -> bool:
        if self._kinds is not None and kind_of(record) not in self._kinds:
            return False
        if self._nodes is not None and record.node and self._name_of(record.node) not in self._nodes:
            return False
        if not self._gpus.matches(record, self._name_of(record.node)):
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


def selects(selection: Selection, kind: str) -> bool:
    """Whether records of that kind are kept."""
    return not selection.kinds or kind in selection.kinds or kind in ALWAYS


def select(
    nodes: tuple[str, ...] = (), metrics: tuple[str, ...] = (), kinds: tuple[str, ...] = (), every_s: float = 0.0,
    *, gpus: tuple[str, ...] = (), locals_too: bool = False, anonymous: bool = False,
) -> Selection:  # fmt: skip
    """Return a selection from command-line words. Raises SessionError for an unknown one.

    `metrics` are families: metrics of other families are dropped, events and changes are kept. `kinds` selects exactly
    these. `gpus` selects records about GPUs by their number: "0-3", "node2:7".
    """
    GpuChoice(gpus)
    unknown = [word for word in metrics if word not in METRIC_FAMILIES] + [word for word in kinds if word not in KINDS]
    if unknown:
        text = f"metrics: {', '.join(METRIC_FAMILIES)}; kinds: see gconsole schema"
        raise SessionError(f"unknown metric or kind {', '.join(unknown)}; {text}")
    wanted = set(kinds)
    if metrics:
        wanted |= {
            spec.name for spec in SPECS.values()
            if spec.metric_family in metrics or not (spec.is_figure or spec.struct is GpuProcess)
        }  # fmt: skip
    return Selection(
        nodes=nodes, kinds=tuple(sorted(wanted)), gpus=gpus, every_s=every_s, locals=locals_too, anonymous=anonymous
    )  # fmt: skip


_VALUED: Final = ("--nodes", "--metrics", "--kinds", "--gpus", "--every", "--last", "--since")
_FLAGS: Final = ("--locals", "--redact")


class RecordRequest(NamedTuple):
    """A typed request: to record, from `since_s` seconds ago; or to keep the last `last_s` seconds of the black box."""

    name: str  # "" without one
    selection: Selection | None  # None: everything
    last_s: float | None = None
    since_s: float = 0.0


def session_name(cluster: str, now: int) -> str:
    """A default session name: cluster and time; `now` is console time in ns."""
    plain = "".join(letter if letter.isalnum() and letter.isascii() else "-" for letter in cluster)
    return f"{plain.strip('-')[:40] or 'session'}-{file_stamp(now)}"


def parse_record_request(text: str) -> RecordRequest:
    """Return what a text requests: a name with options of the command. Raises SessionError for a syntax error."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise SessionError(f"{text[:60]}: {error}") from error
    name, options = "", dict[str, str]()
    rest = iter(words)
    for word in rest:
        option, equals, value = word.partition("=")
        if option in _FLAGS and not equals:
            options[option] = "yes"
        elif option in _VALUED:
            options[option] = value if equals else next(rest, "")
            if not options[option]:
                raise SessionError(f"{option}: missing value; example: gpus --metrics gpu --every 10s")
        elif word.startswith("-") or name:
            raise SessionError(f"unexpected {word}; type a name, then any of {', '.join((*_VALUED, *_FLAGS))}")
        else:
            name = word
    past = [option for option in ("--last", "--since") if option in options]
    if past and len(options) > 1:
        raise SessionError(f"{past[0]} takes everything that is recorded already, and no other option")
    if "--last" in options:
        return RecordRequest(name, None, _past_s("--last", options))
    if "--since" in options:
        return RecordRequest(name, None, None, _past_s("--since", options))
    return RecordRequest(name, _selection(options) if options else None)


def _past_s(option: str, options: dict[str, str]) -> float:
    try:
        past_s = duration_s(options[option])
    except TimeSpecError as error:
        raise SessionError(f"{option}: {error}") from error
    if past_s <= 0:
        raise SessionError(f"{option}: use a duration above 0, such as 15m")
    return past_s


def _selection(options: dict[str, str]) -> Selection:
    try:
        nodes = tuple(host.name for host in expand(options["--nodes"])) if "--nodes" in options else ()
    except BadNodeSet as error:
        raise SessionError(str(error)) from error
    metrics, kinds, gpus = (comma_words(options.get(option, "")) for option in ("--metrics", "--kinds", "--gpus"))
    try:
        every_s = duration_s(options.get("--every", "0s"))
    except TimeSpecError as error:
        raise SessionError(f"--every: {error}") from error
    return select(
        nodes, metrics, kinds, every_s, gpus=gpus, locals_too="--locals" in options, anonymous="--redact" in options
    )  # fmt: skip
