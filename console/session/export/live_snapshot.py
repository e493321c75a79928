"""What a console still knows, as if it had been recorded: so that it can leave in the forms of a session.

Of what is drawn over time a record a second of the last minutes, before them one each ten seconds with means; of the
rest the newest record of everything, and every event, stack and operation that is still there. Secrets are taken out
of it as out of a recording, and so are variables.
"""

from __future__ import annotations

import heapq
import secrets
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, cast

import numpy as np

from ... import __version__
from ...core.bus import Published
from ...core.store import ProcessKey, Store
from ...records import KINDS, AgentCost, Gpu, Host, Log, Nic, RankStat
from ...records.kinds import SPECS, kind_of
from ...records.metrics import HISTORY
from ..format.layout import Meta, RecorderRun
from ..format.redact import Redactor
from ..store_snapshot import EntityHistory, all_records, metric_history
from .slice import SessionSlice

_SECOND: Final = 1_000_000_000
_TOLD: Final = (
    "put together from what a console still knew, not recorded: figures are one a second of the last 5 minutes, "
    "and means of ten seconds before them"
)


@dataclass(frozen=True)
class _Ahead:
    """How far two other clocks are ahead of a node's MONOTONIC_RAW, ns, as its newest record says."""

    t: int = 0  # the node's CLOCK_REALTIME
    rx: int = 0  # the console's


@dataclass(frozen=True, kw_only=True)
class LiveSnapshot(SessionSlice):
    """The records of a store as they were at one instant: taken where the store lives, read anywhere."""

    taken: tuple[Published, ...] = ()  # in the order of their arrival
    history: tuple[tuple[str, EntityHistory], ...] = ()  # by family
    ahead: dict[str, _Ahead]  # by node
    still: Mapping[ProcessKey, tuple[int, RankStat]]  # since when, in `mono`, and how, of those that stand still
    agent: str = ""  # of the records that are made here

    def records(self) -> Iterator[Published]:
        return heapq.merge(*self._parts(self.choice.kinds), key=lambda part: part.rx)

    def only(self, *kinds: str) -> Iterator[Published]:
        return replace(self, choice=replace(self.choice, kinds=frozenset(kinds))).records()

    def _parts(self, wanted: Collection[str] | None) -> Iterator[Iterable[Published]]:
        yield (record for record in self.taken if wanted is None or kind_of(record) in wanted)
        for number, (family, kept) in enumerate(self.history):
            if wanted is None or family in wanted:
                yield self._figures(family, kept, f"{self.agent}{number}")

    def _figures(self, family: str, kept: EntityHistory, agent: str) -> Iterator[Published]:
        """A record an instant and thing of which something is known."""
        known, names = kept.metrics, HISTORY[family]
        heads = [kept.heads[key] for key in known.keys]
        for number, (at, thing) in enumerate(zip(*np.nonzero(kept.recorded_points()), strict=True), 1):
            if _tells_whose(family, heads[thing]):
                figures = dict(zip(names, known.values[at, thing], strict=True))
                yield self._record(family, heads[thing] | {"agent": agent, "seq": number}, int(known.t[at]), figures)

    def _record(self, family: str, head: dict[str, Any], second: int, figures: dict[str, Any]) -> Published:
        ahead = self.ahead.get(head["node"], _Ahead())
        mono = second * _SECOND - ahead.rx
        told: dict[str, Any] = {
            name: int(value) if name.endswith("_bytes") else float(value)
            for name, value in figures.items() if not np.isnan(value)
        }  # fmt: skip
        when: dict[str, Any] = {"t": mono + ahead.t, "mono": mono, "rx": second * _SECOND}
        also = self._state(head, mono) if family == "rank_stat" else {}
        return cast(Published, KINDS[family](**head, **told, **when, **also))

    def _state(self, head: dict[str, Any], mono: int) -> dict[str, Any]:
        """Of a rank that has stood still until now it is known how it was all the while."""
        since, newest = self.still.get((head["node"], head["pid"], head["start_ticks"]), (mono + 1, None))
        if newest is None or mono < since:
            return {"state": "unknown"}
        return {"state": newest.state, "proc_state": newest.proc_state, "ctx_switches_s": newest.ctx_switches_s}


#: Records that an agent stamps as it takes them; others may be the console's own word about a node.
_SAMPLED: Final = (AgentCost, Host, Gpu, Nic, RankStat)


def _tells_whose(family: str, head: dict[str, Any]) -> bool:
    """Whether all fields that identify the entity are known; a gone rank has only its process."""
    spec = SPECS[KINDS[family]]
    names = ("node", *spec.key, *spec.labels)
    return all(name in head and (head[name] is not None or name == "rank") for name in names)


def live_snapshot(store: Store, name: str) -> LiveSnapshot:
    """What that store knows now. `name` is what a session of it is called."""
    agent, redact = secrets.token_hex(8), Redactor()
    known = sorted(all_records(store), key=lambda record: record.rx)
    ahead = {record.node: _Ahead(record.t - record.mono, record.rx - record.mono) for record in known
             if isinstance(record, _SAMPLED) and record.mono}  # fmt: skip
    steps = list(_steps(store, ahead, agent))
    history = [(family, kept) for family in HISTORY if (kept := metric_history(store, family)) is not None]
    first = min([record.rx for record in (*known[:1], *steps)] + _seconds(history), default=store.newest_rx)
    last = store.newest_rx
    note = Log(agent=agent, seq=1, t=first, rx=first, source="console", severity="warning", text=_TOLD)
    taken = sorted((note, *(redact(record) for record in known), *steps), key=lambda record: record.rx)
    cluster = store.console.cluster if store.console is not None else ""
    meta = Meta(
        name=name, id=secrets.token_hex(8), cluster=cluster, state="closed", created=first, closed=last,
        parts=(RecorderRun(began=first, ended=last, how="stopped", version=__version__),), first_rx=first, last_rx=last,
    )  # fmt: skip
    still = {key: (now.still_since, now.stat) for key, now in store.ranks.items()
             if now.still_since is not None and now.stat is not None}  # fmt: skip
    return LiveSnapshot(
        Path(name), meta=meta, taken=tuple(taken), history=tuple(history), ahead=ahead, still=still, agent=agent
    )


def _seconds(history: Iterable[tuple[str, EntityHistory]]) -> list[int]:
    """When the oldest figure of each family was taken, ns."""
    firsts = ((kept.metrics, np.flatnonzero(~np.isnan(kept.metrics.values).all(axis=(1, 2)))) for _, kept in history)
    return [int(known.t[found[0]]) * _SECOND for known, found in firsts if found.size]


def _steps(store: Store, ahead: dict[str, _Ahead], agent: str) -> Iterator[RankStat]:
    """When each rank was seen to reach a step: where the record of that is gone, too."""
    ranks = store.steps.ranks().items()
    found = (((job, attempt, rank), one, seen) for (job, attempt, rank), one in ranks for seen in one.seen)
    for number, ((job, attempt, rank), one, seen) in enumerate(found, 2):
        of_node = ahead.get(one.node, _Ahead())
        pid, start_ticks = one.process
        yield RankStat(
            node=one.node, agent=agent, seq=number, t=seen.mono + of_node.t, mono=seen.mono,
            rx=seen.mono + of_node.rx, job=job, attempt=attempt, rank=rank, pid=pid, start_ticks=start_ticks,
            state="unknown", step=seen.step,
        )  # fmt: skip
