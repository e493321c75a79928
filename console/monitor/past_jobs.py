"""Jobs that had ended before the console came, from the outputs that they left behind on their nodes."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from ..analysis.crash.verdict import CrashVerdict, LauncherOutput, RankEnd, RankOutput
from ..core.store import Store
from ..records import Output
from ..text.format import duration

#: ns after its end for which a job matters.
RECENT_NS: Final = 3_600_000_000_000
#: torch's prefix of the lines of a rank.
_PREFIX: Final = re.compile(r"^\[rank([0-9]{1,6})\]:", re.MULTILINE)


def past_outputs(store: Store) -> Mapping[tuple[str, int], Sequence[Output]]:
    """Outputs without a process, by job and attempt; not of jobs that are known otherwise.

    The job is named by its run id alone here, and by `run-id@master` while it lives.
    """
    outputs = [output for output in store.endings.outputs.values() if output.pid is None]
    if not outputs:
        return {}
    seen = {now.rank.job for now in store.ranks.values()} | {each.job for each in store.endings.processes.values()}
    seen |= {output.job for output in store.endings.outputs.values() if output.pid is not None}
    seen |= {str(job).partition("@")[0] for job in seen if job is not None}
    by_attempt: dict[tuple[str, int], list[Output]] = defaultdict(list)
    for output in outputs:
        ended_rx = ended_rx_of(output)
        if output.job not in seen and ended_rx is not None and ended_rx <= store.started_rx:
            by_attempt[output.job, output.attempt].append(output)
    return by_attempt


def ended_rx_of(output: Output) -> int | None:
    """When an output was last written, on the console's clock, ns: both times of the record are of its node."""
    return output.rx - (output.t - output.written_at) if output.written_at is not None else None


def past_ends(outputs: Iterable[Output]) -> list[RankEnd]:
    """The ends of the ranks that wrote these outputs, one for each folder; torch's prefix has their numbers."""
    folders: dict[tuple[str, str], list[Output]] = defaultdict(list)
    for output in outputs:
        if output.stream == "file":
            continue
        folders[output.node, (output.path or "").rpartition("/")[0]].append(output)
    return [RankEnd(rank=_rank_of(own), node=node, outputs=_made(own)) for (node, _), own in sorted(folders.items())]


def past_launchers(outputs: Iterable[Output]) -> list[LauncherOutput]:
    """What launchers printed into files, by node."""
    files = sorted((output for output in outputs if output.stream == "file"), key=lambda each: (each.node, each.path))
    return [LauncherOutput(output, each.node) for each in files for output in _made([each])]


def _rank_of(outputs: Sequence[Output]) -> int | None:
    """The only rank that the lines of one process name."""
    ranks = {int(number) for output in outputs if output.text for number in _PREFIX.findall(output.text)}
    return ranks.pop() if len(ranks) == 1 else None


def _made(outputs: Sequence[Output]) -> tuple[RankOutput, ...]:
    return tuple(
        RankOutput(stream=output.stream, text=output.text, path=output.path, written_at_ns=output.written_at)
        for output in outputs
    )


def ended_before(verdict: CrashVerdict, ago_ns: int) -> CrashVerdict:
    """The verdict, with the time since the end of its job in its summary."""
    summary = f"{verdict.summary.rstrip('.')}; it ended {duration(ago_ns)} before the console came"
    return msgspec.structs.replace(verdict, summary=summary)
