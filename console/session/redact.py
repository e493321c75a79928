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
from ..records import KINDS, Finding, Job, Node, NodeState, Process, RankStat, RawRecord, Stack
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
_FLAG: Final = re.compile(rf"(?i)--?{_SECRET}")
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
            **{kind: _in_words for kind in KINDS.values() if _words_of(kind)},
            Process: _process, Stack: self._stack, Finding: _finding, NodeState: _node_state, Node: _node, Job: _job,
            RankStat: _rank_stat, RawRecord: _raw,
        }  # fmt: skip

    def __call__(self, record: Published) -> Published:
        maker = self._makers.get(type(record))
        made: Published = maker(record) if maker is not None else record
        return self._pseudonyms.of_record(made) if self._pseudonyms is not None else made

    def node(self, name: str) -> str:
        """What a node is called where this is written."""
        return self._pseudonyms.host(name) if self._pseudonyms is not None else name

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
    return _with(record, command=_command(record.command))


def _rank_stat(record: RankStat) -> RankStat:
    """Of watched variables, texts; a number is none."""
    if not record.watched or not any(isinstance(value, str) for value in record.watched.values()):
        return record
    watched = {
        name: value if not isinstance(value, str) else HIDDEN if _NAME.search(name) else without_secrets(value)
        for name, value in record.watched.items()
    }
    return _with(record, watched=watched)


def _raw(record: RawRecord) -> RawRecord:
    """A record of a kind that nobody here knows: every text in it."""
    if not _SUSPECT.search(record.raw.decode("utf-8", "replace")):
        return record
    return _with(record, raw=msgspec.json.encode(_in_value(msgspec.json.decode(record.raw), "")))


def _in_value(value: Any, name: str) -> Any:
    match value:
        case str():
            return HIDDEN if name and re.fullmatch(f"(?i){_SECRET}", name) else without_secrets(value)
        case list():
            return [_in_value(each, name) for each in value]
        case dict():
            return {key: _in_value(each, key) for key, each in value.items()}
    return value


def _command(words: tuple[str, ...]) -> tuple[str, ...]:
    """Each word; and one that follows the name of a secret (`--api-key X`) whole."""
    before = ("", *words)
    return tuple(
        HIDDEN if _FLAG.fullmatch(flag) and not word.startswith("-") else without_secrets(word)
        for flag, word in zip(before, words, strict=False)
    )


def _clean(text: str | None) -> str | None:
    return None if text is None else without_secrets(text)


def _with(record: T, **changes: Any) -> T:
    """The record itself where nothing changes: the usual case costs no copy."""
    if all(getattr(record, name) == value for name, value in changes.items()):
        return record
    return replace(record, **changes)
