"""Evaluates a recording with the product, without a network, a node or torch."""

from __future__ import annotations

import lzma
from pathlib import Path
from typing import Any

import msgspec

from gconsole.core.bus import Hub
from gconsole.core.store import Store
from gconsole.report import make_report
from gconsole.session import ndjson

from .labels import LabelledJob

RECORDINGS = Path(__file__).parent / "recordings"


def unpacked(labelled: LabelledJob, folder: Path) -> Path:
    """The unpacked recording of a job, for `gconsole batch --from`."""
    path = folder / f"{labelled.id}.ndjson"
    path.write_bytes(lzma.decompress((RECORDINGS / f"{labelled.id}.ndjson.xz").read_bytes()))
    return path


def stored(path: Path) -> Store:
    """The store after all records of a file."""
    hub, store = Hub(), Store()
    hub.subscribe(store.apply)
    ndjson.play(path, hub)
    return store


def verdicts(path: Path) -> list[dict[str, Any]]:
    """The verdicts of the report, in order of the jobs' names."""
    verdicts = msgspec.to_builtins(make_report(stored(path)).verdicts)
    return sorted(verdicts, key=lambda verdict: str(verdict["job"]))
