"""The records of a session, in the order in which they arrived."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from .. import recordfile
from ..hub import Published
from ..records import BadRecord, decode
from . import frames
from .counting import MANY, kind_of
from .frames import Damage, Frame, Label
from .layout import SEGMENT_SUFFIX, Session, SessionError

#: Told of what cannot be read.
OnDamage = Callable[[Damage], None]


#: How most lines begin.
_KIND = b'{"kind":"'


class Damaged(SessionError):
    """A session of which a part cannot be read; `lenient` reads the rest."""


@dataclass(frozen=True)
class Choice:
    """Which records are wanted. A frame that has none of them is not unpacked."""

    kinds: Collection[str] | None = None
    from_rx: int | None = None  # console CLOCK_REALTIME of their arrival, ns: from, and up to but without
    to_rx: int | None = None

    def may_hold(self, label: Label) -> bool:
        if self.kinds is not None and MANY not in label.kinds and not any(kind in self.kinds for kind in label.kinds):
            return False
        too_early = self.from_rx is not None and label.last_rx < self.from_rx
        too_late = self.to_rx is not None and label.first_rx >= self.to_rx
        return not too_early and not too_late

    def skips(self, line: bytes) -> bool:
        """Whether a line, by its first letters, is of a kind that is not wanted."""
        if self.kinds is None or not line.startswith(_KIND):
            return False
        return line[len(_KIND) : line.find(b'"', len(_KIND))].decode("utf-8", "replace") not in self.kinds

    def takes(self, record: Published) -> bool:
        if self.kinds is not None and kind_of(record) not in self.kinds:
            return False
        if self.from_rx is not None and record.rx < self.from_rx:
            return False
        return self.to_rx is None or record.rx < self.to_rx


ALL = Choice()


def records(path: Path, choice: Choice = ALL) -> Iterator[Published]:
    """The records of a session's folder, or of one file: a segment, or lines of JSON. Raises Damaged, OSError.

    The end of the last segment may be torn: it is being written, or its console crashed there. That is no damage.
    """

    if path.is_file() and not path.name.endswith(SEGMENT_SUFFIX):
        return (record for record in recordfile.read(path) if choice.takes(record))

    def refuse(damage: Damage) -> None:
        if damage.what != "torn" or damage.path != last:
            name = path.name
            raise Damaged(f"{path}: {damage}; try: gconsole sessions verify {name}, and recover")

    files = segment_files(path)
    last = files[-1] if files else None
    return _read(files, choice, refuse)


def lenient(path: Path, on_damage: OnDamage, choice: Choice = ALL) -> Iterator[Published]:
    """All records that can be read; `on_damage` is told of what cannot, a torn tail too. Raises OSError."""
    return _read(segment_files(path), choice, on_damage)


def labels(path: Path, on_damage: OnDamage) -> Iterator[tuple[Path, Frame]]:
    """What is in a session, frame by frame, without reading it. Raises OSError."""
    for file in segment_files(path):
        for found in frames.scan(file):
            if isinstance(found, Damage):
                on_damage(found)
            else:
                yield file, found


def segment_files(path: Path) -> list[Path]:
    """The segments of a session's folder, oldest first; or the one segment that `path` is."""
    return Session(path).segments() if path.is_dir() else [path]


def _read(files: list[Path], choice: Choice, on_damage: OnDamage) -> Iterator[Published]:
    for file in files:
        for found in frames.contents(file, choice.may_hold):
            if isinstance(found, Damage):
                on_damage(found)
            else:
                yield from _decoded(file, *found, choice, on_damage)


def _decoded(file: Path, frame: Frame, raw: bytes, choice: Choice, on_damage: OnDamage) -> Iterator[Published]:
    for line in _lines(raw):
        if choice.skips(line):
            continue
        try:
            record = decode(line)
        except BadRecord:  # the checksums are right, so it was written like this: by another version
            on_damage(Damage(file, frame.at, len(line), "damaged"))
            continue
        if choice.takes(record):
            yield record


def _lines(raw: bytes) -> Iterator[bytes]:
    """One after the other: a list of the lines of a frame that is nothing but newlines takes many times its size."""
    at = 0
    while (end := raw.find(b"\n", at)) >= 0:
        yield raw[at:end]
        at = end + 1
