"""What must not be written: secrets in command lines, variables nobody asked for, and, for sharing, who and where.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from ..hidden import SUSPECT, value_without_secrets, without_secrets
from ..hub import Published
from ..records import Finding, GpuEvent, Log, Mark, NodeState, PgStatus, Process, Rank, Stack
from .pseudonyms import Pseudonyms

T = TypeVar("T", bound=msgspec.Struct)

class Redactor:
    """Makes of each record the one that is written; the record itself stays as it is.

    `locals_too` keeps the values of variables; `pseudonyms` replaces names of hosts and users.
    """

    def __init__(self, *, locals_too: bool = False, pseudonyms: Pseudonyms | None = None) -> None:
        self._locals_too, self._pseudonyms = locals_too, pseudonyms
        self._makers: dict[type, Callable[[Any], Any]] = {
            Process: self._process, Log: self._log, Stack: self._stack, Rank: self._rank, Mark: self._text,
            Finding: self._text, NodeState: self._node_state, GpuEvent: self._text, PgStatus: self._reason,
        }  # fmt: skip

    def __call__(self, record: Published) -> Published:
        maker = self._makers.get(type(record))
        made: Published = maker(record) if maker is not None else record
        return self._pseudonyms.of_record(made) if self._pseudonyms is not None else made

    def node(self, name: str) -> str:
        """What a node is called where this is written."""
        return self._pseudonyms.host(name) if self._pseudonyms is not None else name

    def _process(self, record: Process) -> Process:
        return _with(record, cmdline=_clean(record.cmdline))

    def _log(self, record: Log) -> Log:
        return _with(record, text=without_secrets(record.text), try_=without_secrets(record.try_))

    def _text(self, record: Mark | Finding | GpuEvent) -> Any:
        return _with(record, text=without_secrets(record.text))

    def _reason(self, record: PgStatus) -> PgStatus:
        return _with(record, reason=_clean(record.reason))

    def _rank(self, record: Rank) -> Rank:
        return _with(record, reason=_clean(record.reason))

    def _node_state(self, record: NodeState) -> NodeState:
        if record.error is None:
            return record
        return _with(record, error=_with(record.error, text=without_secrets(record.error.text)))

    def _stack(self, record: Stack) -> Stack:
        """Without locals; with them those whose name tells a secret are hidden. Lines of source may hold one, too."""
        values = None
        if record.locals is not None and self._locals_too:
            values = tuple(
                replace(local, value=value_without_secrets(local.name, local.value))
                for local in record.locals
            )
        frames = record.frames
        if frames is not None and any(frame.source and SUSPECT.search(frame.source) for frame in frames):
            frames = tuple(
                replace(frame, source=without_secrets(frame.source)) if frame.source else frame for frame in frames
            )
        return _with(record, locals=values, frames=frames, reason=_clean(record.reason))


def _clean(text: str | None) -> str | None:
    return None if text is None else without_secrets(text)


def _with(record: T, **changes: Any) -> T:
    """The record itself where nothing changes: the usual case costs no copy."""
    if all(getattr(record, name) == value for name, value in changes.items()):
        return record
    return replace(record, **changes)
