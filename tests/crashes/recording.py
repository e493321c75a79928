"""Evaluates a recording with the product, without a network, a node or torch."""

from __future__ import annotations

import asyncio
import json
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gconsole.analysis.finding import FindingDraft
from gconsole.core.bus import Hub, Published
from gconsole.core.store import Store
from gconsole.monitor.crash import CrashFindings, crash_findings
from gconsole.records import Finding
from gconsole.report import make_report, to_json
from gconsole.session import ndjson

from .labels import RECORDINGS, LabelledJob

#: ns of arrival between two evaluations.
EVALUATED_NS = 500_000_000


def stored(labelled: LabelledJob, folder: Path) -> Store:
    """The store after all records of a job."""
    path = folder / f"{labelled.id}.ndjson"
    path.write_bytes(lzma.decompress((RECORDINGS / f"{labelled.id}.ndjson.xz").read_bytes()))
    hub, store = Hub(), Store()
    hub.subscribe(store.apply)
    ndjson.play(path, hub)
    return store


def findings_over_time(
    labelled: LabelledJob, folder: Path, change: Callable[[Published], Published] = lambda record: record
) -> list[FindingDraft]:
    """Every finding that is raised while the records of a job arrive one by one, evaluated twice a second."""
    path = folder / f"{labelled.id}.ndjson"
    path.write_bytes(lzma.decompress((RECORDINGS / f"{labelled.id}.ndjson.xz").read_bytes()))
    hub, store, evaluated_rx = Hub(), Store(), 0
    arriving: list[Published] = []
    hub.subscribe(arriving.extend)
    ndjson.play(path, hub)
    raised = dict[tuple[str, str, tuple[str, ...]], FindingDraft]()
    for record in arriving:
        if isinstance(record, Finding):
            continue
        store.apply([change(record)])
        if store.newest_rx - evaluated_rx >= EVALUATED_NS:
            evaluated_rx = store.newest_rx
            source = CrashFindings(store)  # another one pauses between two diagnoses, in real time
            for draft in asyncio.run(source.evaluate(is_last=False)):
                raised[draft.id, draft.severity, draft.culprits] = draft
    return list(raised.values())


def reported(labelled: LabelledJob, folder: Path) -> dict[str, Any]:
    """The report of a recording, with the findings that hold at its end instead of the recorded ones."""
    store = stored(labelled, folder)
    for key, finding in store.findings.items():
        if finding.cleared_at is None:
            store.findings.drop(key, store.version)
    store.apply(crash_findings(store))
    return dict(json.loads(to_json(make_report(store))))
