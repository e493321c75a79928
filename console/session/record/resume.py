"""Going on with a session that a crashed console left: as the same console, with the agents that still linger."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ...core.bus import Sink
from ...core.control import CrashedRecording
from ...records.kinds import names_where
from ..format import reader
from ..format.layout import AgentProgress, Meta, Session, SessionError
from ..format.reader import Choice
from ..format.zstd_frames import Damage
from . import repair

#: Kinds that describe the state of the cluster: folded again, they restore the store.
_RESUMED: Final = names_where(lambda spec: spec.is_resumed)


def check(session: Session) -> Meta:
    """What is known of a session that can go on. Raises SessionError for one that was ended orderly."""
    meta = session.read()
    crashed = bool(meta.parts) and meta.parts[-1].how != "stopped"
    if not crashed:
        text = f"try another name, or: gconsole sessions delete {session.name}"
        raise SessionError(f"{session.name}: there is such a session already; {text}")
    return meta


def take_up(session: Session, name_of: Callable[[str], str]) -> CrashedRecording:
    """Recover a session, and say how to go on with it. `name_of` gives what a node is called in the session.

    Raises SessionError where it was ended orderly, or is being written; OSError.
    """
    check(session)
    repair.recover(session)
    return left_behind(session.read(), name_of)


def left_behind(meta: Meta, name_of: Callable[[str], str]) -> CrashedRecording:
    """How to go on with a session that was recovered."""
    console = meta.parts[-1].console
    own = meta.agents.get(console)
    agents = {node: (agent, heard.seq) for node, (agent, heard) in last_agents(meta).items()}
    return CrashedRecording(console, own.seq if own is not None else 0, agents, name_of, meta.last_rx or 0)


def refold(session: Session, sink: Sink) -> None:
    """Tell a store what was known when the recording broke off: an agent that lingers does not say it again."""
    for record in reader.lenient(session.path, _never_mind, Choice(kinds=_RESUMED)):
        sink([record])


def _never_mind(damage: Damage) -> None:
    """`recover` has told it already."""


def last_agents(meta: Meta) -> dict[str, tuple[str, AgentProgress]]:
    """By node, the agent that was heard last there, and how far it is recorded; nodes as they are called in there."""
    consoles = {name for part in meta.parts for name in (part.console, part.was)}
    oldest_first = sorted(meta.agents.items(), key=lambda item: item[1].rx)
    return {heard.node: (agent, heard) for agent, heard in oldest_first if heard.node and agent not in consoles}
