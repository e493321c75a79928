"""`gconsole why`: what a slow rank does and its peers do not."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from .main import EXIT_NOTHING, EXIT_OK, EXIT_PARTIAL
from .options import duration_option, load_target, target, write_output
from .terminal import print_text

if TYPE_CHECKING:
    from ..analysis.stacks.profiles import ProfileComparison, RankProfile
    from ..config import Config

#: Seconds of one block of samples, and that a reply may take longer.
BLOCK_S, GRACE_S = 2, 30.0


@click.command()
@target
@click.option("--rank", "rank", type=click.IntRange(0), help="Compare this rank. Default: the one that waits least.")
@click.option("--job", "job", metavar="NAME", default="", help="Only the job with this in its name.")
@duration_option("--for", "for_s", default="10s", help="Sample for this long, in blocks of 2s: 2s to 60s.")
@click.option(
    "--against", "earlier", type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Compare the whole job with an earlier good run: a file of --format json.",
)  # fmt: skip
@click.option("--format", "form", type=click.Choice(["text", "svg", "speedscope", "json"]), default="text")
@click.option("-o", "--output", metavar="FILE", help="Output file.  [default: stdout]")
def why(
    target: str, overrides: tuple[str, ...], rank: int | None, job: str, for_s: float, earlier: Path | None, form: str,
    output: str | None,
) -> int:  # fmt: skip
    """Find why a rank, or a whole job, is slow: sample the stacks of all ranks and compare.

    py-spy reads the main thread of every rank 20 times a second, without stopping it. The calls of the rank that waits
    least for the others are compared with those of its peers, and the kernel's figures of the same seconds: CPU,
    throttling, page faults, disks, NUMA. A difference is named if it is at least 5 % of the time and separates all
    blocks of samples. Exit codes: 0 done, 3 not all ranks were sampled, 4 none.

    \b
    gconsole why hosts.toml
    gconsole why hosts.toml --rank 3 --format svg -o why.svg
    gconsole why hosts.toml --format json -o good.json      later: --against good.json
    """
    if not BLOCK_S <= for_s <= 60:
        raise click.BadParameter("use 2s to 60s", param_hint="--for")
    config = load_target(target, overrides)
    profiles, problems = asyncio.run(_sampled(config, math.ceil(for_s / BLOCK_S)))
    profiles = [profile for profile in profiles if job in profile.job]
    for problem in problems:
        print_text(f"gconsole: {problem}", err=True)
    sampled = [profile for profile in profiles if profile.blocks]
    if not sampled:
        return EXIT_NOTHING
    if form == "json":
        write_output(output, msgspec.json.format(msgspec.json.encode(sampled), indent=1) + b"\n")
    else:
        _write(sampled, rank, _profiles_in(earlier) if earlier else [], form, output)
    return EXIT_PARTIAL if problems else EXIT_OK


def _write(
    sampled: Sequence[RankProfile], rank: int | None, earlier: Sequence[RankProfile], form: str, output: str | None
) -> None:
    from ..present.why import why_speedscope, why_svg, why_text
    from ..session.export.stacks import SPEEDSCOPE_SCHEMA
    from ..text.sanitize import printable

    texts = []
    for name in dict.fromkeys(profile.job for profile in sampled):
        profiles = [profile for profile in sampled if profile.job == name]
        sides = _sides(profiles, rank, earlier)
        if sides is None:
            texts.append(
                f"{printable(name)}: no rank waits for the others significantly less than its peers; "
                "compare one with --rank N, or the job with a good run: --against FILE"
            )
            continue
        names = tuple(sides)
        subject, peers = sides.values()
        comparison = _compared(subject, peers, (names[0], names[1]))
        if form == "speedscope":
            texts.append(why_speedscope(sides, SPEEDSCOPE_SCHEMA))
        else:
            texts.append(why_svg(comparison) if form == "svg" else f"{printable(name)}: {why_text(comparison)}")
        if form != "text":
            break  # one document
    write_output(output, "\n\n".join(texts).encode() + b"\n")


def _compared(
    subject: Sequence[RankProfile], peers: Sequence[RankProfile], names: tuple[str, str]
) -> ProfileComparison:
    from ..analysis.stacks.profiles import compare

    return compare(subject, peers, names)


def _sides(
    profiles: Sequence[RankProfile], rank: int | None, earlier: Sequence[RankProfile]
) -> dict[str, Sequence[RankProfile]] | None:
    """Both sides of the comparison by name; None without a rank that stands out. Raises UsageError."""
    from ..analysis.stacks.profiles import straggler_of

    if earlier:
        return {"this run": profiles, "the earlier run": earlier}
    if rank is not None:
        chosen = next((profile for profile in profiles if profile.rank == rank), None)
        if chosen is None:
            raise click.BadParameter(f"rank {rank} was not sampled", param_hint="--rank")
    else:
        chosen = straggler_of(profiles)
    if chosen is None:
        return None
    return {f"rank {chosen.rank}": [chosen], "its peers": [other for other in profiles if other is not chosen]}


def _profiles_in(path: Path) -> list[RankProfile]:
    from ..analysis.stacks.profiles import RankProfile

    try:
        return msgspec.json.decode(path.read_bytes(), type=list[RankProfile])
    except msgspec.DecodeError as error:
        raise click.BadParameter(f"{path}: {error}", param_hint="--against") from error


async def _sampled(config: Config, blocks: int) -> tuple[list[RankProfile], list[str]]:
    """The profiles of all ranks, and a sentence for each node or rank without one."""
    from ..analysis.stacks.profiles import profiles_of
    from ..fleet.capture import STAGING_S
    from ..fleet.survey import survey
    from ..monitor.rank_gpus import rank_gpus
    from ..runtime.console import Console

    profiles: list[RankProfile] = []
    async with Console(config, probe_clocks=False, black_box=False).running() as console:
        links = list(console.fleet.links.values())
        await asyncio.gather(*(link.wait_for_sample() for link in links), return_exceptions=True)
        await asyncio.gather(*(console.fleet.staging.settle(link, STAGING_S) for link in links))
        replies = await survey(links, "profile", {"blocks": blocks}, blocks * BLOCK_S + GRACE_S)
        clocks = {key: now.gpu.sm_clock_mhz for key, _, now in rank_gpus(console.store) if now.gpu is not None}
    problems = []
    for reply in replies:
        if reply.failure is not None:
            problems.append(f"{reply.node}: {reply.failure.text}")
            continue
        try:
            profiles += profiles_of(reply.value, reply.node)
        except msgspec.ValidationError as error:
            problems.append(f"{reply.node}: invalid profile: {error}")
    problems += [f"rank {profile.rank} on {profile.node}: {profile.problem}" for profile in profiles if profile.problem]
    return [
        _with_clock(profile, clocks.get((profile.job, profile.attempt, profile.rank))) for profile in profiles
    ], problems


def _with_clock(profile: RankProfile, sm_clock_mhz: float | None) -> RankProfile:
    counters = {**profile.counters, "sm_clock_mhz": sm_clock_mhz}
    return msgspec.structs.replace(profile, counters=counters)
