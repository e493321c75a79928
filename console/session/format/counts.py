"""What some records are, in numbers: for the label of a frame, and for what is known of a session unread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ...core.bus import Published
from ...records import KINDS
from ...records.kinds import kind_of
from .layout import AgentProgress, Meta

#: So many kinds that this version does not know are counted by name, the rest together: a node can invent any number,
#: and the label of a frame has little room.
_UNKNOWN_KINDS: Final = 64
#: What those beyond that are counted as.
MANY: Final = "…"


@dataclass(frozen=True)
class Batch:
    """What a number of records are."""

    kinds: dict[str, int]
    agents: dict[str, AgentProgress]
    first_rx: int
    last_rx: int


def count(records: Sequence[Published]) -> Batch:
    """Count some records; at least one."""
    kinds: dict[str, int] = {}
    agents: dict[str, Published] = {}
    first_rx = last_rx = records[0].rx
    for record in records:
        kind = _name(kind_of(record), kinds)
        kinds[kind] = kinds.get(kind, 0) + 1
        known = agents.get(record.agent)
        if known is None or known.seq < record.seq:
            agents[record.agent] = record
        if record.rx < first_rx:
            first_rx = record.rx
        elif record.rx > last_rx:
            last_rx = record.rx
    heard = {agent: AgentProgress(record.node, record.seq, record.rx) for agent, record in agents.items()}
    return Batch(kinds, heard, first_rx, last_rx)


def _name(kind: str, counted: Mapping[str, int]) -> str:
    """What a kind is counted as, beside those that are counted already."""
    if kind in counted or kind in KINDS or len(counted) < len(KINDS) + _UNKNOWN_KINDS:
        return kind
    return MANY


def add(meta: Meta, batch: Batch) -> None:
    """These are in the session, too."""
    for kind, number in batch.kinds.items():
        kind = _name(kind, meta.counts)
        meta.counts[kind] = meta.counts.get(kind, 0) + number
    meta.records += sum(batch.kinds.values())
    has_new = any(agent not in meta.agents for agent in batch.agents)
    for agent, heard in batch.agents.items():
        known = meta.agents.get(agent)
        if known is None or known.seq < heard.seq:
            meta.agents[agent] = heard
    if has_new:
        _forget_ended(meta)
    meta.first_rx = batch.first_rx if meta.first_rx is None else min(meta.first_rx, batch.first_rx)
    meta.last_rx = batch.last_rx if meta.last_rx is None else max(meta.last_rx, batch.last_rx)


def _forget_ended(meta: Meta) -> None:
    """Of the agents of each node the last one stays: another speaks there only once that has ended."""
    consoles = {name for part in meta.parts for name in (part.console, part.was)}
    last: dict[str, str] = {}
    for agent, heard in meta.agents.items():
        if agent not in consoles and (heard.node not in last or meta.agents[last[heard.node]].rx <= heard.rx):
            last[heard.node] = agent
    if consoles:  # else a console's own words about a node are not to be told from those of the node
        meta.agents = {
            agent: heard for agent, heard in meta.agents.items() if agent in consoles or last[heard.node] == agent
        }
