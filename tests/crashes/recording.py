"""Evaluates a recording with the product, without a network, a node or torch."""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import Any

from gconsole.core.bus import Hub
from gconsole.core.store import Store
from gconsole.monitor.crash import crash_findings
from gconsole.report import make_report, to_json
from gconsole.session import ndjson

from .labels import RECORDINGS, LabelledJob


def stored(labelled: LabelledJob, folder: Path) -> Store:
    """The store after all records of a job."""
    path = folder / f"{labelled.id}.ndjson"
    path.write_bytes(lzma.decompress((RECORDINGS / f"{labelled.id}.ndjson.xz").read_bytes()))
    hub, store = Hub(), Store()
    hub.subscribe(store.apply)
    ndjson.play(path, hub)
    return store


def reported(labelled: LabelledJob, folder: Path) -> dict[str, Any]:
    """The report of a recording, with the findings that hold at its end instead of the recorded ones."""
    store = stored(labelled, folder)
    for key, finding in store.findings.items():
        if finding.cleared_at is None:
            store.findings.drop(key, store.version)
    store.apply(crash_findings(store))
    return dict(json.loads(to_json(make_report(store))))
