"""One thing that is wrong between the ranks of a group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ...records import Confidence
from ...text.rank_ranges import ranges
from .align import Witness

FaultKind = Literal["missing_rank", "op_mismatch", "shape_dtype_mismatch"]


@dataclass(frozen=True, slots=True)
class MismatchSide:
    """Ranks that did the same at the number where ranks differ."""

    what: str  # `all_reduce`, or its shape and type
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong in one group.

    `ranks` are those it is about: who has not come, or the smaller camp; empty where it cannot be told (a tie, or a
    rank of which nothing is known). With `held` in it, a rank that has not come waits in another group itself.
    """

    kind: FaultKind
    witness: Witness
    group: str  # its name
    title: str  # as it is shown
    op: str
    seq: int | None
    ranks: tuple[int, ...]
    waiting: tuple[int, ...]  # that have entered and wait
    unseen: tuple[int, ...]  # members that nothing is known of
    waited_s: float | None  # the longest of them; None where the source has no instants
    confidence: Confidence
    evidence: tuple[str, ...]  # each names its source, rank and field
    camps: tuple[MismatchSide, ...] = ()
    held: tuple[tuple[int, str], ...] = ()  # (rank, title of the group it waits in)
    follows: bool = False  # all whom it is about wait themselves: the cause is elsewhere

    @property
    def text(self) -> str:
        """One sentence."""
        at = f"{self.op or 'operation'}{f' #{self.seq}' if self.seq is not None else ''} of group {self.title}"
        if self.camps:
            return f"ranks differ at {at}: " + ", ".join(
                f"[{ranges(wait_group.ranks)}] {wait_group.what}" for wait_group in self.camps
            )
        waits = "waits" if len(self.waiting) == 1 else "wait"
        waited = f" for {self.waited_s:.0f} s" if self.waited_s is not None else ""
        who = f"which [{ranges(self.ranks)}] {'has' if len(self.ranks) == 1 else 'have'} not entered"
        if not self.ranks:
            who = "and who has not come is not known" + ("" if self.unseen else ": its members are not recorded")
        tail = f"; of [{ranges(self.unseen)}] nothing is known" if self.unseen else ""
        return f"[{ranges(self.waiting)}] {waits}{waited} in {at}, {who}{tail}"
