"""A fault between the ranks of a process group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ...records import Confidence
from ...text.nodeset_fold import fold_numbers
from .align import Witness

FaultKind = Literal["missing_rank", "op_mismatch", "shape_dtype_mismatch"]


@dataclass(frozen=True, slots=True)
class MismatchSide:
    """Ranks that did the same at the sequence number where ranks differ."""

    what: str  # `all_reduce`, or its shape and dtype
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault in one group.

    `ranks` are the missing ranks or the minority; empty where undecided (a tie, or a rank without data). `held` are
    missing ranks that wait in another group themselves.
    """

    kind: FaultKind
    witness: Witness
    group: str  # name of the process group
    title: str  # display name
    op: str
    seq: int | None
    ranks: tuple[int, ...]
    waiting: tuple[int, ...]  # ranks that have entered and wait
    unseen: tuple[int, ...]  # members without data
    waited_s: float | None  # the longest wait; None where the source has no timestamps
    confidence: Confidence
    evidence: tuple[str, ...]  # each names its source, rank and field
    sides: tuple[MismatchSide, ...] = ()
    held: tuple[tuple[int, str], ...] = ()  # (rank, title of the group it waits in)
    follows: bool = False  # all missing ranks wait in other groups: the cause is elsewhere

    @property
    def text(self) -> str:
        """One sentence."""
        place = f"{self.op or 'operation'}{f' #{self.seq}' if self.seq is not None else ''} of group {self.title}"
        if self.sides:
            return f"ranks differ at {place}: " + ", ".join(
                f"[{fold_numbers(side.ranks)}] {side.what}" for side in self.sides
            )
        waits = "waits" if len(self.waiting) == 1 else "wait"
        waited = f" for {self.waited_s:.0f} s" if self.waited_s is not None else ""
        who = f"which [{fold_numbers(self.ranks)}] {'has' if len(self.ranks) == 1 else 'have'} not entered"
        if not self.ranks:
            who = "missing ranks unknown" + ("" if self.unseen else ": group members are not recorded")
        tail = f"; no data on [{fold_numbers(self.unseen)}]" if self.unseen else ""
        return f"[{fold_numbers(self.waiting)}] {waits}{waited} in {place}, {who}{tail}"
