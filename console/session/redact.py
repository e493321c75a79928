"""What must not be written: secrets in command lines, variables nobody asked for, and, for sharing, who and where.

Patterns find what people really put on command lines and into logs; they cannot find a secret that looks like nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, TypeVar

import msgspec
from msgspec.structs import replace

from ..hub import Published
from ..records import Finding, GpuEvent, Log, Mark, NodeState, PgStatus, Process, Rank, Stack
from .pseudonyms import Pseudonyms

T = TypeVar("T", bound=msgspec.Struct)

HIDDEN: Final = "***"

_SECRET = (
    r"[\w.-]*(?:token|secret|passw|passphrase|pwd|credential|api[_-]?key|access[_-]?key|private[_-]?key|auth[_-]?key"
    r"|[_-]key|cookie|bearer|signature|sas)[\w.-]*"
)
#: `--api-key=X`, `PASSWORD=X`, `token: X`; a value in quotes to its end.
_ASSIGNED: Final = re.compile(rf"(?i)(?<![\w.-])((?:-{{0,2}}){_SECRET}\"?)(\s*[=:]\s*)(\"[^\"]*\"|'[^']*'|[^\s,;&]+)")
#: `--api-key X`, but not `--api-key --next`.
_FOLLOWED: Final = re.compile(rf"(?i)(?<!\S)(--?{_SECRET})(\s+)(?!-)(\"[^\"]*\"|'[^']*'|\S+)")
#: `Authorization: Bearer X`.
_BEARER: Final = re.compile(r"(?i)\b(bearer|basic)(\s+)([A-Za-z0-9+/._~=-]{8,})")
#: `https://user:password@host`.
_USERINFO: Final = re.compile(r"(?<=://)([^\s/:@]*)(:)([^\s/@]+)(?=@)")
#: What the issuers themselves give a shape to: Hugging Face, OpenAI and the like, GitHub, Slack, AWS, Google, JWT, PEM.
_SHAPES: Final = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{16,}|sk-[A-Za-z0-9_-]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}"
    r"|xox[abprs]-[\w-]{10,}|A(?:KIA|SIA)[A-Z0-9]{16}|AIza[\w-]{30,}|eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*)"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----[^-]*(?:-----END [A-Z ]*PRIVATE KEY-----)?"
)
_NAME: Final = re.compile(rf"(?i){_SECRET}|key|auth")
#: Texts without any of these have no secret that the patterns above would find: the usual case, told in one look.
_SUSPECT: Final = re.compile(
    r"(?i)token|secret|passw|passphrase|pwd|credential|key|cookie|bearer|basic|signature|sas|://|hf_|sk-|gh[pousr]_"
    r"|github_pat|glpat|xox|A[KS]IA|AIza|eyJ|BEGIN"
)


def without_secrets(text: str) -> str:
    """The text with what looks like a secret replaced by ***; the name in front of it stays."""
    if not _SUSPECT.search(text):
        return text
    text = _SHAPES.sub(HIDDEN, text)
    for pattern in (_USERINFO, _BEARER, _ASSIGNED, _FOLLOWED):
        text = pattern.sub(rf"\1\2{HIDDEN}", text)
    return text


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
                replace(local, value=HIDDEN if _NAME.search(local.name) else without_secrets(local.value))
                for local in record.locals
            )
        frames = record.frames
        if frames is not None and any(frame.source and _SUSPECT.search(frame.source) for frame in frames):
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
