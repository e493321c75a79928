"""Whether a silent connection is dead though its node is well: half-open, forgotten by what lies between or behind.

A connection gets no end when the node was reset, or a firewall or NAT on the way forgot it. What tells it from a node
that is away, slow or stopped: our own bytes stay unacknowledged while the same node takes new connections. And one that
was cut with its link may stay silent for long after the link is back, until the kernels try it again.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .reachability import Knock
from .tcp_info import Unacked

#: Silence after which it is looked at: an agent says two things a second and more, so that something is amiss already.
DOUBT_S = 1.2
#: From the start of one look to that of the next. Looks are counted below, not timed: how long the answer to one took
#: would else decide whether one more is needed.
LOOK_S = 0.5
#: After a time-out the kernel sends again at 0.2, 0.6, 1.4, 3.0 s (RFC 6298 with Linux' least time-out of 200 ms): with
#: the second of them a single lost packet is no explanation any more.
LEAST_RETRANSMITS = 2
#: After so many looks in vain, a second each, a node counts as having been away; where every third packet is lost two
#: in a row are rare (0.07).
AWAY_LOOKS = 2
#: Answers in a row with which a node is back for good: one may be chance.
BACK_LOOKS = 2
#: So many where giving up loses records, a second after the first of them: TCP's next attempt is waited for so long,
#: because healthy again the node has to be within 2 s.
LATE_LOOKS = 3


@dataclass(frozen=True)
class LivenessSample:
    """One instant of a silence."""

    answered: bool  # the node took a new connection
    retransmits: int  # of what is unacknowledged; 0: nothing is


def is_dead(looks: Sequence[LivenessSample], *, loses_records: bool) -> bool:
    """Whether a connection is dead while its node is well, or late to come back with it, by the looks at one silence.

    `loses_records`: giving it up costs what the agent has not told, because it ends with its connection.
    """
    return _is_dead(looks, loses_records) or _is_late(looks, LATE_LOOKS if loses_records else BACK_LOOKS)


def _is_dead(looks: Sequence[LivenessSample], loses_records: bool) -> bool:
    """Whether the node answered twice, and what was sent was acknowledged neither then nor in between.

    The same holds in the moment after a link has come back, until TCP's next attempt. To connect anew is the quicker
    then, and costs nothing where the agent stays; where giving up loses records, the connection must besides have been
    tried in vain while the node answered.
    """
    since = _last_run(looks)
    if len(since) < BACK_LOOKS:
        return False
    return not loses_records or since[-2].retransmits > since[0].retransmits


def _is_late(looks: Sequence[LivenessSample], answers: int) -> bool:
    """Whether the node was away and has answered so often since, while its connection stayed silent.

    Both kernels try again ever more seldom while a link is cut. Ours may have been through while that of the node,
    which has the agent's words, lets them wait: for as long again as the link was away.
    """
    back = list(itertools.takewhile(lambda look: look.answered, reversed(looks)))
    away = looks[: len(looks) - len(back)][-AWAY_LOOKS:]
    was_away = len(away) == AWAY_LOOKS and not any(look.answered for look in away)
    return was_away and len(back) >= answers


def _last_run(looks: Sequence[LivenessSample]) -> Sequence[LivenessSample]:
    """The last looks without one at which the way did not work, or the connection did."""
    for at in range(len(looks) - 1, -1, -1):
        look = looks[at]
        is_better = at + 1 < len(looks) and looks[at + 1].retransmits < look.retransmits  # acknowledged in between
        if not look.answered or look.retransmits < LEAST_RETRANSMITS or is_better:
            return looks[at + 1 :]
    return looks


class LivenessMonitor:
    """Looks at one connection while it is silent, and says `give_up` once it is forgotten.

    `silent_s` and `owed` are asked about the connection, `knock` whether the node takes another.
    """

    def __init__(
        self, silent_s: Callable[[], float], owed: Callable[[], Unacked | None], knock: Knock,
        give_up: Callable[[], None], *, shown_s: float, loses_records: bool,
    ) -> None:  # fmt: skip
        """`shown_s`: silence before which nothing is given up, because the node is not yet shown as lost."""
        self._silent_s, self._owed, self._knock, self._give_up = silent_s, owed, knock, give_up
        self._shown_s, self.loses_records = shown_s, loses_records
        self._looking: asyncio.Task[None] | None = None

    def rise(self) -> None:
        """Look from now on, unless it is looked already; called again and again while the silence lasts."""
        if self._looking is not None and self._looking.done():
            self._looking.result()  # what went wrong with it is its owner's to tell
            self._looking = None
        if self._looking is None and self._silent_s() > DOUBT_S:
            self._looking = asyncio.create_task(self._look())

    async def close(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait({self._looking})

    async def _look(self) -> None:
        """Until something is heard, or the connection is given up."""
        looks: list[LivenessSample] = []
        while self._silent_s() > DOUBT_S:
            began = time.monotonic()
            owed = self._owed()
            if owed is None:
                return
            if owed.segments or looks:  # else nothing is to be learned, and sshd need not be bothered
                answered = await self._knock()
                if answered is None:
                    return
                owed = self._owed()
                looks.append(LivenessSample(answered, owed.retransmits if owed and owed.segments else 0))
            if self._silent_s() > self._shown_s and is_dead(looks, loses_records=self.loses_records):
                self._give_up()
                return
            await asyncio.sleep(max(0.0, began + LOOK_S - time.monotonic()))
