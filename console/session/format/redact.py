"""What must not be written: secrets in command lines, variables nobody asked for, and, for sharing, who and where."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

import msgspec
from msgspec.structs import replace

from ...core.bus import Published
from ...records import KINDS, Finding, Job, Node, NodeState, Process, RankStat, RawRecord, Stack
from ...text.secrets import (
    HIDDEN,
    SUSPECT,
    names_a_secret,
    value_without_secrets,
    without_secrets,
    words_without_secrets,
)
from .pseudonyms import Pseudonyms

T = TypeVar("T", bound=msgspec.Struct)


class Redactor:
    """Makes of each record the one that is written; the record itself stays as it is.

    `locals_too` keeps the values of variables; `pseudonyms` replaces names of hosts and users.
    """

    def __init__(self, *, locals_too: bool = False, pseudonyms: Pseudonyms | None = None) -> None:
        self._locals_too, self._pseudonyms = locals_too, pseudonyms
        self._makers: dict[type, Callable[[Any], Any]] = {
            **{kind: _in_words for kind in KINDS.values() if _words_of(kind)},
            Process: _process, Stack: self._stack, Finding: _finding, NodeState: _node_state, Node: _node, Job: _job,
            RankStat: _rank_stat, RawRecord: _raw,
        }  # fmt: skip

    def __call__(self, record: Published) -> Published:
        maker = self._makers.get(type(record))
        made: Published = maker(record) if maker is not None else record
        return self._pseudonyms.of_record(made) if self._pseudonyms is not None else made

    def learn(self, records: Iterable[Published]) -> None:
        """Names that any of these tells are replaced in all of them, whichever comes first."""
        if self._pseudonyms is not None:
            for record in records:
                self._pseudonyms.learn(record)

    def newly_silenced(self) -> list[str]:
        """Nodes that told so many names that no text of them is written any more, each once."""
        return [] if self._pseudonyms is None else self._pseudonyms.newly_silenced()

    def text(self, text: str) -> str:
        """A text of the console's own, as it is written."""
        return text if self._pseudonyms is None else self._pseudonyms.in_text(text)

    def node(self, name: str) -> str:
        """What a node is called where this is written."""
        return self._pseudonyms.host(name) if self._pseudonyms is not None else name

    def _stack(self, record: Stack) -> Stack:
        """Without locals; with them those whose name tells a secret are hidden. Lines of source may hold one, too."""
        values = None
        if record.locals is not None and self._locals_too:
            values = tuple(
                replace(local, value=value_without_secrets(local.name, local.value)) for local in record.locals
            )
        frames = record.frames
        if frames is not None and any(frame.source and SUSPECT.search(frame.source) for frame in frames):
            frames = tuple(
                replace(frame, source=without_secrets(frame.source)) if frame.source else frame for frame in frames
            )
        return _with(_in_words(record), locals=values, frames=frames)


#: What people and programs wrote, whatever kind of record it stands in.
_WORDS: Final = ("text", "try_", "reason")


def _words_of(kind: type) -> tuple[str, ...]:
    """Those of `_WORDS` that a kind of record has."""
    return tuple(name for name in _WORDS if name in getattr(kind, "__struct_fields__", ()))


def _in_words(record: T) -> T:
    return _with(record, **{name: _clean(getattr(record, name)) for name in _words_of(type(record))})


def _process(record: Process) -> Process:
    return _with(record, cmdline=_clean(record.cmdline))


def _finding(record: Finding) -> Finding:
    return _with(_in_words(record), evidence=tuple(map(without_secrets, record.evidence)))


def _node_state(record: NodeState) -> NodeState:
    return record if record.error is None else _with(record, error=_in_words(record.error))


def _node(record: Node) -> Node:
    return _with(record, missing=tuple(map(_in_words, record.missing)))


def _job(record: Job) -> Job:
    return _with(record, command=words_without_secrets(record.command))


def _rank_stat(record: RankStat) -> RankStat:
    """Of watched variables, texts; a number is none."""
    if not record.watched or not any(isinstance(value, str) for value in record.watched.values()):
        return record
    watched = {
        name: value_without_secrets(name, value) if isinstance(value, str) else value
        for name, value in record.watched.items()
    }
    return _with(record, watched=watched)


def _raw(record: RawRecord) -> RawRecord:
    """A record of a kind that nobody here knows: every text in it."""
    if not SUSPECT.search(record.raw.decode("utf-8", "replace")):
        return record
    return _with(record, raw=msgspec.json.encode(_in_value(msgspec.json.decode(record.raw), "")))


def _in_value(value: Any, name: str) -> Any:
    match value:
        case str():
            return HIDDEN if names_a_secret(name) else without_secrets(value)
        case list():
            return [_in_value(each, name) for each in value]
        case dict():
            return {key: _in_value(each, key) for key, each in value.items()}
    return value


def _clean(text: str | None) -> str | None:
    return None if text is None else without_secrets(text)


def _with(record: T, **changes: Any) -> T:
    """The record itself where nothing changes: the usual case costs no copy."""
    if all(getattr(record, name) == value for name, value in changes.items()):
        return record
    return replace(record, **changes)
