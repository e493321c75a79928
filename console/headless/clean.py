"""`gconsole clean` results as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from ..records import Failure
from ..text.nodeset_fold import fold
from ..text.sanitize import printable


class CleanReply(Protocol):
    """One node's reply to `clean` (see gconsole_remote.agent.clean), or its failure."""

    @property
    def node(self) -> str:
        """Node name."""

    @property
    def value(self) -> Any:
        """Decoded JSON reply."""

    @property
    def failure(self) -> Failure | None:
        """Why there is no reply; None on success."""


class AgentUser(msgspec.Struct, frozen=True):
    """An agent that uses, or used, the cache. Untrusted data from the node."""

    pid: int | None = None
    console: str | None = None
    label: str | None = None
    hostname: str | None = None
    here: bool = True


class KeptFolder(msgspec.Struct, frozen=True):
    """A folder that was not removed."""

    path: str
    why: str
    users: tuple[AgentUser, ...] = ()


class Cleaned(msgspec.Struct, frozen=True):
    """Clean-up result of one node."""

    removed: tuple[str, ...]
    kept: tuple[KeptFolder, ...]
    ended: tuple[AgentUser, ...]


def cleaned(answer: CleanReply) -> Cleaned | Failure:
    """The result of one node; a Failure for a missing or malformed reply."""
    if answer.failure is not None:
        return answer.failure
    try:
        return msgspec.convert(answer.value, Cleaned)
    except msgspec.ValidationError as error:
        return Failure("no_answer", f"invalid response: {error}")


def to_text(answers: Sequence[CleanReply]) -> str:
    """One line per removed, kept or stopped item, nodes folded."""
    groups: dict[str, list[str]] = {}
    for answer in answers:
        for line in _lines(answer):
            groups.setdefault(line, []).append(answer.node)
    return "\n".join(printable(f"{fold(nodes)}  {line}") for line, nodes in groups.items())


def exit_code(answers: Sequence[CleanReply]) -> int:
    """Exit code: 0 clean, 3 some nodes unreachable or folders kept, 4 no node reachable."""
    results = [cleaned(answer) for answer in answers]
    reached = [result for result in results if isinstance(result, Cleaned)]
    if not reached:
        return 4
    return 3 if len(reached) < len(results) or any(result.kept for result in reached) else 0


def _lines(answer: CleanReply) -> list[str]:
    result = cleaned(answer)
    if isinstance(result, Failure):
        return [f"✖ {result.name}: {result.text}"]
    lines = [f"● stopped agent of {_agent_text(agent)}" for agent in result.ended]
    lines += [f"● removed {path}" for path in result.removed]
    for kept in result.kept:
        lines.append(f"▲ kept {kept.path}: {kept.why}")
        lines += [f"    in use by agent (pid {agent.pid}) of {_agent_text(agent)}" for agent in kept.users]
    return lines or ["● nothing to remove"]


def _agent_text(agent: AgentUser) -> str:
    where = "" if agent.here else f" on {agent.hostname} or before its last boot"
    return f"console {(agent.console or '?')[:8]} ({agent.label or 'unnamed'}){where}"
