"""`gconsole why`: what a slow rank does and its peers do not."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from ..text.sanitize import printable
from .main import EXIT_NOTHING, EXIT_OK, EXIT_PARTIAL
from .options import InputPath, duration_option, load_target, target, write_output
from .terminal import print_text

if TYPE_CHECKING:
    from ..analysis.stacks.profiles import ProfileComparison, RankProfile
    from ..config import Config

_REMEDY = "compare one with --rank N, or the job with a good run: --against FILE"


@click.command()
@target
@click.option("--rank", "rank", type=click.IntRange(0), help="Compare this rank. Default: the one that waits least.")
@click.option("--job", "job", metavar="NAME", default="", help="Only the job with this in its name.")
@duration_option("--for", "for_s", default="10s", help="Sample for this long, in blocks of 2s: 2s to 60s.")
@click.option(
    "--against", "earlier", type=InputPath(exists=True, dir_okay=False, path_type=Path),
    help="Compare the whole job with an earlier good run: a file of --format json, - = stdin.",
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
    throttling, page faults, disks, network, NUMA. A difference is named if it is at least 5 % of the time and separates
    all blocks of samples. Exit codes: 0 done, 3 not all ranks were sampled, 4 none.

    \b
    gconsole why hosts.toml
    gconsole why hosts.toml --rank 3 --format svg -o why.svg
    gconsole why hosts.toml --format json -o good.json      later: --against good.json
    """
    if not 2 <= for_s <= 60:
        raise click.BadParameter("use 2s to 60s", param_hint="--for")
    config, before = load_target(target, overrides), _profiles_in(earlier) if earlier else []
    profiles, problems = asyncio.run(_sampled(config, for_s))
    sampled = [profile for profile in profiles if job in profile.job]
    for problem in problems:
        print_text(printable(f"gconsole: {problem}"), err=True)
    if not sampled:
        return EXIT_NOTHING
    if form == "json":
        write_output(output, msgspec.json.format(msgspec.json.encode(sampled), indent=1) + b"\n")
    else:
        _write(sampled, rank, before, form, output)
    return EXIT_PARTIAL if problems else EXIT_OK


def _write(
    sampled: Sequence[RankProfile], rank: int | None, earlier: Sequence[RankProfile], form: str, output: str | None
) -> None:
    from ..monitor.why import sides_of
    from ..present.why import NO_STRAGGLER, why_speedscope, why_svg, why_text
    from ..session.export.stacks import SPEEDSCOPE_SCHEMA
    from ..text.sanitize import printable

    texts = []
    for name in dict.fromkeys(profile.job for profile in sampled):
        profiles = [profile for profile in sampled if profile.job == name]
        try:
            sides = sides_of(profiles, rank, earlier)
        except LookupError as error:
            raise click.BadParameter(str(error), param_hint="--rank") from error
        if sides is None:
            texts.append(f"{printable(name)}: {NO_STRAGGLER}; {_REMEDY}")
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


def _profiles_in(path: Path) -> list[RankProfile]:
    from ..analysis.stacks.profiles import RankProfile

    try:
        return msgspec.json.decode(path.read_bytes(), type=list[RankProfile])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise click.BadParameter(f"{path}: {error}", param_hint="--against") from error


async def _sampled(config: Config, for_s: float) -> tuple[list[RankProfile], list[str]]:
    from ..monitor.why import sample_ranks
    from ..runtime.console import Console

    async with Console(config, probe_clocks=False, black_box=False).running() as console:
        return await sample_ranks(console.fleet, console.store, for_s)
