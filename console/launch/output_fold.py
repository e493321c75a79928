"""The output of all ranks as one stream, equal lines folded: `[0-63] loss 2.31`."""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from ..core.bus import Published
from ..records import Log
from ..text.nodeset_fold import fold, fold_ranks
from .state import JobStatus

#: Printed entries of one text that are kept before they are removed.
_MAX_PRINTED = 1000
#: Prefixes of keys, by stream; lines of a file that has both streams have none.
_PREFIXES = {"stdout": "\0stdout\0", "stderr": "\0stderr\0"}
#: Entries of the cache of folded names.
_MAX_NAMES = 4096
#: The writer of a line: a rank, or the launcher on a node.
Writer = int | str


class OutputLine(NamedTuple):
    """One line; `at_ns` is the instant by which it was written, of its node's clock, None if unknown."""

    writer: Writer
    text: str
    stream: str | None = None
    at_ns: int | None = None


class JobOutput:
    """Collects the output of one job from the hub: lines by writer. Other nodes that claim the job are ignored."""

    def __init__(self, view: JobStatus, ranks: Collection[int] | None = None) -> None:
        """`ranks`: only these; None: all, and launchers."""
        self._job, self._ranks, self._nodes = view.ordered.job, ranks, frozenset(line.node for line in view.lines)
        self.lines: list[OutputLine] = []

    def collect(self, records: Sequence[Published]) -> None:
        """Hub sink."""
        for record in records:
            if not isinstance(record, Log) or record.source != "job" or record.job != self._job:
                continue
            writer: Writer = record.rank if record.rank is not None else record.node
            if record.node in self._nodes and (self._ranks is None or writer in self._ranks):
                self.lines += _lines(record, writer)

    def pop_lines(self) -> list[OutputLine]:
        """The lines since the last call, in the order written."""
        lines, self.lines = self.lines, []
        return in_order(lines)


def _lines(record: Log, writer: Writer) -> Iterator[OutputLine]:
    texts = record.text.split("\n")
    instants: list[int] = []
    for count, at_ns in zip(record.written_lines, record.written_at, strict=False):
        instants += [at_ns] * min(count, len(texts) - len(instants))
    for number, text in enumerate(texts):
        yield OutputLine(writer, text, record.stream, instants[number] if number < len(instants) else None)


class Folded(NamedTuple):
    """One line and its writers; `who` is `0-63`, for stderr `0-63 stderr`; `at_ns` is the first instant.

    `stream` is None if one file has both streams.
    """

    who: str
    writers: tuple[Writer, ...]
    text: str
    at_ns: int | None = None
    stream: str | None = None


class LineFold:
    """Folds equal lines that different writers wrote within `window_s`; the lines of each writer stay in order.

    `writers` is their number: a line of all writers is printed at once. The caller passes the time, in seconds.
    """

    def __init__(self, writers: int, window_s: float) -> None:
        self._writers, self._window_s = writers, window_s
        self._open: OrderedDict[int, tuple[str, float, list[Writer], int | None]] = OrderedDict()
        #: Entries with that text, perhaps printed ones first; most texts have one.
        self._by_text: dict[str, int | list[int]] = {}
        self._last: dict[Writer, int] = {}  # the entry that has a writer's newest line
        self._number = 0
        self._printed = 0  # the newest printed entry
        self._names: dict[tuple[Writer, ...], str] = {}

    def add(
        self, writer: Writer, text: str, now_s: float, *, stream: str | None = None, at_ns: int | None = None
    ) -> None:
        """Add the next line of one writer. Lines fold only with others of their stream."""
        key = _PREFIXES.get(stream or "", "") + text
        self._last[writer] = self._place(writer, key, self._last.get(writer, -1), now_s, at_ns)

    def format_due(self, now_s: float, *, everything: bool = False) -> list[str]:
        """Lines to print now, with their writers; `everything` includes those that others may still write."""
        return [f"[{line.who}] {line.text}" for line in self.lines(now_s, everything=everything)]

    def lines(self, now_s: float, *, everything: bool = False) -> list[Folded]:
        """As `format_due`, unformatted."""
        due: list[tuple[int, str, list[Writer], int | None]] = []
        for number, (text, since_s, writers, at_ns) in self._open.items():
            if not everything and len(writers) < self._writers and now_s - since_s < self._window_s:
                break
            due.append((number, text, writers, at_ns))
        for number, text, *_ in due:
            del self._open[number]
            self._printed = number
            numbers = self._by_text[text]
            if (numbers if isinstance(numbers, int) else numbers[-1]) == number:
                del self._by_text[text]
        return [self._folded(text, writers, at_ns) for _, text, writers, at_ns in due]

    def _folded(self, key: str, writers: list[Writer], at_ns: int | None) -> Folded:
        stream = next((name for name, prefix in _PREFIXES.items() if key.startswith(prefix)), None)
        who = self._name_of(writers) + (" stderr" if stream == "stderr" else "")
        return Folded(who, tuple(writers), key.removeprefix(_PREFIXES.get(stream or "", "")), at_ns, stream)

    def _name_of(self, writers: list[Writer]) -> str:
        """`fold_writers`, cached: the same ranks write together again and again."""
        key = tuple(writers)
        name = self._names.get(key)
        if name is None:
            if len(self._names) >= _MAX_NAMES:
                self._names.clear()
            name = self._names[key] = fold_writers(writers)
        return name

    def _place(self, writer: Writer, text: str, last: int, now_s: float, at_ns: int | None) -> int:
        numbers = self._by_text.get(text)
        if numbers is None:
            number = self._number = self._number + 1
            self._open[number] = (text, now_s, [writer], at_ns)
            self._by_text[text] = number
            return number
        if isinstance(numbers, int):
            if numbers > last and numbers > self._printed:
                self._open[numbers][2].append(writer)
                return numbers
            numbers = self._by_text[text] = [numbers]
        else:
            index = bisect_right(numbers, max(last, self._printed))
            if index < len(numbers):
                self._open[numbers[index]][2].append(writer)
                return numbers[index]
            if index > _MAX_PRINTED:
                del numbers[:index]
        number = self._number = self._number + 1
        self._open[number] = (text, now_s, [writer], at_ns)
        numbers.append(number)
        return number


def fold_writers(writers: list[Writer]) -> str:
    """`0-3,7` for ranks, `node[1-4]` for launchers, both where both wrote it."""
    ranks = [writer for writer in writers if isinstance(writer, int)]
    nodes = [writer for writer in writers if isinstance(writer, str)]
    return ",".join(filter(None, (fold_ranks(ranks) if ranks else "", fold(nodes) if nodes else "")))


def in_order(lines: Sequence[OutputLine]) -> list[OutputLine]:
    """The lines in the order written. Those of one stream keep theirs, whatever the clocks of the nodes say.

    Lines without an instant: the first of each rank, then the second of each, and so on; then those of the launchers.
    """
    rounds: dict[Writer, int] = {}
    newest: dict[tuple[Writer, str | None], int] = {}
    keys = []
    for number, line in enumerate(lines):
        stream = line.writer, line.stream
        turn = rounds[line.writer] = rounds.get(line.writer, -1) + 1
        at_ns = max(newest.get(stream, 0), line.at_ns or 0)
        newest[stream] = at_ns
        keys.append((at_ns, isinstance(line.writer, str), turn if not at_ns else 0, number))
    return [lines[number] for *_, number in sorted(keys)]
