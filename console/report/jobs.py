"""Jobs and ranks in the report."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from ..analysis.jobs import JobRanks, RankSummary
from ..records import Watched


class MissingRankLine(msgspec.Struct):
    """A rank that is not running or not visible, and why."""

    rank: int | None
    reason: str


class JobLine(msgspec.Struct):
    """One job at its newest attempt."""

    job: str
    attempt: int
    world_size: int | None
    ranks_found: list[int]
    ranks_missing: list[MissingRankLine]
    conflicts: list[str]


class RankLine(msgspec.Struct):
    """One process that is a rank."""

    job: str
    attempt: int
    rank: int | None
    local_rank: int | None
    node: str
    pid: int
    gpu: str | None
    state: str
    step: int | None
    source: str
    watched: dict[str, Watched] | None  # [watch] locals by name; None where none was read


def job_line(job: JobRanks) -> JobLine:
    """A job in the report."""
    return JobLine(
        job=job.job,
        attempt=job.attempt,
        world_size=job.world_size,
        ranks_found=list(job.ranks_found),
        ranks_missing=[MissingRankLine(missing.rank, missing.reason) for missing in job.ranks_missing],
        conflicts=[conflict.text for conflict in job.conflicts],
    )


def rank_line(row: RankSummary) -> RankLine:
    """A rank in the report."""
    return msgspec.convert(row, RankLine, from_attributes=True)


def is_of_job(reported: str, name: str) -> bool:
    """Whether ranks that report this job name belong to the job: `train-3f9a1c@10.0.0.1:29500` to `train-3f9a1c`."""
    return reported == name or reported.startswith(f"{name}@")


def own_name(reported: str, started: Collection[str]) -> str:
    """The name under which gconsole started the job that reports this name; otherwise the reported name."""
    name = reported.rpartition("@")[0]
    return name if name in started else reported
