"""What was measured of each fault, kept beside the run for the table of results."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

#: Where rows are appended; unset: they are printed only.
VARIABLE = "GCONSOLE_FAULTS_LEDGER"


class Row(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One fault that was produced once. None: not measured, or it does not apply."""

    fault: str
    lost: int | None = None
    doubled: int | None = None
    gap: int | None = None
    unhealthy_s: float | None = None  # from the silence it begins to the `node_state` that says it
    healthy_s: float | None = None  # from its end to the `node_state` that says so
    shown_s: float | None = None  # from the fault to the words on the screen
    screen: str = ""  # what it said
    others_ratio: float | None = None  # latency of the other nodes during it, to that before
    note: str = ""


def is_kept() -> bool:
    """Whether figures are wanted: then a test takes its time for enough of them."""
    return VARIABLE in os.environ


def write(row: Row) -> None:
    print(f"\n{msgspec.json.encode(row).decode()}")
    path = os.environ.get(VARIABLE)
    if path:
        with Path(path).open("ab") as file:
            file.write(msgspec.json.encode(row) + b"\n")


def read(path: Path) -> list[Row]:
    return [msgspec.json.decode(line, type=Row) for line in path.read_bytes().splitlines()]
