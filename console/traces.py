"""What `clean` found on the nodes, in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from .nodesets import fold
from .plaintext import printable
from .records import Failure


class Answer(Protocol):
    """One node's answer to `clean` (see gconsole_remote.cleaning), or why there is none."""

    @property
    def node(self) -> str: ...
    @property
    def value(self) -> Any: ...
    @property
    def failure(self) -> Failure | None: ...


def to_text(answers: Sequence[Answer]) -> str:
    """A line a thing that was done or left, nodes folded."""
    groups: dict[str, list[str]] = {}
    for answer in answers:
        for line in _lines(answer):
            groups.setdefault(line, []).append(answer.node)
    return "\n".join(printable(f"{fold(nodes)}  {line}") for line, nodes in groups.items())


def exit_code(answers: Sequence[Answer]) -> int:
    """4 nothing reached, 3 some nodes unreached or something left in use, 0 clean."""
    reached = [answer for answer in answers if answer.failure is None]
    if not reached:
        return 4
    return 3 if len(reached) < len(answers) or any(answer.value["kept"] for answer in reached) else 0


def _lines(answer: Answer) -> list[str]:
    if answer.failure is not None:
        return [f"✖ {answer.failure.name}: {answer.failure.text}"]
    value = answer.value
    lines = [f"● ended the agent of {_who(fact)}" for fact in value["ended"]]
    lines += [f"● removed {path}" for path in value["removed"]]
    for kept in value["kept"]:
        lines.append(f"▲ kept {kept['path']}: {kept['why']}")
        lines += [f"    by the agent (pid {fact['pid']}) of {_who(fact)}" for fact in kept["users"]]
    return lines or ["● nothing was left there"]


def _who(fact: dict[str, Any]) -> str:
    where = "" if fact.get("here", True) else f" on {fact.get('hostname')} or before its last boot"
    return f"console {str(fact.get('console'))[:8]} ({fact.get('label') or 'unnamed'}){where}"
