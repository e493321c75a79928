"""Redaction of records before they are written: secrets, local variables, and names if a session is anonymous."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeVar

import msgspec
from msgspec.structs import replace

from ...core.bus import Published
from ...records import KINDS, Finding, Job, Node, NodeState, Process, RankStat, RawRecord, Stack, StackFrame
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
    """Returns for each record the redacted one; records are not modified.

    `locals_too` keeps the values of local variables; `pseudonyms` replaces host and user names.
    """

    def __init__(self, *, locals_too: bool = False, pseudonyms: Pseudonyms | None = None) -> None:
        self._locals_too, self._pseudonyms = locals_too, pseudonyms
        self._makers: dict[type, Callable[[Any], Any]] = {
            **{kind: _in_texts for kind in KINDS.values() if _text_fields_of(kind)},
            Process: _process, Stack: self._stack, Finding: _finding, NodeState: _node_state, Node: _node, Job: _job,
            RankStat: _rank_stat, RawRecord: _raw,
        }  # fmt: skip

    def __call__(self, record: Published) -> Published:
        return self.batch((record,))[0]

    def batch(self, records: Sequence[Published]) -> list[Published]:
        """Return the redacted ones of these records."""
        makers = self._makers
        made = [record if (maker := makers.get(type(record))) is None else maker(record) for record in records]
        return made if self._pseudonyms is None else list(map(self._pseudonyms.of_record, made))

    def learn(self, records: Iterable[Published]) -> None:
        """Learn the names in a batch first, so that they are replaced in all of its records."""
        if self._pseudonyms is not None:
            for record in records:
                self._pseudonyms.learn(record)

    def newly_silenced(self) -> list[str]:
        """Return the nodes whose texts are hidden from now on, each once (`Pseudonyms`)."""
        return [] if self._pseudonyms is None else self._pseudonyms.newly_silenced()

    def text(self, text: str) -> str:
        """Return a text with names replaced."""
        return text if self._pseudonyms is None else self._pseudonyms.in_text(text)

    def node(self, name: str) -> str:
        """Return the recorded name of a node."""
        return self._pseudonyms.host(name) if self._pseudonyms is not None else name

    def _stack(self, record: Stack) -> Stack:
        """Drop locals, or hide secret ones; hide secrets in source lines."""
        values = None
        if record.locals is not None and self._locals_too:
            values = tuple(
                replace(local, value=value_without_secrets(local.name, local.value)) for local in record.locals
            )
        frames, tasks = record.frames, record.tasks
        if frames is not None:
            frames = _frames(frames)
        if tasks is not None:
            tasks = tuple(replace(task, name=without_secrets(task.name), frames=_frames(task.frames)) for task in tasks)
        return _with(_in_texts(record), locals=values, frames=frames, tasks=tasks)


def _frames(frames: tuple[StackFrame, ...]) -> tuple[StackFrame, ...]:
    """The frames with secrets hidden in their source lines."""
    if not any(frame.source and SUSPECT.search(frame.source) for frame in frames):
        return frames
    return tuple(replace(frame, source=without_secrets(frame.source)) if frame.source else frame for frame in frames)


#: Fields of free text in any kind of record.
_TEXT_FIELDS: Final = ("text", "try_", "reason")


def _text_fields_of(kind: type) -> tuple[str, ...]:
    """The fields of `_TEXT_FIELDS` that a kind has."""
    return tuple(name for name in _TEXT_FIELDS if name in getattr(kind, "__struct_fields__", ()))


def _in_texts(record: T) -> T:
    return _with(record, **{name: _clean(getattr(record, name)) for name in _text_fields_of(type(record))})


def _process(record: Process) -> Process:
    return _with(record, cmdline=_clean(record.cmdline))


def _finding(record: Finding) -> Finding:
    return _with(_in_texts(record), evidence=tuple(map(without_secrets, record.evidence)))


def _node_state(record: NodeState) -> NodeState:
    return record if record.error is None else _with(record, error=_in_texts(record.error))


def _node(record: Node) -> Node:
    return _with(record, missing=tuple(map(_in_texts, record.missing)))


def _job(record: Job) -> Job:
    return _with(record, command=words_without_secrets(record.command))


def _rank_stat(record: RankStat) -> RankStat:
    """Redact watched variables that are text."""
    if not record.watched or not any(isinstance(value, str) for value in record.watched.values()):
        return record
    watched = {
        name: value_without_secrets(name, value) if isinstance(value, str) else value
        for name, value in record.watched.items()
    }
    return _with(record, watched=watched)


def _raw(record: RawRecord) -> RawRecord:
    """Redact every text of a record of unknown kind."""
    if not SUSPECT.search(record.raw.decode("utf-8", "replace")):
        return record
    return _with(record, raw=msgspec.json.encode(_in_value(msgspec.json.decode(record.raw), "")))


def _in_value(value: Any, name: str) -> Any:
    match value:
        case str():
            return HIDDEN if names_a_secret(name) else without_secrets(value)
        case list():
            return [_in_value(item, name) for item in value]
        case dict():
            return {key: _in_value(item, key) for key, item in value.items()}
    return value


def _clean(text: str | None) -> str | None:
    return None if text is None else without_secrets(text)


def _with(record: T, **changes: Any) -> T:
    """A copy with these changes; the record itself if nothing changes, which is usual."""
    if all(getattr(record, name) == value for name, value in changes.items()):
        return record
    return replace(record, **changes)
