"""Measurements of each fault, stored during the run for the results table."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

#: File that rows are appended to; if unset they are only printed.
VARIABLE = "GCONSOLE_FAULTS_LEDGER"


class Row(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One injected fault. None: not measured or not applicable."""

    fault: str
    lost: int | None = None
    doubled: int | None = None
    gap: int | None = None
    unhealthy_s: float | None = None  # from the start of the silence to its `node_state`
    healthy_s: float | None = None  # from the end of the fault to its `node_state`
    shown_s: float | None = None  # from the fault to the message on the screen
    screen: str = ""  # the message on the screen
    others_ratio: float | None = None  # latency of the other nodes during the fault / before it
    note: str = ""


def is_kept() -> bool:
    """Whether measurements are recorded; tests then run long enough to get sufficient samples."""
    return VARIABLE in os.environ


def write(row: Row) -> None:
    print(f"\n{msgspec.json.encode(row).decode()}")
    path = os.environ.get(VARIABLE)
    if path:
        with Path(path).open("ab") as file:
            file.write(msgspec.json.encode(row) + b"\n")


def read(path: Path) -> list[Row]:
    return [msgspec.json.decode(line, type=Row) for line in path.read_bytes().splitlines()]
