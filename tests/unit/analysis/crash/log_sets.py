"""Log sets with their expected verdict, one file each in `logs/`; a file bundles the files of one folder.

The first lines are `# source:` (what wrote the output) and `# expect: KIND RANKS TYPE SITE`, `-` for none. The other
form, `# expect: none`, is a folder of a job that did not crash.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from gconsole.analysis.crash.diagnosis import diagnose_crash
from gconsole.analysis.crash.verdict import CrashVerdict
from gconsole.monitor.imports.outputs import import_outputs
from gconsole.text.nodeset_fold import fold_numbers

LOGS = Path(__file__).parent / "logs"


@dataclass(frozen=True)
class LogSet:
    """One folder of outputs and what its verdict must be."""

    name: str
    source: str
    expect: str
    files: dict[str, str]

    def write(self, folder: Path) -> None:
        for name, text in self.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)


def log_sets() -> list[LogSet]:
    return [parse(path) for path in sorted(LOGS.glob("*.txt"))]


def parse(path: Path) -> LogSet:
    head, *parts = re.split(r"^=== (?=\S+\n)", path.read_text(), flags=re.MULTILINE)
    fields = dict(line[2:].split(": ", 1) for line in head.splitlines())
    files = dict(part.split("\n", 1) for part in parts)
    return LogSet(path.stem, fields["source"], fields["expect"], files)


def verdict_on(folder: Path) -> CrashVerdict | None:
    """The verdict on the last attempt, as `gconsole diagnose` gives it."""
    verdicts: list[CrashVerdict] = []
    verdict = None
    for attempt in import_outputs(folder, folder.name).attempts:
        verdict = diagnose_crash(attempt, verdicts)
        verdicts += [verdict] if verdict else []
    return verdict


def described(verdict: CrashVerdict | None) -> str:
    """The verdict in the form of `# expect:`."""
    if verdict is None:
        return "none"
    ranks = [culprit.rank for culprit in verdict.culprits if culprit.rank is not None]
    nodes = [culprit.node for culprit in verdict.culprits if culprit.rank is None and culprit.node]
    who = fold_numbers(ranks) if ranks else ",".join(nodes) or "-"
    failure = verdict.first_cause.failure if verdict.first_cause else None
    site = failure.site if failure else None
    place = f"{site.file.rsplit('/', 1)[-1]}:{site.line}" if site else "-"
    return f"{verdict.kind} {who} {failure.type.replace(' ', '_') if failure else '-'} {place}"
