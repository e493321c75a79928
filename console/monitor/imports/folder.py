"""A folder of evidence on a job: outputs of its ranks and launchers, py-spy dumps and dumps of communication libraries.

`import_evidence` folds all of it into a store with the findings, and diagnoses crashes from the outputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from ... import GconsoleError
from ...analysis.crash.diagnosis import diagnose_crash
from ...analysis.crash.findings import crash_finding
from ...analysis.crash.verdict import CrashEvidence, CrashVerdict
from ...analysis.stacks.frame_models import parse_model
from ...core.store import Store
from ...records import Finding
from ..hang import verdict_findings
from .collectives import ImportedCollectives, import_folder
from .isolated_files import FileFailure, read_each
from .outputs import ImportedOutputs, import_outputs
from .py_spy_dumps import JOB, ImportedDumps, NoDumps, records_of, without_stacks


class NothingToImport(GconsoleError):
    """The folder has none of the files that can be diagnosed."""


class FolderEvidence(msgspec.Struct, frozen=True):
    """What a folder says: the folded records, and what could not be read as sentences."""

    store: Store
    crashes: tuple[CrashVerdict, ...]  # of the job whose outputs they are; empty if its last attempt did not fail
    outputs: int  # files of output that were read
    problems: tuple[str, ...]


def import_evidence(path: Path, models: Sequence[str] = ()) -> FolderEvidence:
    """Read a folder tree. `models` are frame models, in the format of `[hang] models`.

    Raises BadModel, NothingToImport.
    """
    for text in models:
        parse_model(text)
    flight = import_folder(path, JOB)
    no_dumps: NoDumps | None = None
    try:
        dumps = records_of(path, tuple(models))
    except NoDumps as error:
        no_dumps, dumps = error, without_stacks(path, tuple(models))
    outputs = _outputs(path, dumps, flight, has_dumps=no_dumps is None)
    if no_dumps and not flight.records and not outputs.read:
        text = f"{no_dumps}, and no logs, Flight Recorder dumps, NCCL RAS output or NCCL logs"
        raise NothingToImport(text) from no_dumps
    store = Store()
    store.apply([*dumps.records, *flight.records])
    store.apply(verdict_findings(store))
    [(_, crashes)] = read_each([path], lambda _: crashes_of(outputs.attempts), list[CrashVerdict])
    problems = _problems(path, dumps, flight, outputs)
    if isinstance(crashes, FileFailure):
        problems.append(f"the outputs cannot be diagnosed: {crashes.text}")
        crashes = []
    store.apply(crash_findings(crashes, store.newest_rx))
    return FolderEvidence(store, tuple(crashes), len(outputs.read), tuple(problems))


def _outputs(path: Path, dumps: ImportedDumps, flight: ImportedCollectives, *, has_dumps: bool) -> ImportedOutputs:
    """Outputs are the files that neither are dumps nor have been read as such."""
    refused = {name for name, _ in dumps.refused}
    skipped = [file for file in path.rglob("*") if str(file.relative_to(path)) not in refused] if has_dumps else []
    skipped += [file for file in flight.read if file not in flight.logs]
    return import_outputs(path, path.resolve().name, skipped)


def _problems(path: Path, dumps: ImportedDumps, flight: ImportedCollectives, outputs: ImportedOutputs) -> list[str]:
    problems = [str(problem) for problem in flight.problems]
    problems += [f"{name}: {problem}" for name, problem in outputs.problems]
    imported = {str(file.relative_to(path)) for file in flight.read} | set(outputs.read)
    return problems + [f"{name}: {problem}" for name, problem in dumps.refused if name not in imported]


def crashes_of(attempts: Sequence[CrashEvidence]) -> list[CrashVerdict]:
    """The verdict on the last attempt of a job, with the earlier ones; empty if the last one did not fail."""
    verdicts: list[CrashVerdict] = []
    verdict: CrashVerdict | None = None
    for attempt in attempts:
        verdict = diagnose_crash(attempt, verdicts)
        verdicts += [verdict] if verdict is not None else []
    return [verdict] if verdict is not None else []


def crash_findings(crashes: Sequence[CrashVerdict], first_seen: int) -> list[Finding]:
    """The findings of crash verdicts, as records."""
    drafts = [crash_finding(verdict) for verdict in crashes]
    return [
        Finding(
            id=draft.id, severity=draft.severity, confidence=draft.confidence, culprits=draft.culprits,
            victims=draft.victims, text=draft.text, evidence=draft.evidence, first_seen=first_seen,
        )
        for draft in drafts
    ]  # fmt: skip
