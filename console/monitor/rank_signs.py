"""Signs of progress of each rank in a store: the meaning of its place, its connections, its GPU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from weakref import WeakKeyDictionary, proxy

from ..analysis.places import PlaceFacts, place_facts
from ..analysis.stacks.frames import Reader
from ..core.store import ProcessKey, RankNow, Store
from ..records import Place
from .hang import hang_models
from .rank_gpus import gpu_figures

#: ns. An older sample of a place says nothing of the present: nodes that cannot afford samples take them rarely.
FRESH_NS: Final = 60_000_000_000
#: Distinct stacks whose meaning is kept; nodes are untrusted.
MOST_STACKS: Final = 16_384


class RankSigns:
    """The signs of the ranks of one store."""

    def __init__(self, store: Store) -> None:
        self._models: tuple[str, ...] = ()
        self._reader: Reader | None = None
        self._facts: dict[ProcessKey, tuple[Place, PlaceFacts]] = {}
        self._read = 0
        self._store: Store = proxy(store)  # else a store would never be freed

    def facts(self, key: ProcessKey, place: Place) -> PlaceFacts:
        """The meaning of the place of a rank; the same one until it changes."""
        cached = self._facts.get(key)
        if cached is not None and (cached[0] is place or cached[0].frames == place.frames):
            return cached[1]
        models = self._store.console.hang_models if self._store.console else ()
        if self._reader is None or models != self._models or self._read >= MOST_STACKS:
            self._reader, self._models, self._read = Reader(hang_models(self._store)), models, 0
            self._facts = {of: entry for of, entry in self._facts.items() if of in self._store.ranks}
        self._read += 1
        facts = place_facts(place.frames, self._reader)
        self._facts[key] = (place, facts)
        return facts

    def transfers(self, job: str, attempt: int) -> Mapping[int, bool | None]:
        """By rank, whether its GPU exchanges data with others."""
        return {rank: gpu.is_transferring for rank, gpu in gpu_figures(self._store, job, attempt).items()}


_SIGNS: Final[WeakKeyDictionary[Store, RankSigns]] = WeakKeyDictionary()


def signs_of(store: Store) -> RankSigns:
    """The signs of a store: the same object for all readers."""
    signs = _SIGNS.get(store)
    if signs is None:
        signs = _SIGNS[store] = RankSigns(store)
    return signs


def current_place(now: RankNow) -> Place | None:
    """The newest place of a rank; None where it was sampled too long ago to say anything of the present."""
    if now.place is None or now.stat is None or now.stat.t - now.place.sampled > FRESH_NS:
        return None
    return now.place


def quiet_s(now: RankNow) -> float:
    """Seconds for which the data connections of a rank are silent, up to its newest sample; 0.0 where they are not."""
    if now.quiet_since is None or now.place is None:
        return 0.0
    return (now.place.sampled - now.quiet_since) / 1e9
