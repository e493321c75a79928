"""Replies of the nodes to `doctor`, `clean` and `release` as JSON and text, equal results folded over nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from ..core.control import NodeAnswer
from ..records import Failure
from ..text.documents import JsonText, pretty
from ..text.format import duration
from ..text.nodeset_fold import fold
from ..text.sanitize import Printable, join_lines
from .login_rights import describe_rights, parse_facts

State = Literal["ok", "info", "warn", "fail"]
_GLYPHS: dict[State, str] = {"ok": "●", "info": "·", "warn": "▲", "fail": "✖"}


class Check(msgspec.Struct, frozen=True):
    """One check on one node."""

    name: str
    state: State
    text: str
    try_: str = msgspec.field(name="try", default="")


class NodeExam(msgspec.Struct, frozen=True):
    """The checks of one node; of an unreachable one the check `reach` alone."""

    node: str
    reached: bool
    checks: tuple[Check, ...]
    rtt_ns: int | None = None  # shortest round trip through the agent


def examine(answers: Sequence[NodeAnswer]) -> list[NodeExam]:
    """The checks of each node; an unreachable node, or one with an invalid reply, has one check with the reason."""
    return [_exam(answer) for answer in answers]


def _exam(answer: NodeAnswer) -> NodeExam:
    try:
        checks = msgspec.convert(answer.value, tuple[Check, ...]) if answer.failure is None else ()
    except msgspec.ValidationError as error:
        return _unreached(answer.node, Failure("no_answer", f"invalid reply: {error}"))
    if answer.failure is not None:
        return _unreached(answer.node, answer.failure)
    words = f"login and agent work via {answer.via}: host key checked there" if answer.via else ""
    reach = Check("reach", "ok", words or "host key, login and agent work")
    return NodeExam(answer.node, True, (reach, *map(_explained, checks)), answer.rtt_ns)


def _explained(check: Check) -> Check:
    """The check `rights` as text instead of the facts that the agent sent; others as they are."""
    if check.name != "rights":
        return check
    facts = parse_facts(check.text)
    if facts is None:
        return Check("rights", "warn", "the agent sent malformed facts about its login")
    text, change = describe_rights(facts)
    return Check("rights", "info", text, change)


def _unreached(node: str, failure: Failure) -> NodeExam:
    return NodeExam(node, False, (Check("reach", "fail", f"{failure.name}: {failure.text}", failure.try_),))


def to_json(exams: Sequence[NodeExam]) -> JsonText:
    """`{"schema": "gconsole.doctor/1", "nodes": [...]}`."""
    document = {"schema": "gconsole.doctor/1", "nodes": list(exams)}
    return pretty(document)


def to_text(exams: Sequence[NodeExam]) -> Printable:
    """One block per check, one line per distinct result with its nodes; failed checks have a remedy."""
    names = list(dict.fromkeys(check.name for exam in exams for check in exam.checks))
    lines = []
    for name in names:
        results: dict[Check, list[str]] = {}
        for exam in exams:
            for check in exam.checks:
                if check.name == name:
                    results.setdefault(check, []).append(exam.node)
        for i, (check, nodes) in enumerate(results.items()):
            lines.append(f"{name if i == 0 else '':8s} {_GLYPHS[check.state]} {fold(nodes)}  {check.text}")
            if check.try_ and check.state != "ok":
                lines.append(f"{'':8s}   try: {check.try_}")
    return join_lines(lines)


def exit_code(exams: Sequence[NodeExam]) -> int:
    """4 nothing reached, 1 a check failed on a reached node, 3 some nodes unreached, 0 fine."""
    reached = [exam for exam in exams if exam.reached]
    if not reached:
        return 4
    if any(check.state == "fail" for exam in reached for check in exam.checks):
        return 1
    return 3 if len(reached) < len(exams) else 0


# -- clean


class AgentUser(msgspec.Struct, frozen=True):
    """An agent that uses, or used, the cache. Untrusted data from the node."""

    pid: int | None = None
    console: str | None = None
    label: str | None = None
    hostname: str | None = None
    here: bool = True


class RemainingFolder(msgspec.Struct, frozen=True):
    """A folder that was not removed."""

    path: str
    why: str
    users: tuple[AgentUser, ...] = ()


class Cleaned(msgspec.Struct, frozen=True):
    """Clean-up result of one node."""

    removed: tuple[str, ...]
    kept: tuple[RemainingFolder, ...]
    ended: tuple[AgentUser, ...]


def cleaned(answer: NodeAnswer) -> Cleaned | Failure:
    """The result of one node; a Failure for a missing or malformed reply."""
    if answer.failure is not None:
        return answer.failure
    try:
        return msgspec.convert(answer.value, Cleaned)
    except msgspec.ValidationError as error:
        return Failure("no_answer", f"invalid response: {error}")


def clean_text(answers: Sequence[NodeAnswer]) -> Printable:
    """One line per removed, kept or stopped item, nodes folded."""
    groups: dict[str, list[str]] = {}
    for answer in answers:
        for line in _clean_lines(answer):
            groups.setdefault(line, []).append(answer.node)
    return join_lines(f"{fold(nodes)}  {line}" for line, nodes in groups.items())


def clean_json(answers: Sequence[NodeAnswer]) -> JsonText:
    """`{"schema": "gconsole.clean/1", "nodes": [...]}`: the result of each node, or its failure."""
    return pretty({"schema": "gconsole.clean/1", "nodes": [_row(answer.node, cleaned(answer)) for answer in answers]})


def _row(node: str, result: msgspec.Struct) -> dict[str, object]:
    has_failed = isinstance(result, Failure)
    return {"node": node, "result": None if has_failed else result, "failure": result if has_failed else None}


def clean_exit_code(answers: Sequence[NodeAnswer]) -> int:
    """Exit code: 0 clean, 3 some nodes unreachable or folders kept, 4 no node reachable."""
    results = [cleaned(answer) for answer in answers]
    reached = [result for result in results if isinstance(result, Cleaned)]
    if not reached:
        return 4
    return 3 if len(reached) < len(results) or any(result.kept for result in reached) else 0


def _clean_lines(answer: NodeAnswer) -> list[str]:
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


# -- release


class GpuHolder(msgspec.Struct, frozen=True):
    """A process that has a GPU open. Untrusted data from the node."""

    pid: int
    uid: int
    program: str


class Released(msgspec.Struct, frozen=True):
    """What one node answered: seconds for which its GPUs are let go, and who still has one open."""

    left_s: int | None  # None: the agents have no common folder, so only those of this console were asked
    holders: tuple[GpuHolder, ...]


def released(answer: NodeAnswer) -> Released | Failure:
    """The result of one node; a Failure for a missing or malformed reply."""
    if answer.failure is not None:
        return answer.failure
    try:
        return msgspec.convert(answer.value, Released)
    except msgspec.ValidationError as error:
        return Failure("no_answer", f"invalid response: {error}")


def release_text(answers: Sequence[NodeAnswer]) -> Printable:
    """One line per result, nodes folded; the processes that still have a GPU open below it."""
    groups: dict[str, list[str]] = {}
    for answer in answers:
        groups.setdefault("\n".join(_release_lines(released(answer))), []).append(answer.node)
    return join_lines(f"{fold(nodes)}  {line}" for lines, nodes in groups.items() for line in lines.split("\n"))


def release_json(answers: Sequence[NodeAnswer]) -> JsonText:
    """`{"schema": "gconsole.release/1", "nodes": [...]}`: the result of each node, or its failure."""
    rows = [_row(answer.node, released(answer)) for answer in answers]
    return pretty({"schema": "gconsole.release/1", "nodes": rows})


def release_exit_code(answers: Sequence[NodeAnswer]) -> int:
    """Exit code: 0 no process has a GPU open, 3 some have or some nodes unreachable, 4 no node reachable."""
    results = [released(answer) for answer in answers]
    reached = [result for result in results if isinstance(result, Released)]
    if not reached:
        return 4
    is_done = all(result.left_s is not None and not result.holders for result in reached)
    return 0 if is_done and len(reached) == len(results) else 3


def _release_lines(result: Released | Failure) -> list[str]:
    if isinstance(result, Failure):
        return [f"✖ {result.name}: {result.text}"]
    if result.left_s is None:
        return [
            "▲ the agents have no cache folder ([agent] ephemeral): close the consoles that watch this node instead"
        ]
    if not result.left_s:
        return ["● the agents use the GPUs again"]
    length = duration(result.left_s * 10**9)
    if not result.holders:
        return [f"● gconsole has let the GPUs go for {length}; no process has a GPU open"]
    lines = [f"▲ gconsole has let the GPUs go for {length}; still open in:"]
    return [*lines, *(f"    pid {holder.pid} (uid {holder.uid})  {holder.program}" for holder in result.holders)]
