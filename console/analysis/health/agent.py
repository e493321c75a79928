"""Faults of gconsole, which make other statements incomplete: an agent that cannot read, a console that is late."""

from __future__ import annotations

from collections.abc import Iterator

from ...config.sections import HealthConfig
from ..finding import FindingDraft
from .state import HealthState


def agent_error(facts: HealthState, limits: HealthConfig) -> Iterator[FindingDraft]:
    """One finding per node whose current agent reported an internal error, with the newest one."""
    for node in facts.nodes.values():
        if not node.agent_errors:
            continue
        texts = [record.text.strip().splitlines() or ["no text"] for record in node.agent_errors.values()]
        newest = texts[-1]
        more = f" (and {len(texts) - 1} more)" if len(texts) > 1 else ""
        cause = f": {newest[-1].strip()}" if len(newest) > 1 else ""
        text = f"{node.name}: the agent failed to read part of the node{more}: {newest[0]}{cause}"
        evidence = tuple(f"log.text {node.name} {words[0]}" for words in texts[:4])
        yield FindingDraft("agent_error", "error", "certain", (node.name,), text, evidence)


def console_late(facts: HealthState, limits: HealthConfig) -> Iterator[FindingDraft]:
    """One finding while the console does not keep up with its nodes: about the console, so never more than an info."""
    if facts.console_late is not None:
        text = facts.console_late.text
        yield FindingDraft("console_late", "info", "certain", (), text, ("log.text",))
