"""The labelled jobs: a shape of communication, the fault of one rank, and whether its Flight Recorder can be read.

A label was written from the script, before any verdict on it was seen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tests.hangs.labels import MOVING, Label

Fault = Literal["healthy", "slow", "hung"]
FAULTS: tuple[Fault, ...] = ("healthy", "slow", "hung")


@dataclass(frozen=True)
class Shape:
    """One training loop of `jobs/shapes.py`, on two nodes."""

    name: str
    per_node: int = 2
    has_messages: bool = False  # its ranks wait for messages as well
    is_of_order: bool = False  # its fault is one of order: it cannot be slow
    needs_all_of_torch: bool = False
    device_mesh: bool = False

    @property
    def ranks(self) -> int:
        return 2 * self.per_node

    @property
    def culprit(self) -> int:
        return self.ranks // 2 + 1 if self.per_node > 2 else 2

    @property
    def faults(self) -> tuple[Fault, ...]:
        return ("healthy", "hung") if self.is_of_order else FAULTS


SHAPES: tuple[Shape, ...] = (
    Shape("data_tensor", per_node=4),
    Shape("mesh_3d", per_node=4, has_messages=True, needs_all_of_torch=True, device_mesh=True),
    Shape("hsdp", needs_all_of_torch=True, device_mesh=True),
    Shape("gpipe", per_node=4, has_messages=True),
    Shape("one_f_one_b", per_node=4, has_messages=True),
    Shape("interleaved", per_node=4, has_messages=True),
    Shape("batched_p2p", has_messages=True),
    Shape("mixed_p2p", has_messages=True),
    Shape("coalesced"),
    Shape("all_to_all"),
    Shape("uneven_splits"),
    Shape("barriers"),
    Shape("objects", needs_all_of_torch=True),
    Shape("monitored_barrier", has_messages=True),
    Shape("split_groups"),
    Shape("other_group_order"),
    Shape("bucketed"),
    Shape("extra", is_of_order=True),
    Shape("swapped", is_of_order=True),
)


@dataclass(frozen=True)
class ShapeCase:
    """One labelled job."""

    shape: Shape
    fault: Fault
    has_recorder: bool

    @property
    def id(self) -> str:
        return f"{self.shape.name}-{self.fault}{'' if self.has_recorder else '-no_recorder'}"

    @property
    def label(self) -> Label:
        """The right verdict."""
        culprit = frozenset({self.shape.culprit})
        if self.fault == "healthy":
            return MOVING
        if self.fault == "slow":
            # Where ranks also wait for messages, who waits says little: naming no rank is right, too.
            kinds, states = frozenset({"straggler", "none"}), frozenset({"slow", "moving"})
            if self.shape.has_messages:
                return Label(states, kinds, may_name=culprit, decidable=False)
            return Label(frozenset({"slow"}), frozenset({"straggler"}), culprit, frozenset({"sleep"}))
        if self.shape.is_of_order:
            # Both ranks of the circle are in collectives; only the record shows whose order differs.
            kinds = frozenset({"wait_cycle", "collective_mismatch"})
            pair = frozenset({self.shape.culprit ^ 1})
            may_name = frozenset() if self.has_recorder else pair
            return Label(frozenset({"hung"}), kinds, culprit, frozenset({"collective"}), may_name, self.has_recorder)
        return Label(frozenset({"hung"}), frozenset({"rank_missing"}), culprit, frozenset({"file_io"}))


CASES: tuple[ShapeCase, ...] = tuple(
    ShapeCase(shape, fault, has_recorder)
    for shape in SHAPES
    for fault in shape.faults
    for has_recorder in (True, False)
)
