"""What every record carries, whoever observed it.

A record is one fact that one node, or the console, observed at one instant. A figure that is unknown is None, never 0.
Units are part of the field's name: `_bytes`, `_bytes_s` (bytes per second), `_pct` (0 to 100; for CPU, 100 is one
core), `_ns`, `_s`, `_w` (watts), `_c` (degrees Celsius), `_mhz`.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

#: 64-bit bounds: a node owns every byte it sends, and an unbounded integer is a way to hurt the console.
Int = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class Missing(msgspec.Struct, frozen=True):
    """Something that a node lacks: what it is called, what happened, and what to try."""

    name: str  # "psutil", "psi", "py-spy", …
    text: str  # what happened there
    try_: str = msgspec.field(name="try", default="")  # what to try; empty where nothing can be done


class Record(msgspec.Struct, kw_only=True, tag_field="kind"):
    """The head of every record.

    `node` and `agent` are stamped by the console from the connection that brought the record: a node can speak only
    for itself. `seq` counts the records of one agent without holes, so that loss and doubling can be counted.
    """

    node: str = ""  # the node's name in hosts.toml; "" for facts of the console itself
    agent: str = ""  # random id of that incarnation of the agent
    seq: Count = 0  # unique with `agent`, from 1, no holes
    t: Int = 0  # CLOCK_REALTIME of the node, ns
    mono: Int = 0  # CLOCK_MONOTONIC_RAW of the node, ns
    rx: Int = 0  # CLOCK_REALTIME of the console when the record arrived, ns
