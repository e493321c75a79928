"""The output of all ranks as one stream, a line that several ranks wrote once: `[0-63] loss 2.31`."""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterable
from typing import NamedTuple

from ..text.nodeset_fold import fold, fold_ranks

#: So many told entries of one text are kept at most before they are cleared away.
_MOST_TOLD = 1000
#: So many sets of writers have their names remembered.
_MOST_NAMES = 4096
#: Who wrote a line: a rank, or the launcher on a node.
Writer = int | str


class Folded(NamedTuple):
    """One line and all who wrote it; `who` is `0-63`."""

    who: str
    writers: tuple[Writer, ...]
    text: str


class LineFold:
    """Folds equal lines of different writers that come within `window_s`; each writer's lines keep their order.

    `writers` is how many there are: a line that all have written waits for nobody. Time is the caller's, in seconds.
    """

    def __init__(self, writers: int, window_s: float) -> None:
        self._writers, self._window_s = writers, window_s
        self._open: OrderedDict[int, tuple[str, float, list[Writer]]] = OrderedDict()
        #: Entries with that text, told ones perhaps among the first; most texts have one.
        self._by_text: dict[str, int | list[int]] = {}
        self._last: dict[Writer, int] = {}  # the entry that has a writer's newest line
        self._number = 0
        self._told = 0  # the newest entry that is out
        self._names: dict[tuple[Writer, ...], str] = {}

    def add(self, writer: Writer, text: str, now_s: float) -> None:
        """The next line of one writer."""
        self._last[writer] = self._place(writer, text, self._last.get(writer, -1), now_s)

    def take(self, now_s: float, *, everything: bool = False) -> list[str]:
        """What can be told now, with who wrote it; with `everything` also what might still be joined."""
        return [f"[{line.who}] {line.text}" for line in self.lines(now_s, everything=everything)]

    def lines(self, now_s: float, *, everything: bool = False) -> list[Folded]:
        """The same in parts."""
        due: list[tuple[int, str, list[Writer]]] = []
        for number, (text, since_s, writers) in self._open.items():
            if not everything and len(writers) < self._writers and now_s - since_s < self._window_s:
                break
            due.append((number, text, writers))
        for number, text, _ in due:
            del self._open[number]
            self._told = number
            numbers = self._by_text[text]
            if (numbers if isinstance(numbers, int) else numbers[-1]) == number:
                del self._by_text[text]
        return [Folded(self._name_of(writers), tuple(writers), text) for _, text, writers in due]

    def _name_of(self, writers: list[Writer]) -> str:
        """`name_of`, remembered: the same ranks write together over and over."""
        key = tuple(writers)
        name = self._names.get(key)
        if name is None:
            if len(self._names) >= _MOST_NAMES:
                self._names.clear()
            name = self._names[key] = name_of(writers)
        return name

    def _place(self, writer: Writer, text: str, last: int, now_s: float) -> int:
        numbers = self._by_text.get(text)
        if numbers is None:
            number = self._number = self._number + 1
            self._open[number] = (text, now_s, [writer])
            self._by_text[text] = number
            return number
        if isinstance(numbers, int):
            if numbers > last and numbers > self._told:
                self._open[numbers][2].append(writer)
                return numbers
            numbers = self._by_text[text] = [numbers]
        else:
            at = bisect_right(numbers, max(last, self._told))
            if at < len(numbers):
                self._open[numbers[at]][2].append(writer)
                return numbers[at]
            if at > _MOST_TOLD:
                del numbers[:at]
        number = self._number = self._number + 1
        self._open[number] = (text, now_s, [writer])
        numbers.append(number)
        return number


def name_of(writers: list[Writer]) -> str:
    """`0-3,7` for ranks, `node[1-4]` for launchers, both where both wrote it."""
    ranks = [writer for writer in writers if isinstance(writer, int)]
    nodes = [writer for writer in writers if isinstance(writer, str)]
    return ",".join(filter(None, (fold_ranks(ranks) if ranks else "", fold(nodes) if nodes else "")))


def in_turn(lines: dict[Writer, list[str]]) -> Iterable[tuple[Writer, str]]:
    """The first line of each rank, then the second of each: what they wrote side by side stands together.

    After them what the launchers say, likewise: it is about the ranks.
    """
    for kind in (int, str):
        part = [(writer, written) for writer, written in lines.items() if isinstance(writer, kind)]
        for at in range(max((len(written) for _, written in part), default=0)):
            for writer, written in part:
                if at < len(written):
                    yield writer, written[at]
