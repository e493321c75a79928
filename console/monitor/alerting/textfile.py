"""The file for node_exporter's textfile collector: findings, nodes and jobs as gauges."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from ...records import Finding
from ...text.atomic_files import write_readable

#: Series of one family; ids are a closed set, rules are bounded.
_MOST_SERIES: Final = 1_000


class WatchGauges(msgspec.Struct, frozen=True):
    """What a pass found. `jobs`: number of jobs by state; `pass_s`: its instant, seconds since the epoch."""

    cluster: str
    nodes_seen: int
    nodes_expected: int
    is_healthy: bool
    jobs: Mapping[str, int]
    pass_s: float


def format_textfile(gauges: WatchGauges, findings: Iterable[Finding]) -> str:
    """The text exposition format, version 0.0.4."""
    by_id = Counter((finding.id, finding.severity) for finding in findings)
    cluster = (("cluster", gauges.cluster),)
    families: list[tuple[str, str, list[tuple[Sequence[tuple[str, str]], float]]]] = [
        (
            "gconsole_watch_findings_open",
            "Open findings that the rule selects.",
            [((*cluster, ("id", id_), ("severity", severity)), n) for (id_, severity), n in sorted(by_id.items())],
        ),
        ("gconsole_watch_nodes_seen", "Nodes that sent records recently.", [(cluster, gauges.nodes_seen)]),
        ("gconsole_watch_nodes_expected", "Nodes of the target.", [(cluster, gauges.nodes_expected)]),
        (
            "gconsole_watch_healthy",
            "1 if the last pass saw enough nodes and all analyses ran.",
            [(cluster, int(gauges.is_healthy))],
        ),
        (
            "gconsole_watch_jobs",
            "Jobs by state: the worst severity of their open findings, ok, or ended.",
            [((*cluster, ("state", state)), n) for state, n in sorted(gauges.jobs.items())],
        ),
        ("gconsole_watch_last_pass_timestamp_seconds", "Instant of the last pass.", [(cluster, gauges.pass_s)]),
    ]
    lines: list[str] = []
    for name, help_, series in families:
        lines += [f"# HELP {name} {help_}", f"# TYPE {name} gauge"]
        lines += [f"{name}{{{_labels(labels)}}} {number:.15g}" for labels, number in series[:_MOST_SERIES]]
    return "\n".join(lines) + "\n"


def write_textfile(path: Path, gauges: WatchGauges, findings: Iterable[Finding]) -> None:
    """Replace the file in one step, readable for all, because node_exporter is another user. Raises OSError."""
    write_readable(path, format_textfile(gauges, findings).encode())


def _labels(labels: Sequence[tuple[str, str]]) -> str:
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in labels)


def _escaped(value: str) -> str:
    value = value.encode(errors="replace").decode()
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
