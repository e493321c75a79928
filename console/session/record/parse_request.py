"""What a person types to begin a recording: its name, and in the words of `gconsole record` what it keeps."""

from __future__ import annotations

import shlex
from typing import Final

from ...config.nodeset import expand
from ...config.nodeset_parser import BadNodeSet
from ...core.control import Selection
from ...text.timespec import TimeSpecError, duration_s
from ..format.layout import SessionError
from .selection import select

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
