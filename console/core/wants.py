"""The record rates that views, recordings and clients request; kinds without a request may come as digests."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from ..records import GpuInfo

#: Kinds that may come as digests; ranks, events and the inputs of all other findings keep their rate.
DIGESTED: Final = frozenset({"gpu", "gpu_link", "host", "nic"})
#: Records a second: every sample.
EVERY_SAMPLE: Final = float("inf")


class DigestRules(NamedTuple):
    """What the health checks require of digests, with the limits of a configuration."""

    thresholds: Callable[[Iterable[GpuInfo]], Mapping[str, tuple[float, ...]]]  # of GPUs: no digest spans one of these
    reasons: tuple[str, ...]  # clock event reasons whose begin and end no digest hides
    longest_s: float  # seconds


class Want(NamedTuple):
    """A request for kinds of records of some nodes at a rate."""

    nodes: frozenset[str] | None  # None: all
    kinds: frozenset[str]
    hz: float  # records a second of each entity


class Wants:
    """The requested rates of all requesters; `changed` is called after each change."""

    def __init__(self, changed: Callable[[], None] = lambda: None) -> None:
        self._wants: dict[str, tuple[Want, ...]] = {}
        self._changed = changed

    def put(self, who: str, wants: Collection[Want]) -> None:
        """Replace the requests of `who`; an empty collection withdraws them."""
        kept = tuple(want for want in wants if want.kinds and (want.nodes is None or want.nodes))
        if kept == self._wants.get(who, ()):
            return
        if kept:
            self._wants[who] = kept
        else:
            del self._wants[who]
        self._changed()

    def kinds_of(self, node: str, period_s: float) -> frozenset[str]:
        """Kinds that some requester needs from this node more often than once in `period_s` seconds."""
        kinds: set[str] = set()
        for want in (want for wants in self._wants.values() for want in wants):
            if want.hz * period_s > 1 and (want.nodes is None or node in want.nodes):
                kinds |= want.kinds
        return frozenset(kinds)

    def named(self) -> Mapping[str, tuple[Want, ...]]:
        """The requests by requester."""
        return dict(self._wants)
