"""Fields common to all records.

A record is one observation of one node, or of the console, at one instant. Unknown values are None, never 0.
Units are part of the field name: `_bytes`, `_bytes_s` (bytes per second), `_pct` (0 to 100; for CPU, 100 is one
core), `_ns`, `_s`, `_w` (watts), `_c` (degrees Celsius), `_mhz`.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

#: 64-bit bounds, because records of nodes are untrusted.
Int = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
#: Beyond these bounds sums over all nodes overflow; `Nanos` and `Span` are ns. Values that a training loop defines have
#: none: a loss may diverge.
Float = Annotated[float, msgspec.Meta(ge=-1e18, le=1e18)]
Nanos = Annotated[int, msgspec.Meta(ge=-(2**62), le=2**62)]
Span = Annotated[int, msgspec.Meta(ge=0, le=2**62)]
#: CLOCK_REALTIME or CLOCK_MONOTONIC_RAW, ns; up to the year 2116.
Instant = Span


class Missing(msgspec.Struct, frozen=True):
    """A capability that a node lacks: name, reason and remedy."""

    name: str  # "cache", "py-spy", …
    text: str  # the reason
    try_: str = msgspec.field(name="try", default="")  # the remedy, or ""


class Record(msgspec.Struct, kw_only=True, tag_field="kind"):
    """Common fields of every record.

    The console sets `node` and `agent` from the connection, so a node can report only for itself. `seq` numbers the
    records of one agent without gaps, which reveals lost and duplicate records.
    """

    node: str = ""  # the node's name in hosts.toml; "" for the console's own records
    agent: str = ""  # random id of this run of the agent
    seq: Count = 0  # unique with `agent`, from 1, without gaps
    t: Instant = 0  # CLOCK_REALTIME of the node, ns
    mono: Instant = 0  # CLOCK_MONOTONIC_RAW of the node, ns
    rx: Int = 0  # CLOCK_REALTIME of the console when the record arrived, ns


class DigestibleRecord(Record, kw_only=True):
    """A sample of figures that may be a digest: it also stands for earlier samples, which were not sent.

    Its figures are always those of its own, the last sample, at `t` and `mono`. Nothing that a health rule compares
    changed among the samples of a digest: they are on the same side of each threshold. See docs/architecture.md.
    """

    period_s: Float | None = None  # digests: the next record comes within this time; None: every tick has a record
    samples: Count = 1  # how many samples the record stands for, itself included
    first_mono: Instant = 0  # CLOCK_MONOTONIC_RAW of the first of several samples, ns
    low: dict[str, Float] = msgspec.field(default_factory=dict)  # lowest value of each figure that changed
    mean: dict[str, Float] = msgspec.field(default_factory=dict)  # mean of the samples of each figure that changed
    high: dict[str, Float] = msgspec.field(default_factory=dict)  # highest value of each figure that changed

    @property
    def is_digest(self) -> bool:
        """Whether figures of its entity come as digests, so that the next record is not due at the next tick."""
        return self.period_s is not None
