"""Which jobs, ranks and processes a capture is about, by names that a user gives."""

from __future__ import annotations

import re
from typing import Final

import msgspec
from msgspec.structs import replace

from .. import GconsoleError
from ..core.control import CaptureRequest, PeerProcess
from ..core.store import Store
from ..records.kinds import is_gone
from ..text.format import some
from .hang import Diagnosis

_PROCESS: Final = re.compile(r"(?P<node>.+):(?P<pid>[0-9]{1,7})")
#: Names that an error lists.
_NAMED: Final = 4


class NothingSelected(GconsoleError, ValueError):
    """No job, rank or node fits; the text says which."""


class CaptureSelection(msgspec.Struct, frozen=True):
    """Without any of these: all ranks of all jobs."""

    jobs: tuple[str, ...] = ()  # each a part of a job's name
    ranks: frozenset[int] = frozenset()
    processes: tuple[tuple[str, int], ...] = ()  # (node, pid) of Python processes, ranks or not

    def apply(self, order: CaptureRequest | Diagnosis, store: Store) -> CaptureRequest | Diagnosis:
        """The order for what is selected of the store's ranks. Raises NothingSelected."""
        jobs = self._jobs(store)
        if jobs is not None:
            order = replace(order, jobs=jobs)
        if isinstance(order, Diagnosis) or not (self.ranks or self.processes):
            return order
        peers = self._peers(store)
        only = self._ranks(store, jobs) if self.ranks or jobs is not None else ()
        return replace(order, only=only, peers=peers)

    def _jobs(self, store: Store) -> tuple[str, ...] | None:
        if not self.jobs:
            return None
        names = sorted({now.rank.job for now in store.ranks.values() if not is_gone(now.rank)})
        chosen = [name for name in names if any(part in name for part in self.jobs)]
        if not chosen:
            listed = some(names, _NAMED) if names else "none"
            raise NothingSelected(f"no job has {' or '.join(self.jobs)} in its name; jobs: {listed}")
        return tuple(chosen)

    def _ranks(self, store: Store, jobs: tuple[str, ...] | None) -> tuple[tuple[str, int], ...]:
        live = [now.rank for now in store.ranks.values() if not is_gone(now.rank)]
        live = [rank for rank in live if jobs is None or rank.job in jobs]
        chosen = [rank for rank in live if not self.ranks or rank.rank in self.ranks]
        missing = sorted(self.ranks - {rank.rank for rank in chosen})
        if missing:
            raise NothingSelected(f"no live rank {', '.join(map(str, missing))}; live ranks: {len(live)}")
        return tuple(sorted((rank.node, rank.pid) for rank in chosen))

    def _peers(self, store: Store) -> tuple[PeerProcess, ...]:
        for node, _ in self.processes:
            if node not in store.nodes:
                raise NothingSelected(f"no node {node}; nodes: {some(sorted(store.nodes), _NAMED)}")
        return tuple(PeerProcess(node, pid, f"{node}:{pid}", 0) for node, pid in self.processes)


def parse_process(text: str) -> tuple[str, int]:
    """`node01:4242` as (node, pid). Raises ValueError."""
    match = _PROCESS.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not NODE:PID, such as node01:4242")
    return match["node"], int(match["pid"])
