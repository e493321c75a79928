"""What `clean` found on the nodes, in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from ..records import Failure
from ..text.nodeset_fold import fold
from ..text.sanitize import printable


class CleanReply(Protocol):
    """One node's answer to `clean` (see gconsole_remote.agent.clean), or why there is none."""

    @property
    def node(self) -> str: ...
    @property
    def value(self) -> Any: ...
    @property
    def failure(self) -> Failure | None: ...


class AgentUser(msgspec.Struct, frozen=True):
    """An agent that uses, or used, what was to be cleaned; whoever wrote it down, nothing of it is believed."""

    pid: int | None = None
    console: str | None = None
    label: str | None = None
    hostname: str | None = None
    here: bool = True


class KeptFolder(msgspec.Struct, frozen=True):
    """A folder that stays."""

    path: str
    why: str
    users: tuple[AgentUser, ...] = ()


class Cleaned(msgspec.Struct, frozen=True):
    """What one node did."""

    removed: tuple[str, ...]
    kept: tuple[KeptFolder, ...]
    ended: tuple[AgentUser, ...]


def cleaned(answer: CleanReply) -> Cleaned | Failure:
    """What a node did, or why that is not known: nobody answered, or with something that is no answer."""
    if answer.failure is not None:
        return answer.failure
    try:
        return msgspec.convert(answer.value, Cleaned)
    except msgspec.ValidationError as error:
        return Failure("no_answer", f"what came back is no answer: {error}")


def to_text(answers: Sequence[CleanReply]) -> str:
    """A line a thing that was done or left, nodes folded."""
    groups: dict[str, list[str]] = {}
    for answer in answers:
        for line in _lines(answer):
            groups.setdefault(line, []).append(answer.node)
    return "\n".join(printable(f"{fold(nodes)}  {line}") for line, nodes in groups.items())


def exit_code(answers: Sequence[CleanReply]) -> int:
    """4 nothing reached, 3 some nodes unreached or something left in use, 0 clean."""
    found = [cleaned(answer) for answer in answers]
    reached = [one for one in found if isinstance(one, Cleaned)]
    if not reached:
        return 4
    return 3 if len(reached) < len(found) or any(one.kept for one in reached) else 0


def _lines(answer: CleanReply) -> list[str]:
    found = cleaned(answer)
    if isinstance(found, Failure):
        return [f"✖ {found.name}: {found.text}"]
    lines = [f"● ended the agent of {_words(who)}" for who in found.ended]
    lines += [f"● removed {path}" for path in found.removed]
    for kept in found.kept:
        lines.append(f"▲ kept {kept.path}: {kept.why}")
        lines += [f"    by the agent (pid {who.pid}) of {_words(who)}" for who in kept.users]
    return lines or ["● nothing was left there"]


def _words(who: AgentUser) -> str:
    where = "" if who.here else f" on {who.hostname} or before its last boot"
    return f"console {(who.console or '?')[:8]} ({who.label or 'unnamed'}){where}"
